"""What the explorer stores of texts: plain JSON, its large parts packed as text (see `packing`).

A head is stored in one of three ways, from each of which follow its scores (but for what is the same for all keys of a
query), its pattern at every sharpness (softmax(beta s) is p^beta / sum p^beta) and its entropy:

log     up to LOG_TOKENS tokens: the triangle of s = log p - max log p of its row, in half precision. An error of s is
        at most ROUNDING |s|, as if that key were a little sharper or blunter: no weight is off by more than `bound(n)`,
        at any sharpness from 0.001 to 1,000. Where keys are left out the others keep their rounding: the page works out
        how far that row can be off (`rowError` in grids.js).
moves   of chosen heads: q, k and v in half precision, and up to LOG_TOKENS tokens the weights themselves, exact. s is
        then their logarithm; a head with weights too small for that (0, or subnormal) has `log` besides.
qk      beyond LOG_TOKENS tokens: q and k, in half precision; the page makes one head at a time. With E the largest error
        of a score, no weight is off by more than beta E / 2 at sharpness beta.

What this costs in accuracy is measured here on every cell and stored with the text.
"""

import math
from itertools import combinations

import numpy as np
import pandas as pd
import torch

from ...findings.scores import pattern_scores
from ...model.attention import head_outputs, softmax
from .. import cells, palette, tables, words
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


def log_head(scores, pattern, exact):
    """({"log": packed triangle} or {}, largest error of a weight) of one head.

    scores, pattern: [query, key], float, the scores masked with -inf; exact: whether the weights are stored as they are, so
    that nothing else is needed if all of them are normal numbers.
    """
    below = np.tri(len(scores), dtype=bool)
    if exact and pattern[below].min() >= np.finfo(pattern.dtype).tiny:
        part = pattern.astype(np.float64) / pattern.max(-1, keepdims=True)
        s, stored = np.log(part, where=below, out=np.full_like(part, -np.inf)).astype(np.float32), {}
    else:
        behind = scores.astype(np.float64) - scores.max(-1, keepdims=True)
        s = np.where(below, behind.clip(LOWEST, 0), -np.inf).astype(np.float16)                  # [query, key]
        stored = {"log": packed(s[below])}
    return stored, float(np.abs(softmax(torch.from_numpy(s.astype(np.float64))).numpy() - pattern).max())


def qk_head(q, k, factor, scores):
    """({"qk": packed q and k, "units": theirs}, largest error of a score) of one head.

    q, k: [pos, d_head]; factor: what q.k is multiplied by; scores: [query, key].
    """
    (half_q, unit_q), (half_k, unit_k) = halves(q), halves(k)
    made = half_q.astype(np.float32) @ half_k.astype(np.float32).T * (unit_q * unit_k * factor)
    error = np.abs(made - scores)[np.tri(len(q), dtype=bool)].max()
    return {"qk": packed(np.stack([half_q, half_k])), "units": [unit_q, unit_k]}, float(error)


def ranked_heads(table, count=MOVES_HEADS):
    """The heads whose largest score of previous token, duplicate token and induction is highest: [(layer, head)]."""
    best = table[list(RANKED)].max(axis=1)
    order = best.sort_values(ascending=False, kind="stable").index[:count]
    return list(zip(table.loc[order, "layer"].tolist(), table.loc[order, "head"].tolist(), strict=True))


def opening(table):
    """The head that a page opens with: of the highest induction score, else of the others, else the first."""
    known = table["induction"].notna().any()
    best = (table["induction"] if known else table[list(RANKED)].max(axis=1).fillna(0)).idxmax()
    return words.head_name(int(table.loc[best, "layer"]), int(table.loc[best, "head"]))


def text_scores(trace):
    """The scores of all heads on one text, a row a head, from the patterns of its trace: also where edits changed them."""
    n_layer, n_head = trace.pattern.shape[:2]
    found = [pattern_scores(layer, trace.ids) for layer in trace.pattern]                    # {score: [head]} of each layer
    return pd.DataFrame({"layer": np.repeat(np.arange(n_layer), n_head), "head": np.tile(np.arange(n_head), n_layer),
                         **{name: torch.cat([scores[name] for scores in found]).cpu().double() for name in found[0]}})


def score_lists(table):
    """{column: [[a number or None for each head] for each layer]} of a table of heads."""
    def grid(column):
        return [[None if math.isnan(v) else round(v, 6) for v in row] for row in tables.grid_of(table, column).tolist()]

    return {score.column: grid(score.column) for score in words.SCORES}


def moves_of(trace, layer, head, exact):
    """q, k and v of one head and, with `exact`, the weights of its rows: {"units", "vectors", "exact"}, packed."""
    parts = [halves(numbers(tensor[layer, head])) for tensor in (trace.q, trace.k, trace.v)]
    below = np.tri(len(trace.labels), dtype=bool)
    return {"units": [unit for _, unit in parts], "vectors": packed(np.stack([half for half, _ in parts])),
            **({"exact": packed(numbers(trace.pattern[layer, head])[below])} if exact else {})}


def heads_parts(trace, moves, factors, progress=None):
    """({head: what is stored of it}, largest error of a weight or, beyond LOG_TOKENS tokens, of a score).

    moves: the (layer, head) whose q, k and v are stored; factors: [layer, head], what q.k is multiplied by.
    """
    found, errors, as_log = {}, [], len(trace.labels) <= LOG_TOKENS
    steps = range(len(factors))
    for layer in steps if progress is None else progress(steps, total=len(steps), desc="layers packed"):
        q, k, scores, pattern = (tensor[layer] for tensor in (trace.q, trace.k, trace.scores, trace.pattern))
        for head, factor in enumerate(factors[layer]):
            own = (layer, head) in moves
            if as_log:
                stored, error = log_head(numbers(scores[head]), numbers(pattern[head]), own)
            else:
                stored, error = qk_head(numbers(q[head]), numbers(k[head]), factor, numbers(scores[head]))
            if own:
                stored = {**(stored if as_log else {}), "moves": moves_of(trace, layer, head, as_log)}
            found[words.head_name(layer, head)] = stored
            errors.append(error)
    return found, max(errors)


def text_parts(trace, on_text, moves=None, progress=None):
    """What is stored of one text: a dict of plain JSON.

    trace: a Trace with its model and all its tensors; on_text: the table of heads on this text; moves: [(layer, head)] whose
    q, k and v are stored (None: all up to MOVES_TOKENS tokens, else the MOVES_HEADS highest scoring).
    """
    config, blocks, n = trace.model.config, trace.model.weights.blocks, len(trace.labels)
    if moves is None:
        every = [(layer, head) for layer in range(config.n_layer) for head in range(config.n_head)]
        moves = every if n <= MOVES_TOKENS else ranked_heads(on_text)
    factors, small, as_log = factors_of(trace), thumbs(trace.pattern), n <= LOG_TOKENS
    stored, error = heads_parts(trace, set(moves), factors, progress)

    def singles(tensor):
        return packed(numbers(tensor).astype(np.float32))

    def lengths(vectors):
        """Of what each layer's W_O makes of [layer, head, pos, d_head]: [layer, head, pos]. Never in half precision."""
        kind = trace.pattern.dtype
        return singles(torch.stack([head_outputs(own.to(kind), block.W_O.to(kind)).norm(dim=-1)
                                    for own, block in zip(vectors, blocks, strict=True)]))

    return {
        "labels": [words.directed(label) for label in trace.labels], "n": n, "kind": "log" if as_log else "qk",
        "title": words.title(trace.texts, trace.labels),
        "error": {"measured": error, "bound": bound(n) if as_log else None},
        "factors": factors.tolist(), "cut": cut_heads(trace), "scores": score_lists(on_text),
        "side": small.shape[-1], "thumbs": packed(small),
        "tops": singles(trace.scores.amax(-1)) if as_log else None,
        "value_norms": lengths(trace.v), "writes": lengths(trace.z),
        "stream": singles(trace.resid_pre.norm(dim=-1, dtype=trace.pattern.dtype)), "heads": stored}


def factors_of(trace):
    """What q.k is multiplied by in each head, [layer, head]: the config's scale times the trace's own sharpness."""
    config, edits = trace.model.config, trace.run["arguments"]["edits"]
    sharpness = [edits.get(str(layer), {}).get("sharpness", [1.0] * config.n_head) for layer in range(config.n_layer)]
    return np.array([[config.scale(layer)] for layer in range(config.n_layer)]) * np.array(sharpness)


def cut_heads(trace):
    """The heads, 5.1, whose own z a trace's edits keep from W_O."""
    edits = trace.run["arguments"]["edits"]
    return [words.head_name(int(layer), head) for layer, edit in edits.items()
            for head, kept in enumerate(edit.get("keep", ())) if kept < 1]


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


def bundle(traces, on_texts, *, repeats=None, moves=None, name=None, table=None, progress=None):
    """All that a page needs of one or more texts of one model, as plain JSON.

    traces: Traces with all their tensors and their model; on_texts: the table of heads on each; repeats: the table of
    heads on repeated random tokens, or None; moves: see `text_parts`; name: the model's name on the page; table: the
    address of a table with the exact weights of the first text, where there is one.
    """
    config, first = traces[0].model.config, on_texts[0] if repeats is None else repeats
    if moves:       # whose moves were asked for is what is to be looked at
        first = first[[pair in set(moves) for pair in zip(first["layer"], first["head"], strict=True)]]
    between = {f"{a},{b}": cosines(traces[a], traces[b]) for a, b in combinations(range(len(traces)), 2)
               if len(traces[a].labels) * len(traces[b].labels) * (config.n_layer + 1) <= COSINES}
    return {
        "model": name or traces[0].model.files.source, "n_layer": config.n_layer, "n_head": config.n_head,
        "d_head": config.d_head, "dtype": traces[0].model.dtype,
        "names": [{"column": s.column, "title": s.title} for s in words.SCORES],
        "opening": opening(first),
        "repeats": None if repeats is None else score_lists(repeats),
        "verdicts": {} if repeats is None else {
            words.head_name(int(row.layer), int(row.head)): words.verdict_words(row.verdict)
            for row in repeats.itertuples() if row.verdict},
        "ramps": {theme: [[round(255 * c) for c in palette.colour(theme, i / 32)] for i in range(33)]
                  for theme in ("light", "dark")},
        "signed": {theme: [[round(255 * c) for c in palette.signed(theme, i / 16 - 1)] for i in range(33)]
                   for theme in ("light", "dark")},
        "table": table, "log_tokens": LOG_TOKENS, "moves_tokens": MOVES_TOKENS,
        "texts": [text_parts(trace, scores, moves, progress) for trace, scores in zip(traces, on_texts, strict=True)],
        "cosines": between}
