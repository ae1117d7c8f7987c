"""Which cells of a pattern each score adds up: for query i, keys j <= i.

    previous_token    (i, i-1)
    current_token     (i, i)
    first_token       (i, 0)
    duplicate_token   (i, j), j any earlier copy of the token at i
    induction         (i, j+1), j any earlier copy: what followed it (the stripe)

Which positions are copies is said by `symbols`: equal symbols mark copies of one token. Copies are found by sorting, so
that memory is linear in the text and a text where nothing repeats costs nothing.
"""

from typing import NamedTuple

import torch

POSITIONAL = ("previous_token", "current_token", "first_token")
MATCHING = ("duplicate_token", "induction")
SUMS = (*POSITIONAL, *MATCHING)


class Copies(NamedTuple):
    """Where equal symbols stand: positions sorted by symbol, equal ones side by side. A position is row * n + pos."""

    order: torch.Tensor      # [batch * pos], the position at each place of the sorted row
    place: torch.Tensor      # [batch * pos], the place of each position
    earlier: torch.Tensor    # [batch * pos], how many earlier copies each position has: they stand right before it
    n: int                   # positions of one row


class Cells(NamedTuple):
    """Cells of a block of rows, one entry each."""

    sequence: torch.Tensor   # which row of the batch
    row: torch.Tensor        # which row of the block
    key: torch.Tensor        # which column
    place: torch.Tensor      # where it is added: (score * batch + sequence) * rows of the block + row


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


def earlier_copies(copies, rows):
    """(position, earlier copy of its symbol) for every copy of the given positions, in their order: two vectors."""
    counts = copies.earlier[rows]
    query = rows.repeat_interleave(counts)                                                   # [pair]
    before = (counts.cumsum(0) - copies.place[rows]).repeat_interleave(counts)
    return query, copies.order[torch.arange(len(query), device=rows.device) - before]


def score_cells(copies, first_query, n_query, diagonal=None):
    """The Cells of all SUMS for rows first_query.. of every row of the batch.

    With `diagonal` induction is the plain diagonal (i, i - diagonal) instead, which some published protocols average.
    """
    n, total = copies.n, copies.order.numel()
    rows = torch.arange(total, device=copies.order.device).view(-1, n)[:, first_query:first_query + n_query].flatten()

    def back(steps):
        here = rows[rows % n >= steps]
        return here, here - steps

    again, copy = earlier_copies(copies, rows)
    pairs = [back(1), back(0), (rows, rows - rows % n), (again, copy),
             (again, copy + 1) if diagonal is None else back(diagonal)]
    score = torch.arange(len(SUMS), device=rows.device).repeat_interleave(
        torch.tensor([len(query) for query, _ in pairs], device=rows.device))
    query, key = (torch.cat(part) for part in zip(*pairs, strict=True))                      # [cell]
    sequence, row = query // n, query % n - first_query
    return Cells(sequence, row, key % n, (score * (total // n) + sequence) * n_query + row)


def copy_masks(symbols):
    """(earlier copy, follower of an earlier copy) as masks [query, key] of a whole text. symbols: [pos]."""
    n = len(symbols)
    query, copy = earlier_copies(find_copies(symbols), torch.arange(n, device=symbols.device))
    earlier, follower = torch.zeros(2, n, n, dtype=torch.bool, device=symbols.device)
    earlier[query, copy] = True
    follower[query, copy + 1] = True
    return earlier, follower
