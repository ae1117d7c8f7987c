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

import torch

from ..errors import ArgumentError

POSITIONAL = ("previous_token", "current_token", "first_token")
MATCHING = ("duplicate_token", "induction")
ENTROPIES = ("entropy", "entropy_relative")
SCORES = (*POSITIONAL, *MATCHING, *ENTROPIES)


def copies(symbols, first_query, n_query, n_key):
    """(earlier copy, follower of an earlier copy): two masks [*batch, query, key] for a block of rows.

    symbols: [*batch, pos]; rows are queries first_query.., columns keys 0..n_key-1.
    """
    query = torch.arange(first_query, first_query + n_query, device=symbols.device)[:, None]
    key = torch.arange(n_key, device=symbols.device)
    mine, theirs = symbols[..., first_query:first_query + n_query, None], symbols[..., None, :n_key]
    earlier = (mine == theirs) & (key < query)                                               # [query, key]
    follower = torch.zeros_like(earlier)
    follower[..., 1:] = earlier[..., :-1]
    return earlier, follower


def _diagonal(pattern, first_query, offset):
    """A[i, i - offset] of each row, 0 where i < offset. pattern: [..., query, key 0..last row]."""
    rows = torch.arange(pattern.shape[-2], device=pattern.device)
    key = rows + first_query - offset
    picked = pattern[..., rows, key.clamp(min=0)]
    return torch.where(key < 0, torch.zeros_like(picked), picked)                            # [..., query]


def row_scores(pattern, symbols, first_query=0, offset=None):
    """Every score of every row: {name: [*batch, head, query]}; rows that a score leaves out hold what they hold.

    pattern: [*batch, head, query, key], rows first_query.. over keys 0..first_query+rows-1 at least. With `offset` the
    dict has one more entry "offset": A[i, i - offset], the plain diagonal that some published protocols average.
    """
    n_query, n_key = pattern.shape[-2:]
    earlier, follower = copies(symbols, first_query, n_query, n_key)
    position = torch.arange(first_query, first_query + n_query, device=pattern.device)
    # One batched product over keys instead of a pattern-sized temporary for each mask.
    marks = torch.stack([earlier, follower], dim=-1).to(pattern.dtype)                       # [query, key, 2]
    sums = pattern.transpose(-3, -2) @ marks                                                 # [query, head, 2]
    entropy = torch.special.entr(pattern).sum(-1)                                            # [head, query]
    rows = {
        "previous_token": _diagonal(pattern, first_query, 1),
        "current_token": _diagonal(pattern, first_query, 0),
        "first_token": pattern[..., 0],
        "duplicate_token": sums[..., 0].transpose(-1, -2),
        "induction": sums[..., 1].transpose(-1, -2),
        "entropy": entropy,
        "entropy_relative": entropy / torch.log1p(position.to(entropy.dtype)).clamp(min=1e-12),
    }
    if offset is not None:
        rows["offset"] = _diagonal(pattern, first_query, offset)
    return rows


def queries(symbols):
    """{score: mask [*batch, query]}: which rows each score averages."""
    n = symbols.shape[-1]
    later = (torch.arange(n, device=symbols.device) > 0).expand(symbols.shape)
    # A symbol's second and later places are the rows with an earlier copy.
    order = torch.sort(symbols, dim=-1, stable=True)
    again = torch.zeros_like(later)
    again = again.scatter(-1, order.indices[..., 1:], order.values[..., 1:] == order.values[..., :-1])
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
    rows, chosen = row_scores(wide, symbols), queries(symbols)
    return {name: mean_rows(rows[name], chosen[name]) for name in SCORES}


def uniform_rows(n, dtype=torch.float64):
    """The pattern of a head that looks everywhere alike: A[i, j] = 1 / (i + 1). [1, n, n]."""
    return (torch.ones(n, n, dtype=dtype).tril() / torch.arange(1, n + 1, dtype=dtype)[:, None])[None]
