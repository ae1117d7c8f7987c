r"""The planted model: a GPT-2 whose heads are known because they were set by hand, saved as any checkpoint is.

    0.0 duplicate-token   looks at earlier copies of its token, never at itself
    0.1 previous-token    looks one position back, and writes that token into PREVIOUS
    1.1 first-token       looks at position 0
    2.0 induction         looks where PREVIOUS is its own token, and writes the token it finds there into OUTPUT
    1.0, 2.1, 3.0, 3.1    noise, and so are the MLPs and what 0.0 and 1.1 say

`planting.py` shows how. What a loader or a forward pass can get wrong takes part: LayerNorm's gains (1/4 to 4) and biases
are random, and the weights behind undo them; every embedding carries an offset that only LayerNorm's centring removes; no
bias vector is zero; the unembedding is not tied and reads OUTPUT alone. An id is an ASCII code (127: <|endoftext|>); any
other byte of a text is spelled out as \xNN. There are 160 positions.

`COUNTERFACTUALS` are the same model with one thing changed, and known to read otherwise: a score that does not notice is no
evidence.
"""

import atexit
import functools
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ..record import write_tensors
from . import planting
from .planting import D_MODEL, N_HEAD, OUTPUT, POSITION, POSITIONS, PREVIOUS, SPARE, TALL, TOKEN, VOCAB

PLANTED = {"duplicate_token": (0, 0), "previous_token": (0, 1), "first_token": (1, 1), "induction": (2, 0)}
NOISE_HEADS = ((1, 0), (2, 1), (3, 0), (3, 1))
N_LAYER, D_MLP = 4, 72
CROWD = (2, 3, 3, 3)            # one-hots that each layer reads: token and position; behind layer 0 the previous token too
END = "<|endoftext|>"
CONFIG = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
    "vocab_size": VOCAB, "n_positions": POSITIONS, "n_embd": D_MODEL, "n_layer": N_LAYER, "n_head": N_HEAD,
    "n_inner": D_MLP, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    "bos_token_id": VOCAB - 1, "eos_token_id": VOCAB - 1, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
}


def heads(normal):
    """The planted heads, [layer][head], each laid over noise, before LayerNorm's gains and biases are undone."""
    def noise():
        return planting.noise_head(normal)

    duplicate = planting.looking_at_duplicates(noise(), CROWD[0])
    previous = planting.saying(planting.looking_back(noise(), 1, CROWD[0]), TOKEN, PREVIOUS, CROWD[0])
    first = planting.looking_at_position_0(noise(), CROWD[1])
    induction = planting.saying(planting.looking_at_followers(noise(), CROWD[2]), TOKEN, OUTPUT, CROWD[2])
    return [[duplicate, previous], [noise(), first], [induction, noise()], [noise(), noise()]]


def one_hots(n, subspace):
    """[n, d_model]: row i is one-hot in a subspace, TALL."""
    rows = planting.zeros(n, D_MODEL)
    rows[:, subspace].fill_diagonal_(TALL)
    return rows


def state_dict(noise=0.02, seed=0):
    """The weights, float32, under the names and in the layout of transformers' GPT2LMHeadModel.

    noise: standard deviation of the weights of noise heads and MLPs. At 0 the planted heads are alone, and what two equal
    keys share is shared exactly; at 0.05 the noise drowns the induction head.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, std=noise):
        return std * torch.randn(*shape, generator=generator, dtype=torch.float64)

    def layer_norm():
        gain = 2 ** (4 * torch.rand(D_MODEL, generator=generator, dtype=torch.float64) - 2)      # from 1/4 to 4
        return gain, gain * normal(D_MODEL, std=0.2)

    def offset(n):
        # The same in all channels of a row: only centring removes it. Eighths, so that float32 holds the sums exactly.
        return torch.randint(-8, 9, (n, 1), generator=generator) / 8

    tensors = {"transformer.wte.weight": one_hots(VOCAB, TOKEN) + offset(VOCAB),
               "transformer.wpe.weight": one_hots(POSITIONS, POSITION) + offset(POSITIONS)}
    for layer, row in enumerate(heads(normal)):
        (gain_1, bias_1), (gain_2, bias_2) = layer_norm(), layer_norm()
        row = [planting.behind_layer_norm(head, gain_1, bias_1) for head in row]
        W_in, b_in = planting.undone(normal(D_MODEL, D_MLP), normal(D_MLP), gain_2, bias_2)
        b_O = planting.zeros(D_MODEL)
        b_O[SPARE] = normal(SPARE.stop - SPARE.start, std=0.5)
        part = {
            "ln_1.weight": gain_1, "ln_1.bias": bias_1,
            "attn.c_attn.weight": torch.cat([h.W_Q for h in row] + [h.W_K for h in row] + [h.W_V for h in row], dim=1),
            "attn.c_attn.bias": torch.cat([h.b_Q for h in row] + [h.b_K for h in row] + [h.b_V for h in row]),
            "attn.c_proj.weight": torch.cat([h.W_O for h in row]), "attn.c_proj.bias": b_O,
            "ln_2.weight": gain_2, "ln_2.bias": bias_2, "mlp.c_fc.weight": W_in, "mlp.c_fc.bias": b_in,
            "mlp.c_proj.weight": normal(D_MLP, D_MODEL), "mlp.c_proj.bias": normal(D_MODEL),
        }
        tensors |= {f"transformer.h.{layer}.{name}": tensor for name, tensor in part.items()}
    gain, bias = layer_norm()
    tensors |= {"transformer.ln_f.weight": gain, "transformer.ln_f.bias": bias,
                "lm_head.weight": one_hots(VOCAB, OUTPUT) / TALL / gain}
    return {name: tensor.to(torch.float32).contiguous() for name, tensor in tensors.items()}


def tokenizer():
    """One token a character: its ASCII code; <|endoftext|> has DEL's place, 127. A `tokenizers.Tokenizer`."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    moved = iter(c for c in letters if ord(c) > 255)       # byte-level vocabularies move unprintable bytes up, in order
    letter = [chr(byte) if chr(byte) in letters else next(moved) for byte in range(256)]
    vocabulary = {letter[byte]: byte for byte in range(VOCAB - 1)}
    spelled = [normalizers.Replace(letter[byte], f"\\x{byte:02X}") for byte in range(VOCAB - 1, 256)]
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.normalizer = normalizers.Sequence([normalizers.ByteLevel(), *spelled])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END])
    return made


def write(folder, *, noise=0.02, seed=0):
    """Save a planted model as a checkpoint folder, as transformers would: config.json, model.safetensors, tokenizer.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    write_tensors(folder / "model.safetensors", state_dict(noise, seed), metadata={"format": "pt"})
    tokenizer().save(str(folder / "tokenizer.json"))


@functools.cache
def folder():
    """The folder of the planted model, written once a process and removed when it ends."""
    temporary = TemporaryDirectory(prefix="inspector-planted-")
    atexit.register(temporary.cleanup)
    write(temporary.name)
    return Path(temporary.name)


# -- the same model, one thing changed -------------------------------------------------------------------------------

def with_look(model, where, head):
    """A copy of the model in which head `where` = (layer, head) looks where `head` looks; what it says stays."""
    layer, index = where
    block = model.weights.blocks[layer]
    behind = planting.behind_layer_norm(head, block.ln_1_weight.double().cpu(), block.ln_1_bias.double().cpu())
    block = replace(block, W_QKV=block.W_QKV.clone(), b_QKV=block.b_QKV.clone())
    for name in ("W_Q", "W_K", "b_Q", "b_K"):
        getattr(block, name)[index] = getattr(behind, name).to(block.W_QKV)       # a view into the clones
    return _with_block(model, layer, block)


def _with_block(model, layer, block):
    blocks = tuple(block if n == layer else old for n, old in enumerate(model.weights.blocks))
    return replace(model, weights=replace(model.weights, blocks=blocks))


def _blank():
    return planting.noise_head(planting.zeros)


def unguarded(model):
    """The induction head may look at position 0: (L - 1/2) / L without BOS (exact at noise=0), 1 with BOS."""
    return with_look(model, PLANTED["induction"], planting.looking_at_followers(_blank(), CROWD[2], guarded=False))


def naive_duplicate(model):
    """The duplicate-token head may look at itself: exactly 1/2 with one earlier copy, 2/3 with two."""
    return with_look(model, PLANTED["duplicate_token"], planting.looking_at_duplicates(_blank(), CROWD[0], barred=False))


def previous_token_silent(model):
    """The previous-token head's W_O is zero: it still looks back, but nobody hears it. Induction falls to its control."""
    layer, head = PLANTED["previous_token"]
    block = model.weights.blocks[layer]
    W_O = block.W_O.clone()
    W_O[head] = 0
    return _with_block(model, layer, replace(block, W_O=W_O))


def fixed_offset(model, period=50):
    """The induction head looks period - 1 back, whatever the tokens: 1 on the stripe, and 1 on its control too."""
    return with_look(model, PLANTED["induction"], planting.looking_back(_blank(), period - 1, CROWD[2]))


def keys_shifted(model):
    """The induction head matches positions, its keys shifted by one: it is a previous-token head, and no induction head."""
    return with_look(model, PLANTED["induction"], planting.looking_back(_blank(), 1, CROWD[2]))


COUNTERFACTUALS = {"previous_token_silent": previous_token_silent, "fixed_offset": fixed_offset,
                   "keys_shifted": keys_shifted}
