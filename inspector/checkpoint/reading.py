"""Checkpoint tensors: read, renamed once, verified whole, and cut into the forward pass's Weights.

A load is complete or an error: all missing, unexpected and misshapen tensors are named in one message before anything is
used. Layout: facts of `openai-community/gpt2` (160 tensors, Conv1D matrices stored [in, out]).
"""

import json
import pickle
import re
import zipfile

import torch

from ..errors import SourceError, WeightsError
from .weights import Block, Weights

# The causal mask, saved with the weights by old versions of transformers: no weights.
BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def shards(index):
    """File names of a sharded checkpoint, from its index file. Raises SourceError for an unreadable index."""
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        names = sorted(set(names))
    except OSError as error:
        raise SourceError(f"cannot read {index}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{index} is not a valid index of shards: {error!r}") from error
    foreign = [name for name in names if not isinstance(name, str) or "/" in name or "\\" in name]
    if foreign:
        raise SourceError(f"{index} names shards outside its folder: {', '.join(map(str, foreign))}")
    return names


def weight_files(path):
    """The files that hold tensors: the file itself, or the shards of an index."""
    if not path.name.endswith(".index.json"):
        return [path]
    files = [path.parent / name for name in shards(path)]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise SourceError(f"shards named in {path.name} are absent: {', '.join(absent)}")
    return files


def read_tensors(path):
    """{name as stored: tensor} of one file. Safetensors are memory-mapped: no copy is made in memory."""
    if path.name.endswith(".safetensors"):
        from safetensors import SafetensorError, safe_open
        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}     # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise SourceError(f"{path} is not a valid safetensors file: {error}") from error
    try:
        # weights_only: a pickle may hold any code; only plain tensors are read.
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SourceError(f"{path} cannot be read as plain tensors: {reason[:200]}") from error
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise SourceError(f"{path} does not hold a dictionary of tensors")
    return found


def expected_shapes(config):
    """{name without prefix: shape} of every tensor a checkpoint of this config must hold, lm_head apart."""
    d, m = config.d_model, config.d_mlp
    shapes = {"wte.weight": (config.vocab_size, d), "wpe.weight": (config.n_positions, d),
              "ln_f.weight": (d,), "ln_f.bias": (d,)}
    for n in range(config.n_layer):
        layer = {"ln_1.weight": (d,), "ln_1.bias": (d,), "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
                 "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,), "ln_2.weight": (d,), "ln_2.bias": (d,),
                 "mlp.c_fc.weight": (d, m), "mlp.c_fc.bias": (m,), "mlp.c_proj.weight": (m, d), "mlp.c_proj.bias": (d,)}
        shapes |= {f"h.{n}.{name}": shape for name, shape in layer.items()}
    return shapes


def verified(tensors, config):
    """The tensors under their names without prefix, complete and of the right shapes; buffers left out.

    Raises WeightsError naming every missing, unexpected, doubled and misshapen tensor at once.
    """
    found, problems = {}, []
    for stored, tensor in tensors.items():
        name = stored.removeprefix("transformer.")
        if BUFFER.fullmatch(name):
            continue
        if name in found:
            problems.append(f"twice, with and without prefix: {name}")
        found[name] = tensor
    shapes = expected_shapes(config)
    if "lm_head.weight" in found or not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.d_model)
    if missing := [name for name in shapes if name not in found]:
        problems.append("missing: " + ", ".join(missing))
    if unexpected := [name for name in found if name not in shapes]:
        problems.append("unexpected: " + ", ".join(unexpected))
    wrong = [f"{name} is {list(found[name].shape)}, expected {list(shape)}"
             for name, shape in shapes.items() if name in found and tuple(found[name].shape) != shape]
    if wrong:
        problems.append("wrong shape: " + "; ".join(wrong))
    odd = [f"{name} ({tensor.dtype})".replace("torch.", "")
           for name, tensor in found.items() if name in shapes and tensor.dtype not in FLOATS]
    if odd:
        problems.append("not floating point (quantised checkpoints are not supported): " + ", ".join(odd))
    if problems:
        raise WeightsError("the weights do not fit the config. " + ". ".join(problems))
    if config.tie_word_embeddings and "lm_head.weight" in found:
        head = found.pop("lm_head.weight")
        if not torch.equal(head, found["wte.weight"]):
            raise WeightsError("the config ties lm_head to wte (tie_word_embeddings), but the file's lm_head.weight "
                               "differs from wte.weight; set tie_word_embeddings to false if lm_head is meant")
    return found


def finite(name, tensor):
    """The tensor itself. Raises WeightsError naming it when it holds NaN or an infinity."""
    low, high = torch.aminmax(tensor)        # NaN passes through both; no copy of the tensor's size is made
    if not (torch.isfinite(low) and torch.isfinite(high)):
        count = int((~torch.isfinite(tensor)).sum())
        raise WeightsError(f"{name} holds {count} value(s) that are NaN or infinite as {tensor.dtype}; "
                           "nothing is computed from them".replace("torch.", ""))
    return tensor


def read_weights(files, config, *, dtype, device):
    """Weights of a checkpoint in one dtype on one device. A file already in that dtype stays memory-mapped."""
    tensors = {}
    for path in weight_files(files.weights):
        part = read_tensors(path)
        if doubled := sorted(set(part) & set(tensors)):
            raise WeightsError(f"tensors stand in more than one shard: {', '.join(doubled)}")
        tensors |= part
    named = verified(tensors, config)
    w = {name: finite(name, tensor.to(device=device, dtype=dtype)) for name, tensor in named.items()}

    def block(n):
        h = f"h.{n}."
        return Block(
            w[h + "ln_1.weight"], w[h + "ln_1.bias"], w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"],
            w[h + "attn.c_proj.weight"].view(config.n_head, config.d_head, config.d_model), w[h + "attn.c_proj.bias"],
            w[h + "ln_2.weight"], w[h + "ln_2.bias"], w[h + "mlp.c_fc.weight"], w[h + "mlp.c_fc.bias"],
            w[h + "mlp.c_proj.weight"], w[h + "mlp.c_proj.bias"])

    return Weights(W_E=w["wte.weight"], W_pos=w["wpe.weight"], blocks=tuple(map(block, range(config.n_layer))),
                   ln_f_weight=w["ln_f.weight"], ln_f_bias=w["ln_f.bias"],
                   W_U=w.get("lm_head.weight", w["wte.weight"]).T)
