"""What each score reads from a pattern: one number for every row (query), then the mean over the stated queries.

A is the pattern, i a query, j a key, j <= i; every score is at most 1 (entropy apart).

    score             queries                     cells summed in a row
    previous_token    1..N-1                      A[i, i-1]
    current_token     1..N-1                      A[i, i]
    first_token       1..N-1                      A[i, 0]
    duplicate_token   with an earlier copy        A[i, j], j any earlier copy of the token at i
    induction         the same                    A[i, j+1], j any earlier copy: what followed it (the stripe)
    entropy           1..N-1                      -sum_j A ln A, in nats
    entropy_relative  1..N-1                      entropy / ln(i+1), 1 for a uniform row

Query 0 is left out: it can only see itself. Names and definitions: Olsson et al. 2022 (prefix matching, previous token),
Wang et al. 2022 (duplicate token, appendix H), Elhage et al. 2021. Which positions are copies is said by `symbols`: equal
symbols mark copies of one token. For a text the symbols are its ids; for a control they are those of the repeated prompt,
so that the very same cells are read.

Everything here takes plain tensors, also patterns made by other tools, and changes none of its inputs.
"""

from typing import NamedTuple

import torch

from ..errors import ArgumentError

POSITIONAL = ("previous_token", "current_token", "first_token")
MATCHING = ("duplicate_token", "induction")
ENTROPIES = ("entropy", "entropy_relative")
SCORES = (*POSITIONAL, *MATCHING, *ENTROPIES)


class Copies(NamedTuple):
    """Where equal symbols stand, in memory linear in the text: positions sorted by symbol, equal symbols side by side."""

    order: torch.Tensor      # [batch * pos], the position (batch row * pos + pos) at each place of the sorted row
    place: torch.Tensor      # [batch * pos], the place of each position
    earlier: torch.Tensor    # [batch * pos], how many earlier copies each position has: they stand right before it
    n: int                   # positions of one row


def find_copies(symbols):
    """The copies of every symbol within its own row. symbols: [*batch, pos]."""
    n = symbols.shape[-1]
    rows = symbols.reshape(-1, n)
    ordered = torch.sort(rows, dim=-1, stable=True)
    place = torch.arange(n, device=symbols.device).expand_as(rows)
    fresh = torch.ones_like(rows, dtype=torch.bool)
    fresh[:, 1:] = ordered.values[:, 1:] != ordered.values[:, :-1]
    since = place - torch.where(fresh, place, 0).cummax(-1).values                           # [batch, place]
    base = torch.arange(0, rows.numel(), n, device=symbols.device)[:, None]
    order = (ordered.indices + base).flatten()
    back = torch.empty_like(order).scatter_(0, order, (place + base).flatten())
    return Copies(order, back, since.flatten()[back], n)


class Cells(NamedTuple):
    """Cells of a block of rows, one entry each: the earlier copies of every query's symbol, in the queries' order."""

    sequence: torch.Tensor   # which row of the batch
    row: torch.Tensor        # which row of the block
    key: torch.Tensor        # where the earlier copy is


def earlier_copies(copies, first_query=0, n_query=None):
    """The Cells of a block of rows. copies: as `find_copies` gives them."""
    n_query = copies.n - first_query if n_query is None else n_query
    rows = torch.arange(copies.order.numel(), device=copies.order.device).view(-1, copies.n)
    rows = rows[:, first_query:first_query + n_query].flatten()
    counts = copies.earlier[rows]
    query = rows.repeat_interleave(counts)                                                   # [pair]
    before = (counts.cumsum(0) - counts - copies.place[rows] + counts).repeat_interleave(counts)
    copy = copies.order[torch.arange(len(query), device=rows.device) - before]
    return Cells(query // copies.n, query % copies.n - first_query, copy % copies.n)


def copy_masks(symbols):
    """(earlier copy, follower of an earlier copy) as masks [query, key] of a whole text. symbols: [pos]."""
    n = len(symbols)
    cells = earlier_copies(find_copies(symbols))
    earlier, follower = torch.zeros(2, n, n, dtype=torch.bool, device=symbols.device)
    earlier[cells.row, cells.key] = True
    follower[cells.row, cells.key + 1] = True
    return earlier, follower


def _diagonal(pattern, first_query, offset):
    """A[i, i - offset] of each row, 0 where i < offset. pattern: [..., query, key 0..last row]."""
    picked = pattern.diagonal(first_query - offset, -2, -1)
    absent = pattern.shape[-2] - picked.shape[-1]
    return torch.nn.functional.pad(picked, (absent, 0)) if absent else picked                # [..., query]


def entropy(pattern):
    """-sum_j A ln A of each row, in nats, with 0 ln 0 = 0. pattern: [..., query, key] -> [..., query]."""
    # torch.special.entr says the same, ten times slower on a CPU: it has no vector instructions.
    logs = pattern.clamp(min=torch.finfo(pattern.dtype).tiny).log_()
    return logs.mul_(pattern).sum(-1).neg_()                                                 # [..., query]


def _matching(pattern, cells):
    """(duplicate_token, induction) of each row: the cells added up, and those one key to the right. [*batch, head, query]."""
    batch, (n_head, n_query, n_key) = pattern.shape[:-3], pattern.shape[-3:]
    flat = pattern.reshape(-1, n_head, n_query, n_key)
    keys = torch.stack([cells.key, cells.key + 1])
    weights = flat[cells.sequence, :, cells.row, keys]                                       # [2, pair, head]
    total = pattern.new_zeros(2, len(flat) * n_query, n_head)
    total.index_add_(1, cells.sequence * n_query + cells.row, weights)
    return total.view(2, *batch, n_query, n_head).transpose(-1, -2)


def row_scores(pattern, cells, first_query=0, offset=None):
    """Every score of every row: {name: [*batch, head, query]}; rows that a score leaves out hold what they hold.

    pattern: [*batch, head, query, key], rows first_query.. over keys 0..first_query+rows-1 at least; cells: the earlier
    copies of those rows' symbols, of `earlier_copies`. With `offset` the dict has one more entry "offset": A[i, i -
    offset], the plain diagonal that some published protocols average.
    """
    duplicate, follower = _matching(pattern, cells)
    spread = entropy(pattern)                                                                # [head, query]
    position = torch.arange(first_query, first_query + pattern.shape[-2], device=pattern.device)
    rows = {
        "previous_token": _diagonal(pattern, first_query, 1),
        "current_token": _diagonal(pattern, first_query, 0),
        "first_token": pattern[..., 0],
        "duplicate_token": duplicate,
        "induction": follower,
        "entropy": spread,
        "entropy_relative": spread / torch.log1p(position.to(spread.dtype)).clamp(min=1e-12),
    }
    if offset is not None:
        rows["offset"] = _diagonal(pattern, first_query, offset)
    return rows


def queries(symbols):
    """{score: mask [*batch, query]}: which rows each score averages."""
    later = (torch.arange(symbols.shape[-1], device=symbols.device) > 0).expand(symbols.shape)
    again = (find_copies(symbols).earlier > 0).view(symbols.shape)
    return {name: again if name in MATCHING else later for name in SCORES}


def mean_rows(rows, mask):
    """The mean over the masked rows: [*batch, head, query], [*batch, query] -> [*batch, head]; NaN where there is none."""
    chosen = mask[..., None, :].to(rows.dtype)
    total = torch.where(chosen > 0, rows, torch.zeros_like(rows)).sum(-1)
    return total / chosen.sum(-1)                                                            # 0 / 0 is NaN: no query


def pattern_scores(pattern, symbols):
    """{score: [*batch, head]} of any given patterns.

    pattern: [*batch, head, query, key], square; symbols: [*batch, pos] or [pos], the text's ids or the symbols of a
    repeated prompt. A list of patterns with a list of symbols gives a list, each as it would be alone.

    Example: a head that always looks at the token before scores previous_token 1; uniform attention over N rows scores
    (H_N - 1) / (N - 1) with H_N = 1 + 1/2 + ... + 1/N.

    Raises ArgumentError when shapes do not fit.
    """
    if isinstance(pattern, list | tuple):
        if len(pattern) != len(symbols):
            raise ArgumentError(f"{len(pattern)} patterns but {len(symbols)} rows of symbols")
        return [pattern_scores(p, s) for p, s in zip(pattern, symbols, strict=True)]
    pattern, symbols = torch.as_tensor(pattern), torch.as_tensor(symbols)
    if pattern.dim() < 3 or pattern.shape[-1] == 0 or symbols.shape[:-1] not in ((), pattern.shape[:-3]) or (
            len({*pattern.shape[-2:], *symbols.shape[-1:]}) != 1):
        raise ArgumentError(f"pattern {list(pattern.shape)} and symbols {list(symbols.shape)} do not fit; expected "
                            "[*batch, head, query, key] with query = key = number of symbols")
    if symbols.dim() == 1:
        symbols = symbols.expand(*pattern.shape[:-3], -1)
    wide = pattern if pattern.dtype == torch.float64 else pattern.float()
    rows, chosen = row_scores(wide, earlier_copies(find_copies(symbols))), queries(symbols)
    return {name: mean_rows(rows[name], chosen[name]) for name in SCORES}


def uniform_rows(first_query, n_query, dtype=torch.float64):
    """Rows of the pattern of a head that looks everywhere alike: A[i, j] = 1 / (i + 1). [1, query, key 0..last row]."""
    query = torch.arange(first_query, first_query + n_query)[:, None]
    seen = torch.arange(first_query + n_query) <= query
    return (seen.to(dtype) / (query + 1))[None]
