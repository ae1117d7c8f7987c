"""How to go through the attention of one layer: keep the grids, or scan the rows and keep only what is asked.

A kernel is a function (q, k, v, scale, edit) -> (z, kept). `grid` keeps scores and pattern, `patterns` the pattern alone;
`scan(...)` makes one that keeps a statistic of every row. All build on the functions of `attention.py` and go block by
block, and an edit means the same to all.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..errors import ArgumentError
from .attention import MASKED, attention_scores, mask_future_, mix, softmax


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
BLOCK_CELLS = 2**20           # cells of the pattern made at a time: small enough for the caches, large enough to be busy
LEAST_ROWS = 32               # ... but never fewer rows than this


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


def block_rows(n_head, n):
    """How many rows of n positions are made at a time, for so many heads of all texts together.

    A quarter of them at most: of every block the half that is future is made and masked.
    """
    return max(LEAST_ROWS, min(n // 4, BLOCK_CELLS // max(1, n_head * n)))


def _blocks(q, k, v, scale, edit, rows=None):
    """All attention is made here, some rows a..b at a time, over keys 0..b. Yields (a, scores, pattern, mixed).

    Keys from b on are in the future of every row and are never computed. An edit that brings the pattern leaves nothing to
    compute of it: scores are None, and q and k may be. Mixed, the weighted sum of the values, is None where v is.
    """
    known = q if edit.pattern is None else edit.pattern
    n, lead = known.shape[-2], known.shape[:-2]
    rows = rows or block_rows(math.prod(lead), n)
    if edit.pattern is None:
        if math.frexp(scale)[0] == 0.5:
            # A power of two, 1/8 in GPT-2: taken into q it changes no bit of what is not subnormal, for one pass less.
            q, scale = q * scale, 1
        # Every block reads k and v again: they are laid out once the way matrix products read fastest.
        q, k = q.contiguous(), k.transpose(-1, -2).contiguous().transpose(-1, -2)
    v = None if v is None else v.contiguous()
    # The last block is the widest: every later one fits into the memory that it leaves, which else would fall to pieces.
    for a in reversed(range(0, n, rows)):
        b = min(a + rows, n)
        if edit.pattern is None:
            scores = attention_scores(q[..., a:b, :], k[..., :b, :], scale)                  # [head, rows, key]
            scores = mask_future_(_sharpen(scores, edit), first_query=a)
            pattern = softmax(scores)                                                        # [head, rows, key]
        else:
            scores, pattern = None, edit.pattern[..., a:b, :b]
        yield a, scores, pattern, None if v is None else mix(pattern, v[..., :b, :])


def _gather(z, part, first_query, n):
    """z [head, pos, d_head] with a block of its rows written; made at the first. In memory it lies position by position.

    Merging the heads is then a view. None stays None.
    """
    if part is None:
        return None
    if z is None:
        *lead, n_head, _, d_head = part.shape
        z = part.new_empty(*lead, n, n_head, d_head).transpose(-3, -2)
    z[..., first_query:first_query + part.shape[-2], :] = part
    return z


def _put(whole, rows, first_query, beyond):
    """Write a block of rows into a grid, and `beyond` into the keys after its last."""
    a, b = first_query, rows.shape[-1]
    whole[..., a:b, :b] = rows
    whole[..., a:b, b:] = beyond


def grid(q, k, v, scale, edit=UNTOUCHED, out=None):
    """Full scores and pattern of one layer: (z, Grids). q, k, v: [head, pos, d_head]; with v None, z is None.

    out: Grids of the right shapes and dtypes to write into, for a caller who keeps many: no second copy is made. Where the
    edit brings the pattern, the scores are None.
    """
    if edit.pattern is not None:
        z, pattern = patterns(q, k, v, scale, edit)
        return z, Grids(None, pattern)
    n, z = q.shape[-2], None
    for a, scores, pattern, part in _blocks(q, k, v, scale, edit):
        if out is None:
            out = Grids(*(rows.new_empty(*rows.shape[:-2], n, n) for rows in (scores, pattern)))
        _put(out.scores, scores, a, MASKED)
        _put(out.pattern, pattern, a, 0)
        z = _gather(z, part, a, n)
    return None if v is None else cut_heads(z, edit), out


def patterns(q, k, v, scale, edit=UNTOUCHED, out=None):
    """The same without the scores: (z, pattern [head, query, key])."""
    n, z = (q if edit.pattern is None else edit.pattern).shape[-2], None
    for a, _, pattern, part in _blocks(q, k, v, scale, edit):
        out = pattern.new_empty(*pattern.shape[:-2], n, n) if out is None else out
        _put(out, pattern, a, 0)
        z = _gather(z, part, a, n)
    return None if v is None else cut_heads(z, edit), out


def scan(reduce, block=None):
    """A kernel that makes a block of rows of the pattern at a time, reduces and drops them: memory linear in the text.

    `reduce(pattern, first_query)` gets rows [*batch, head, rows, key 0..last row] and returns a dict of tensors
    [*batch, head, rows, ...]: any statistic of whole rows. Kept is that dict with the rows joined: [head, query, ...].
    block: how many rows; None takes as many as `block_rows` says.
    """
    if block is not None and block < 1:
        raise ArgumentError(f"block is {block}; expected at least 1 row")

    def kernel(q, k, v, scale, edit=UNTOUCHED):
        known = q if edit.pattern is None else edit.pattern
        kept, z, query_axis, n = {}, None, known.dim() - 2, known.shape[-2]
        for a, _, pattern, part in _blocks(q, k, v, scale, edit, block):
            for name, rows in reduce(pattern, a).items():
                if name not in kept:
                    kept[name] = rows.new_empty(*rows.shape[:query_axis], n, *rows.shape[query_axis + 1:])
                # Copied at once: a view of the pattern would keep the whole block alive.
                kept[name].narrow(query_axis, a, pattern.shape[-2]).copy_(rows)
            z = _gather(z, part, a, n)
        return None if v is None else cut_heads(z, edit), kept

    return kernel
