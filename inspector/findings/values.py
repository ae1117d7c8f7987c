"""What a weight brings: patterns weighted by the size of what is written, and the share that each key has in it.

A weight A[i, j] says how much a head looks from i at j; what it then writes is A[i, j] v_j W_O. A large weight on a small
value brings little (Kobayashi et al. 2020, "Attention is Not Only a Weight"; Elhage et al. 2021 weight by
||v_j||). Norms do not add up: keys may write in opposite directions. The signed share of the head's output o_i does:

    value_weighted    A[i, j] ||v_j W_O||                         0 or above, no upper limit; own scale for each model
    share             <A[i, j] v_j W_O, o_i> / ||o_i||^2          o_i = sum_j A[i, j] v_j W_O; the shares of a row sum to 1

v is the value with its bias, as the trace holds it. Everything here takes plain tensors, also attention made by other
tools (causal or not), and changes none of its inputs.
"""

import torch

from ..errors import ArgumentError
from ..model.tracing import attention_table


def _refuse_misfits(pattern, v, W_O):
    if pattern.dim() < 3 or v.shape[:-1] != (*pattern.shape[:-2], pattern.shape[-1]) or (
            W_O.shape[:-1] != (pattern.shape[-3], v.shape[-1])):
        raise ArgumentError(f"pattern {list(pattern.shape)}, v {list(v.shape)} and W_O {list(W_O.shape)} do not fit; "
                            "expected [head, query, key], [head, key, d_head] and [head, d_head, d_model]")


def value_weighted(pattern, v, W_O, *, values=False):
    """A[i, j] ||v_j W_O||, or A[i, j] ||v_j|| with `values`: [*batch, head, query, key], in the pattern's dtype.

    pattern: [*batch, head, query, key]; v: [*batch, head, key, d_head], with its bias; W_O: [head, d_head, d_model].

    Example: a head that looks at two keys alike, whose values have the norms 2 and 0, brings 1 and 0.

    Raises ArgumentError when shapes do not fit.
    """
    _refuse_misfits(pattern, v, W_O)
    v, W_O = v.to(pattern.dtype), W_O.to(pattern.dtype)
    norm = (v if values else v @ W_O).norm(dim=-1)                                           # [head, key]
    return pattern * norm[..., None, :]                                                      # [head, query, key]


def additive_shares(pattern, v, W_O):
    """<A[i, j] v_j W_O, o_i> / ||o_i||^2: each key's signed share in what the head writes at a query, float64 on the CPU.

    Shapes as for `value_weighted`; [*batch, head, query, key]. Rows sum to 1; a key that pulls the other way is below 0, and
    its counterpart may be above 1. A row is NaN where the head writes nothing at all; a cell without weight is 0.
    Inner products go through W_O W_O^T [d_head, d_head]: no tensor has both a query, a key and d_model.

    Raises ArgumentError when shapes do not fit.
    """
    _refuse_misfits(pattern, v, W_O)
    pattern, v, W_O = (tensor.cpu().double() for tensor in (pattern, v, W_O))
    gram = W_O @ W_O.transpose(-1, -2)                                                       # [head, d_head, d_head]
    z = pattern @ v                                                                          # [head, query, d_head]
    along = z @ gram                                                                         # [head, query, d_head]
    squared = (along * z).sum(-1)                                                            # [head, query], ||o_i||^2
    share = pattern * (along @ v.transpose(-1, -2)) / squared[..., None]                     # [head, query, key]
    return share.masked_fill(pattern == 0, 0)


VALUE_TOKENS = 64       # a report's value_weighted.csv is written up to here: 300,000 rows for GPT-2 small, 3 million at 200


def value_table(pattern, v, W_O):
    """Every cell at or below the diagonal as a row (layer, head, query, key, weight, value_weighted, share): a DataFrame.

    pattern: [layer, head, query, key]; v: [layer, head, pos, d_head]; W_O: one [head, d_head, d_model] for each layer.
    Numbers have the shortest decimals that read back as the same number of the pattern's dtype. Where the head writes
    nothing the share is NaN.

    Raises ArgumentError when shapes, or the numbers of layers, do not fit.
    """
    if not len(pattern) == len(v) == len(W_O):
        raise ArgumentError(f"pattern, v and W_O have {len(pattern)}, {len(v)} and {len(W_O)} layers; expected as many each")
    layers = list(zip(pattern, v, W_O, strict=True))
    table = attention_table(pattern)
    # The same cells in the same order, so that one function decides how numbers become text.
    for name, measure in (("value_weighted", value_weighted), ("share", additive_shares)):
        cells = torch.stack([measure(*layer).cpu() for layer in layers])                     # [layer, head, query, key]
        table[name] = attention_table(cells.to(pattern.dtype))["weight"]
    return table
