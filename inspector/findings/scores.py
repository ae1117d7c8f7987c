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
from .cells import MATCHING, SUMS, find_copies, score_cells

ENTROPIES = ("entropy", "entropy_relative")
SCORES = (*SUMS, *ENTROPIES)
CELLS_AT_ONCE = 1024          # cells whose q and k are looked up together: they stay in the caches


def entropy(pattern):
    """-sum_j A ln A of each row, in nats, with 0 ln 0 = 0. pattern: [..., query, key] -> [..., query]."""
    # torch.special.entr says the same, ten times slower on a CPU: it has no vector instructions.
    logs = pattern.clamp(min=torch.finfo(pattern.dtype).tiny).log_()
    return logs.mul_(pattern).sum(-1).neg_()                                                 # [..., query]


def _added(weights, cells, batch, n_query):
    """The weights of cells [cell, head] added where they belong: [*batch, head, query, score]."""
    total = weights.new_zeros(len(SUMS) * batch.numel() * n_query, weights.shape[-1])
    total.index_add_(0, cells.place, weights)
    return total.view(len(SUMS), *batch, n_query, weights.shape[-1]).movedim(0, -1).transpose(-3, -2)


def row_sums(pattern, cells):
    """The sums of cells that most scores are. pattern: a block [*batch, head, query, key 0..last row], cells: its Cells.

    Returns [*batch, head, query, score], scores in the order of `cells.SUMS`.
    """
    flat = pattern.reshape(-1, *pattern.shape[-3:])
    return _added(flat[cells.sequence, :, cells.row, cells.key], cells, pattern.shape[:-3], pattern.shape[-2])


def row_sums_of_products(q, k, scale, lse, cells):
    """The same without a pattern: each cell is exp(q_i . k_j * scale - lse_i), in lse's dtype. cells: of whole texts.

    q, k: [*batch, head, pos, d_head]; lse: [*batch, head, query], ln of the sum of exp(score) of each row.
    """
    *batch, n_head, n, d_head = q.shape
    queries, keys = (x.transpose(-3, -2).reshape(-1, n_head, d_head) for x in (q, k))        # [batch * pos, head, d_head]
    lse = lse.transpose(-2, -1).reshape(-1, n_head)                                          # [batch * pos, head]
    weights = lse.new_empty(len(cells.key), n_head)
    for a in range(0, len(weights), CELLS_AT_ONCE):
        sequence, row, key, _ = (part[a:a + CELLS_AT_ONCE] for part in cells)
        here = sequence * n + row
        products = queries.index_select(0, here).to(lse.dtype).mul_(keys.index_select(0, sequence * n + key))
        logs = products.sum(-1).mul_(scale).sub_(lse.index_select(0, here))
        weights[a:a + CELLS_AT_ONCE] = logs.clamp_(max=0).exp_()      # but for rounding, no weight is over 1
    return _added(weights, cells, torch.Size(batch), n)


def named(sums, spread):
    """{score: [*batch, head, query]} of whole rows from their sums [.., query, score] and their entropy [.., query]."""
    position = torch.arange(spread.shape[-1], device=spread.device, dtype=spread.dtype)
    most = torch.log1p(position).clamp(min=1e-12)
    return dict(zip(SUMS, sums.unbind(-1), strict=True)) | {"entropy": spread, "entropy_relative": spread / most}


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
    cells = score_cells(find_copies(symbols), 0, symbols.shape[-1])
    rows, chosen = named(row_sums(wide, cells), entropy(wide)), queries(symbols)
    return {name: mean_rows(rows[name], chosen[name]) for name in SCORES}


def uniform_rows(first_query, n_query, dtype=torch.float64):
    """Rows of the pattern of a head that looks everywhere alike: A[i, j] = 1 / (i + 1). [1, query, key 0..last row]."""
    query = torch.arange(first_query, first_query + n_query)[:, None]
    seen = torch.arange(first_query + n_query) <= query
    return (seen.to(dtype) / (query + 1))[None]
