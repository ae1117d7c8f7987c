"""The one forward pass: embeddings, layers one at a time, logits.

Trace, scan, ablation and the live page all run `layers`. Its three doors: `edits` (data, never a callback), `kernel`
(what is kept of the attention), and `start`/`stop` (run on from a residual stream). Texts of unequal length go into one
batch right-padded and are cut afterwards: causal attention never looks right, so no padding mask exists anywhere.
Architecture: Radford et al. 2019, section 2.3; GPT-2 as in transformers' `GPT2LMHeadModel`.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from ..checkpoint.activations import ACTIVATIONS
from ..checkpoint.tokens import refuse_unusable
from ..errors import ArgumentError, NumericsError, TextError
from .attention import attention_output, layer_norm, project
from .kernels import UNTOUCHED, grid

MLP_ROWS = 512                # positions that go through the MLP together


@dataclass(frozen=True)
class Layer:
    """One layer of one pass, batch axes first where there are any.

    In the last layer of a pass with `finish=False` everything after the pattern is None.
    """

    index: int                    # which layer, from 0
    resid_pre: Any                # [pos, d_model], what the layer reads
    q: Any                        # [head, pos, d_head]; None where an edit brings the pattern
    k: Any                        # [head, pos, d_head]; the same
    v: Any                        # [head, pos, d_head]
    kept: Any                     # what the kernel keeps: Grids, or a dict of row statistics
    z: Any                        # [head, pos, d_head], where a head ends (edits applied)
    resid_mid: Any                # [pos, d_model], after attention
    resid_post: Any               # [pos, d_model], after the MLP


def embed(model, ids):
    """Token plus position embeddings. ids: whole numbers [*batch, pos] -> [*batch, pos, d_model].

    Raises TextError for no token at all, more than n_positions, or ids outside the vocabulary.
    """
    config, weights = model.config, model.weights
    n = ids.shape[-1]
    refuse_unusable(ids.unique().tolist(), config.vocab_size)
    if n > config.n_positions:
        raise TextError(f"the text has {n} tokens; this model has positions for {config.n_positions}: "
                        "shorten it")
    ids = ids.to(weights.W_E.device)
    return torch.nn.functional.embedding(ids, weights.W_E) + weights.W_pos[:n]               # [pos, d_model]


def refuse_overflow(tensor, what, dtype):
    """Raise NumericsError when a tensor of the forward pass holds NaN or an infinity."""
    low, high = torch.aminmax(tensor)          # NaN passes through both, and nothing of the tensor's size is made
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise NumericsError(f"{what} holds values that are NaN or infinite in {dtype}"
                            + ("" if dtype in ("float32", "float64") else "; try dtype float32"))


def mlp(x, block, activation):
    """activation(x @ W_in + b_in) @ W_out + b_out. x: [pos, d_model], after its LayerNorm."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    # Some rows at a time: the hidden layer, four times as wide, then stays in the caches.
    for some, place in zip(rows.split(MLP_ROWS), out.split(MLP_ROWS), strict=True):
        hidden = ACTIVATIONS[activation](torch.addmm(block.b_in, some, block.W_in))          # [pos, d_mlp]
        torch.addmm(block.b_out, hidden, block.W_out, out=place)
    return out.view(x.shape)                                                                 # [pos, d_model]


def qkv(model, index, resid, parts="qkv"):
    """q, k and v of layer `index` from the residual stream it reads, or only `parts` of them: [head, pos, d_head] each."""
    config, block = model.config, model.weights.blocks[index]
    width, first = config.n_head * config.d_head, "qkv".index(parts)
    columns = slice(first * width, (first + len(parts)) * width)
    x = layer_norm(resid, block.ln_1_weight, block.ln_1_bias, config.layer_norm_epsilon)     # [pos, d_model]
    joined = project(x, block.W_QKV[:, columns], block.b_QKV[columns], len(parts) * config.n_head)
    return joined.tensor_split(len(parts), dim=-3)


@torch.no_grad()
def layers(model, resid, *, start=0, stop=None, kernel=grid, edits=MappingProxyType({}), finish=True):
    """Run layers `start` to `stop` (not included; None = to the end) on a residual stream, one frozen `Layer` at a time.

    resid: [*batch, pos, d_model], what layer `start` reads. edits: {layer: Edit}. With `finish=False` the last layer
    ends at its pattern: only its q and k are made. Raises ArgumentError for a layer that does not exist.
    """
    config = model.config
    stop = config.n_layer if stop is None else stop
    if not 0 <= start <= stop <= config.n_layer:
        raise ArgumentError(f"layers {start} to {stop} asked for; the model has layers 0 to {config.n_layer - 1}")
    unreachable = sorted(layer for layer in edits if not start <= layer < stop)
    if unreachable:
        raise ArgumentError(f"edits for layer(s) {unreachable}, which are not among the layers {start} to {stop - 1} run")
    for index in range(start, stop):
        block, edit = model.weights.blocks[index], edits.get(index, UNTOUCHED)
        # A pattern that an edit brings needs no q and k.
        looks = edit.pattern is None
        if not finish and index == stop - 1:
            q, k = qkv(model, index, resid, parts="qk") if looks else (None, None)
            _, kept = kernel(q, k, None, config.scale(index), edit)
            yield Layer(index, resid, q, k, None, kept, None, None, None)
            return
        q, k, v = qkv(model, index, resid) if looks else (None, None, *qkv(model, index, resid, parts="v"))
        z, kept = kernel(q, k, v, config.scale(index), edit)
        mid = resid + attention_output(z, block.W_O, block.b_O)                              # [pos, d_model]
        y = layer_norm(mid, block.ln_2_weight, block.ln_2_bias, config.layer_norm_epsilon)   # [pos, d_model]
        post = mid + mlp(y, block, config.activation_function)                               # [pos, d_model]
        refuse_overflow(post, f"the output of layer {index}", model.dtype)
        yield Layer(index, resid, q, k, v, kept, z, mid, post)
        resid = post


@torch.no_grad()
def unembed(model, resid):
    """Logits of a final residual stream: LayerNorm, then W_U. resid: [*batch, pos, d_model] -> [*batch, pos, vocab]."""
    weights = model.weights
    x = layer_norm(resid, weights.ln_f_weight, weights.ln_f_bias, model.config.layer_norm_epsilon)
    logits = x @ weights.W_U                                                                 # [pos, vocab]
    refuse_overflow(logits, "the logits", model.dtype)
    return logits


def losses(logits, ids):
    """Loss of each next token in nats: -log p(ids[i + 1] | ids[..i]). logits: [*batch, pos, vocab] -> [*batch, pos - 1]."""
    log_p = torch.log_softmax(logits[..., :-1, :].to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None].to(log_p.device)).squeeze(-1)                # [pos - 1]
