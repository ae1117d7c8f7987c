"""Two ways to go through the attention of one layer: keep the grids, or scan the rows and keep only what is asked.

A kernel is a function (q, k, v, scale, edit) -> (z, kept). `grid` is one; `scan(...)` makes one. Both build on the
functions of `attention.py`, and an edit means the same to both.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..errors import ArgumentError
from .attention import attention_scores, mask_future, mix, softmax


@dataclass(frozen=True)
class Edit:
    """A change to one layer's heads, as data. None means untouched.

    sharpness: [*batch, head], multiplies the scores (0 = uniform, 1 = the model).
    pattern:   [*batch, head, query, key], stands in for the softmax (Olsson et al. 2022, frozen patterns).
    keep:      [*batch, head], 1 keeps z, 0 cuts it, before W_O.
    fill:      [*batch, head, pos, d_head] or anything that broadcasts to it: what a cut head says instead; None = zeros.
    """

    sharpness: Any = None
    pattern: Any = None
    keep: Any = None
    fill: Any = None


UNTOUCHED = Edit()


class Grids(NamedTuple):
    """What the grid kernel keeps: scores (-inf above the diagonal) and pattern, both [head, query, key]."""

    scores: torch.Tensor
    pattern: torch.Tensor


def _sharpen(scores, edit):
    return scores if edit.sharpness is None else scores * edit.sharpness[..., None, None]


def cut_heads(z, edit):
    """z with the heads whose `keep` is below 1 replaced by `fill`: keep * z + (1 - keep) * fill. [head, pos, d_head]."""
    if edit.keep is None:
        if edit.fill is not None:
            raise ArgumentError("an edit has a fill but no keep: say which heads are cut")
        return z
    keep = edit.keep[..., None, None].to(z.dtype)
    # where() and not a product: a head cut for having infinite values must not leave NaN behind.
    kept = torch.where(keep == 0, torch.zeros_like(z), keep * z)
    return kept if edit.fill is None else kept + (1 - keep) * edit.fill


def grid(q, k, v, scale, edit=UNTOUCHED):
    """Full scores and pattern of one layer: (z, Grids). q, k, v: [head, pos, d_head]; with v None, z is None."""
    scores = mask_future(_sharpen(attention_scores(q, k, scale), edit))                      # [head, query, key]
    pattern = softmax(scores) if edit.pattern is None else edit.pattern
    z = None if v is None else cut_heads(mix(pattern, v), edit)
    return z, Grids(scores, pattern)


def scan(reduce, block=128):
    """A kernel that makes `block` rows of the pattern at a time, reduces and drops them: memory linear in the text.

    `reduce(pattern, first_query)` gets rows [*batch, head, rows, key 0..last row] and returns a dict of tensors
    [*batch, head, rows, ...]: any statistic of whole rows. Kept is that dict with the rows joined: [head, query, ...].
    """
    if block < 1:
        raise ArgumentError(f"block is {block}; expected at least 1 row")

    def kernel(q, k, v, scale, edit=UNTOUCHED):
        parts, mixed = [], []
        for a in range(0, q.shape[-2], block):
            b = min(a + block, q.shape[-2])
            if edit.pattern is None:
                scores = attention_scores(q[..., a:b, :], k[..., :b, :], scale)              # [head, rows, key]
                pattern = softmax(mask_future(_sharpen(scores, edit), first_query=a))
            else:
                pattern = edit.pattern[..., a:b, :b]
            parts.append(reduce(pattern, a))
            if v is not None:
                mixed.append(mix(pattern, v[..., :b, :]))                                    # [head, rows, d_head]
        query_axis = q.dim() - 2
        kept = {name: torch.cat([part[name] for part in parts], dim=query_axis) for name in parts[0]}
        z = None if v is None else cut_heads(torch.cat(mixed, dim=-2), edit)
        return z, kept

    return kernel
