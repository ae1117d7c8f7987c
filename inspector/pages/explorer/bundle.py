"""What the explorer stores of texts: plain JSON, its large parts packed as text (see `packing`).

Weights are stored as logarithms, never as themselves: softmax(beta s) is p^beta / sum p^beta, so that the pattern at every
sharpness, its scores and its entropy follow from one array. Up to LOG_TOKENS tokens that is, for each head, the triangle of
s = log p - max log p of its row, in half precision; beyond that it is q and k, from which the page makes one head at a time.

What this costs in accuracy is measured here on every cell and stored with the text. `log`: an error of s is at most
ROUNDING |s|, as if that key were a little sharper or blunter, so no weight is off by more than `bound(n)` at any sharpness.
`qk`: the largest error E of a score; at sharpness beta no weight is off by more than beta E / 2.
"""

import math
from itertools import combinations

import numpy as np
import torch

from .. import cells, palette, words
from .packing import LOWEST, ROUNDING, halves, packed

LOG_TOKENS = 256        # up to here the triangle of logarithms is stored, beyond it q and k
MOVES_TOKENS = 64       # up to here q, k, v of every head are stored, beyond it those of MOVES_HEADS heads
MOVES_HEADS = 8
THUMB = 32              # cells a side of a head's small picture, at most
RANKED = ("previous_token", "duplicate_token", "induction")


def bound(n):
    """How far a weight of a row of at most n keys can be off at any sharpness, when s is stored in half precision.

    The worst case is one key against n - 1 others that are all alike and all rounded the same way, which is what a
    sharpness off by ROUNDING does: p E|s| ROUNDING, at its largest over how far the others lie behind.
    """
    w = np.geomspace(1e-3, 10, 2001)
    return float((w * np.log(max(n - 1, 1) / w).clip(0) / (1 + w) ** 2).max() * ROUNDING)


def numbers(tensor):
    """A tensor as a NumPy array, float64 as it is and all else as float32."""
    tensor = tensor.detach().cpu()
    return tensor.numpy() if tensor.dtype == torch.float64 else tensor.float().numpy()


def thumbs(pattern):
    """Small pictures of all heads: uint8 [layer, head, side, side], 255 sqrt(weight); blocks show their largest weight."""
    small = [cells.pool(cells.mask(each), cells.block_size(each.shape[-1], THUMB)) for each in pattern]
    return np.stack([np.rint(255 * np.sqrt(np.nan_to_num(numbers(each)).clip(0, 1))) for each in small]).astype(np.uint8)


def softmax(s):
    """Row weights of scores, float64; masked ones are -inf."""
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True)


def log_layer(scores, pattern):
    """({head: packed triangle}, [head, query] row maxima, largest error of a weight) of one layer.

    scores, pattern: [head, query, key], float; the scores masked with -inf.
    """
    top = scores.max(-1)                                                                     # [head, query]
    s = (scores.astype(np.float64) - top[..., None]).clip(LOWEST, 0).astype(np.float16)      # [head, query, key]
    query, key = np.tril_indices(s.shape[-1])
    masked = np.where(np.tri(s.shape[-1], dtype=bool), s.astype(np.float64), -np.inf)
    error = np.abs(softmax(masked) - pattern).max()
    return [packed(each) for each in s[:, query, key]], top, float(error)


def qk_layer(q, k, factor, scores):
    """([packed q and k], [[unit of q, unit of k]], largest error of a score) of one layer.

    q, k: [head, pos, d_head]; factor: [head], what q.k is multiplied by; scores: [head, query, key].
    """
    text, units, error = [], [], 0.0
    below = np.tri(q.shape[-2], dtype=bool)
    for own_q, own_k, own, mine in zip(q, k, factor, scores, strict=True):
        (half_q, unit_q), (half_k, unit_k) = halves(own_q), halves(own_k)
        made = half_q.astype(np.float32) @ half_k.astype(np.float32).T * (unit_q * unit_k * own)
        error = max(error, float(np.abs(made - mine)[below].max()))
        text.append(packed(np.stack([half_q, half_k])))
        units.append([unit_q, unit_k])
    return text, units, error


def ranked_heads(table, count=MOVES_HEADS):
    """The heads whose largest score of previous token, duplicate token and induction is highest: [(layer, head)]."""
    best = table[list(RANKED)].max(axis=1)
    order = best.sort_values(ascending=False, kind="stable").index[:count]
    return list(zip(table.loc[order, "layer"].tolist(), table.loc[order, "head"].tolist(), strict=True))


def opening(table):
    """The head that a page opens with: the one of the highest induction score, where there is any, else of the others."""
    known = table["induction"].notna().any()
    best = table["induction"].idxmax() if known else table[list(RANKED)].max(axis=1).idxmax()
    return words.head_name(int(table.loc[best, "layer"]), int(table.loc[best, "head"]))


def score_lists(table):
    """{column: [[a number or None for each head] for each layer]} of a table of heads."""
    def grid(column):
        values = table.pivot(index="layer", columns="head", values=column).to_numpy(dtype=float)
        return [[None if math.isnan(v) else round(v, 6) for v in row] for row in values.tolist()]

    return {score.column: grid(score.column) for score in words.SCORES}


def moves_of(trace, layer, head):
    """q, k and v of one head and the exact weights of its rows: {"units", "vectors", "exact"}, packed."""
    parts = [halves(numbers(tensor[layer, head])) for tensor in (trace.q, trace.k, trace.v)]
    query, key = np.tril_indices(len(trace.labels))
    return {"units": [unit for _, unit in parts], "vectors": packed(np.stack([half for half, _ in parts])),
            "exact": packed(numbers(trace.pattern[layer, head])[query, key])}


def text_parts(trace, on_text, moves=None):
    """What is stored of one text: a dict of plain JSON.

    trace: a Trace with its model and all its tensors; on_text: the table of heads on this text; moves: [(layer, head)] whose
    q, k and v are stored (None: all up to MOVES_TOKENS tokens, else the MOVES_HEADS highest scoring).
    """
    model, n = trace.model, len(trace.labels)
    config, blocks = model.config, model.weights.blocks
    as_log = n <= LOG_TOKENS
    found = {"head": {}, "tops": [], "errors": []}
    value_norms, writes = [], []
    factors = factors_of(trace)
    for layer in range(config.n_layer):
        scores = numbers(trace.scores[layer])
        if as_log:
            text, top, error = log_layer(scores, numbers(trace.pattern[layer]))
            found["tops"].append(top)
            stored = [{"log": each} for each in text]
        else:
            text, units, error = qk_layer(numbers(trace.q[layer]), numbers(trace.k[layer]), factors[layer], scores)
            stored = [{"qk": each, "units": own} for each, own in zip(text, units, strict=True)]
        found["errors"].append(error)
        found["head"] |= {words.head_name(layer, head): each for head, each in enumerate(stored)}
        W_O = blocks[layer].W_O
        value_norms.append(numbers((trace.v[layer] @ W_O).norm(dim=-1)))                     # [head, key]
        writes.append(numbers((trace.z[layer] @ W_O).norm(dim=-1)))                          # [head, query]
    if moves is None:
        every = [(layer, head) for layer in range(config.n_layer) for head in range(config.n_head)]
        moves = every if n <= MOVES_TOKENS else ranked_heads(on_text)
    for layer, head in moves:
        found["head"][words.head_name(layer, head)]["moves"] = moves_of(trace, layer, head)
    small = thumbs(trace.pattern)
    return {
        "labels": [words.directed(label) for label in trace.labels], "n": n, "kind": "log" if as_log else "qk",
        "title": words.headline("".join(trace.texts) or " ".join(trace.labels)),
        "error": {"measured": max(found["errors"]), "bound": bound(n) if as_log else None},
        "factors": factors.tolist(), "d_head": config.d_head, "scores": score_lists(on_text),
        "side": small.shape[-1], "block": cells.block_size(n, THUMB), "thumbs": packed(small),
        "tops": packed(np.stack(found["tops"]).astype(np.float32)) if as_log else None,
        "value_norms": packed(np.stack(value_norms).astype(np.float32)),
        "writes": packed(np.stack(writes).astype(np.float32)),
        "stream": packed(numbers(trace.resid_pre.norm(dim=-1)).astype(np.float32)), "heads": found["head"]}


def factors_of(trace):
    """What q.k is multiplied by in each head, [layer, head]: the config's scale times the trace's own sharpness."""
    config, edits = trace.model.config, trace.run["arguments"]["edits"]
    sharpness = [edits.get(str(layer), {}).get("sharpness", [1.0] * config.n_head) for layer in range(config.n_layer)]
    return np.array([[config.scale(layer)] for layer in range(config.n_layer)]) * np.array(sharpness)


def cosines(one, other):
    """Cosine of the residual stream of each token of one text and each of another, by layer: packed halves.

    [pos, pos of the other, n_layer + 1]; the first entry is the embedding, entry l what layer l reads, the last the end.
    """
    def stream(trace):
        resid = torch.cat([trace.resid_pre, trace.resid_post[-1:]]).double()                 # [layer + 1, pos, d_model]
        return resid / resid.norm(dim=-1, keepdim=True)

    between = torch.einsum("lid,ljd->ijl", stream(one), stream(other))
    return packed(numbers(between).astype(np.float16))


COSINES = 2**21         # cosines of two texts that a page stores, at most: 4 MB


def bundle(traces, on_texts, *, repeats=None, moves=None, name=None):
    """All that a page needs of one or more texts of one model, as plain JSON.

    traces: Traces with all their tensors and their model; on_texts: the table of heads on each; repeats: the table of
    heads on repeated random tokens, or None; moves: see `text_parts`; name: the model's name on the page.
    """
    config = traces[0].model.config
    between = {f"{a},{b}": cosines(traces[a], traces[b]) for a, b in combinations(range(len(traces)), 2)
               if len(traces[a].labels) * len(traces[b].labels) * (config.n_layer + 1) <= COSINES}
    return {
        "model": name or traces[0].model.files.source, "n_layer": config.n_layer, "n_head": config.n_head,
        "d_head": config.d_head, "dtype": traces[0].model.dtype,
        "names": [{"column": s.column, "title": s.title, "means": s.means} for s in words.SCORES],
        "opening": opening(on_texts[0] if repeats is None else repeats),
        "repeats": None if repeats is None else score_lists(repeats),
        "verdicts": {} if repeats is None else {
            words.head_name(int(row.layer), int(row.head)): words.verdict_words(row.verdict)
            for row in repeats.itertuples() if row.verdict},
        "ramps": {theme: [[round(255 * c) for c in palette.colour(theme, i / 32)] for i in range(33)]
                  for theme in ("light", "dark")},
        "signed": {theme: [[round(255 * c) for c in palette.signed(theme, i / 16 - 1)] for i in range(33)]
                   for theme in ("light", "dark")},
        "hint": words.HINT, "papers": list(words.PAPERS), "log_tokens": LOG_TOKENS, "moves_tokens": MOVES_TOKENS,
        "texts": [text_parts(trace, table, moves) for trace, table in zip(traces, on_texts, strict=True)],
        "cosines": between}
