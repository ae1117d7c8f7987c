"""Every head's scores on many sequences, from row statistics alone: no grid is ever held.

Sequences go through together, some thousand positions at a time. Of each layer's attention only the sums of cells and the
entropy of every row are kept (`model.kernels.scan`, or `model.fused` where that is faster); the last layer makes only its
q and k. Memory is linear in the text.

Where the time goes for GPT-2 small's size, one text of 1,024 tokens, float32, 2 threads, profiled by hand: products of the
linear layers 58 %, q k and pattern v 10 %, entropy 7 %, softmax 5 %, copies into better layouts and of biases 5 %, GELU 5 %,
the rest many small operators. `scripts/benchmark.py scan` tells how near the whole is to the products' own limit. What was
tried and did not help, in ms a layer where nothing else is said, against what is done now:

    the fused operator in float32     26 to 27 with the entropy and single cells, against 24 to 28: no gain, so not used
    entropy as lse - q (A K)          6 to 10 more than z alone, against 6 for ln A in blocks that fit the caches
    torch.special.entr, torch.xlogy   28 to 33, against 6: neither has vector instructions
    blocks of 2**18, 2**21 cells      10 to 20 % slower in all than 2**20: more operators, or blocks that leave the caches
    oneDNN's fused linear and GELU    46 against 24 (float32), 9 against 6 (bfloat16) for the product alone; weights packed
                                      beforehand 25 against 24
    huge pages for grids              1.45 s against 1.33 s for all patterns
"""

from functools import lru_cache

import torch

from ..model.forward import embed, layers, refuse_overflow
from ..model.fused import fused, usable
from ..model.kernels import scan
from .cells import Cells, find_copies, score_cells
from .scores import SCORES, entropy, mean_rows, named, queries, row_sums, row_sums_of_products, uniform_rows

POSITIONS_AT_ONCE = 2048      # sequences computed together hold about this many positions: enough rows for fast products
UNIFORM_CELLS = 2**21         # cells of the even pattern made at a time, for the uniform levels (16 MB)
FEW_COPIES = 8                # earlier copies a position, up to which a fused kernel and single cells are faster
REMEMBERED = 2**20            # so many cells of earlier copies are looked up once for all layers (24 MB); more, each time


def without_first(pattern, first_query):
    """The pattern with column 0 removed (set to 0) and rows renormalised; row 0 has nothing left. Not in place."""
    rest = pattern.clone()
    rest[..., 0] = 0
    return rest / rest.sum(-1, keepdim=True).clamp(min=torch.finfo(rest.dtype).tiny)


def chosen_rows(symbols, rule, period):
    """{score: mask [*batch, query]} under a protocol."""
    masks = queries(symbols)
    position = torch.arange(symbols.shape[-1])
    if rule.drop_first:
        masks = {name: mask & (position >= (2 if name == "previous_token" else 1)) for name, mask in masks.items()}
    if rule.diagonal:
        # With row and column 0 removed the diagonal starts one later: query L-1 would look at the removed key 0.
        masks["induction"] = (position >= period - 1 + rule.drop_first).expand(symbols.shape)
    return masks


def kernel_name(model, symbols, rule):
    """"fused" where that is faster (`model.fused`) and the cells are few, each being a product of its own; else "scan"."""
    few = int(find_copies(symbols).earlier.sum()) <= FEW_COPIES * symbols.numel()
    return "fused" if usable(model) and few and not rule.drop_first else "scan"


def cells_of(symbols, rule, period, device="cpu"):
    """A function (first_query, n_query) -> Cells on a device, under a protocol. symbols: [sequence, pos], on the CPU."""
    copies = find_copies(symbols)
    # One lookup for all layers, where the cells are few: a text that repeats one token has half a grid of them.
    few = int(copies.earlier.sum()) <= REMEMBERED

    @lru_cache(maxsize=None if few else 1)
    def cells(first_query, n_query):
        found = score_cells(copies, first_query, n_query, diagonal=period - 1 if rule.diagonal else None)
        return Cells(*(part.to(device) for part in found))

    return cells


def scanning(cells, rule):
    """What a scan keeps of a block of rows under a protocol: the sums of cells and the entropy. cells: of `cells_of`."""
    def reduce(pattern, first_query):
        if rule.drop_first:
            pattern = without_first(pattern, first_query)
        return {"sums": row_sums(pattern, cells(first_query, pattern.shape[-2])), "entropy": entropy(pattern)}

    return reduce


def fusing(cells):
    """The same from q, k and each row's log-sum-exp and mean score, as the fused kernel gives them."""
    def reduce(q, k, scale, lse, expected):
        sums = row_sums_of_products(q, k, scale, lse, cells(0, q.shape[-2]))
        most = torch.arange(1, q.shape[-2] + 1, device=lse.device).to(lse.dtype).log()
        return {"sums": sums, "entropy": (lse - expected).clamp(min=0).minimum(most)}

    return reduce


def _layers_of(model, ids, symbols, rule, period, name):
    """Yield (layer, the queries that count) of one batch; name: of the kernel. Arguments as in `score_sequences`."""
    cells, masks = cells_of(symbols, rule, period, model.device), chosen_rows(symbols, rule, period)
    kernel = scan(scanning(cells, rule))
    if name == "fused":
        kernel = fused(fusing(cells), plain=kernel)
    for layer in layers(model, embed(model, ids), kernel=kernel, finish=False):
        yield layer, masks


def score_sequences(model, ids, symbols, rule, period, progress=None):
    """{score: [sequence, layer, head]}, float64 on the CPU: each sequence's mean over its queries.

    ids: [sequence, pos]; symbols: [sequence, pos], which cells are copies.
    """
    batches = list(zip(*(rows.split(max(1, POSITIONS_AT_ONCE // ids.shape[1])) for rows in (ids, symbols)), strict=True))
    name, n_layer, found = kernel_name(model, symbols, rule), model.config.n_layer, []
    steps = (step for batch in batches for step in _layers_of(model, *batch, rule, period, name))
    if progress is not None:
        steps = progress(steps, total=len(batches) * n_layer, desc="layers")
    for layer, masks in steps:
        refuse_overflow(layer.kept["entropy"], f"the pattern of layer {layer.index}", model.dtype)
        # Averaged in float64 on the CPU: not every device has it.
        rows = named(layer.kept["sums"].cpu().double(), layer.kept["entropy"].cpu().double())
        found.append({name: mean_rows(rows[name], masks[name]) for name in SCORES})
    return {name: torch.cat([torch.stack([row[name] for row in found[a:a + n_layer]], dim=1)
                             for a in range(0, len(found), n_layer)]) for name in SCORES}


def uniform_levels(symbols, rule, period):
    """{score: level of a head that looks everywhere alike}, the same cells, mean over sequences; symbols [sequence, pos]."""
    count, n = symbols.shape
    reduce, masks = scanning(cells_of(symbols, rule, period), rule), chosen_rows(symbols, rule, period)
    # Block by block, as any pattern, the widest first: [sequence, 1, query, key].
    rows = max(1, min(n, UNIFORM_CELLS // (count * n)))
    blocks = [reduce(uniform_rows(a, min(rows, n - a)).expand(count, -1, -1, -1), a) for a in reversed(range(0, n, rows))]
    blocks.reverse()
    rows = named(*(torch.cat([block[name] for block in blocks], dim=2) for name in ("sums", "entropy")))
    return {name: float(mean_rows(rows[name], masks[name]).nanmean()) for name in SCORES}
