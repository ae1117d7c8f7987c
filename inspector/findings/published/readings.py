"""Ours: the published measurements made on a model, each the way it was published.

A family is a set of prompts or weights, read once; a column is one number of it a head. READINGS[family](model, inputs)
gives {column: Reading}; `inputs` are ids and texts that a published run names.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ...model.forward import embed, layers, losses, unembed
from ...model.tracing import trace
from ..attribution import attribute
from ..cells import copy_masks
from ..circuits.composition import KINDS, compositions, ends, meetings
from ..circuits.eigen import eigenvalue_ratio, product
from ..circuits.folding import folded
from ..copying import copying
from ..direct import double
from ..prompts import draw, symbols
from ..protocols import PROTOCOLS, id_range
from ..scores import pattern_scores
from ..scoring import score_sequences
from ..table import entries_per_query


@dataclass(frozen=True, repr=False)
class Reading:
    """One number a head; or a layer, position or pair of heads, which have names.

    mean: [layer, head], or [name], float64. spread: the same shape, standard deviation over sequences, None where nothing
    is random. n: number of sequences. names: what each number of [name] belongs to, None for [layer, head].
    """

    mean: Any
    spread: Any = None
    n: int = 1
    names: list | None = None


def over_sequences(values, names=None):
    """The Reading of [sequence, ...] values."""
    return Reading(values.mean(0), values.std(0) if len(values) > 1 else None, len(values), names)


# -- repeated random tokens --------------------------------------------------------------------------------------------

def on_rows(model, ids, repeated, rule, period):
    """{score: Reading} of rows [sequence, pos] of repeats under a Protocol."""
    found = score_sequences(model, ids, repeated.expand(len(ids), -1), rule, period)
    return {name: over_sequences(values) for name, values in found.items()}


def loss_by_position(model, ids):
    """Reading [pos - 1]: loss of tokens 1, 2, ... in nats."""
    *_, last = layers(model, embed(model, ids))
    found = double(losses(unembed(model, last.resid_post), ids.to(model.device)))            # [sequence, pos - 1]
    return over_sequences(found, [f"token {n}" for n in range(1, ids.shape[1])])


def tl_seed0(model, inputs):
    """The three scores and the loss on the ids of TransformerLens' Exploratory demo."""
    rule, ids = PROTOCOLS["tl-seed0"], torch.tensor(inputs["ids"]).repeat(1, 2)
    return {**on_rows(model, ids, symbols(rule.period, 2, False), rule, rule.period), "loss": loss_by_position(model, ids)}


def drawn(model, rule, **changes):
    """Prompts of a Protocol from seed 0."""
    low, high = id_range(rule, model)
    same = {"period": rule.period, "repeats": rule.repeats, "n_sequences": rule.n_sequences, "bos": rule.bos,
            "distinct": rule.distinct, "low": low, "high": high}
    return draw(model, **{**same, **changes})


def of_protocol(name, loss=False, **changes):
    """A family that runs a protocol, with other numbers of tokens or a BOS where `changes` say so."""
    def family(model, inputs):
        rule = PROTOCOLS[name]
        prompts = drawn(model, rule, **changes)
        found = on_rows(model, prompts.ids, prompts.symbols, rule, prompts.period)
        if rule.prefix_matching:
            each, stripe = entries_per_query(prompts.symbols), found["induction"]
            found["prefix_matching"] = Reading(stripe.mean / each, stripe.spread / each, stripe.n)
        return {**found, "loss": loss_by_position(model, prompts.ids)} if loss else found

    return family


def copying_family(model, inputs):
    """copying_second of `copying`, [layer, head]."""
    table = copying(model)
    n = table.attrs["run"]["arguments"]["n_sequences"]

    def grid(name):
        return torch.tensor(table[name].to_numpy()).view(model.config.n_layer, model.config.n_head)

    return {"copying_second": Reading(grid("copying_second"), grid("copying_second_se") * n**0.5, n)}


# -- texts -------------------------------------------------------------------------------------------------------------

def _detected(pattern, marks):
    """Share of all attention that falls on the marked cells: [layer, head]."""
    return (pattern * marks).sum((-2, -1)) / pattern.sum((-2, -1))


def detector(model, inputs):
    """TransformerLens' head_detector, error measure "mul", BOS first; means over the texts.

    It knows previous-token, duplicate-token and induction cells (followers of earlier copies), and for the first it can
    leave out column 0 and the diagonal.
    """
    def patterns(kind):
        for text in inputs["detector"][kind]:
            found = trace(model, text, bos=True)
            yield found.ids, double(found.pattern)

    def previous(pattern):
        return torch.ones_like(pattern[0, 0]).tril(-1).triu(-1)

    def without(pattern):
        rest = pattern.tril(-1)
        rest[..., 0] = 0
        return rest

    sentence = [pattern for _, pattern in patterns("sentence")]
    repeating = [(pattern, *copy_masks(ids)) for ids, pattern in patterns("repeating")]
    found = {"previous": [_detected(p, previous(p)) for p in sentence],
             "previous_without": [_detected(without(p), previous(p)) for p in sentence],
             "duplicate": [_detected(p, earlier) for p, earlier, _ in repeating],
             "induction": [_detected(p, follower) for p, _, follower in repeating]}
    return {name: Reading(torch.stack(values).mean(0)) for name, values in found.items()}


def explainer(model, inputs):
    """Positional scores on given rows of ids, means over all their queries but the first of each row."""
    rows = [torch.tensor(ids) for ids in inputs["explainer"]]
    found = [pattern_scores(double(trace(model, ids=ids.tolist()).pattern), ids) for ids in rows]
    n = sum(len(ids) - 1 for ids in rows)
    return {name: Reading(sum((len(ids) - 1) * scores[name] for ids, scores in zip(rows, found, strict=True)) / n)
            for name in found[0]}


def attribution(model, inputs):
    """Who raises a given target above the vocabulary mean: each head, MLP, and the two embeddings."""
    asked = inputs["attribution"]
    parts = attribute(model, ids=asked["ids"], target=asked["target"]).parts

    def values(*names):
        return torch.tensor(parts[parts["part"].isin(names)]["value"].to_numpy(dtype="float64"))

    n_layer = model.config.n_layer
    return {"heads": Reading(values("head").view(n_layer, -1)),
            "mlps": Reading(values("MLP"), names=[f"layer {n}" for n in range(n_layer)]),
            "embeddings": Reading(values("token embedding", "position embedding"), names=["token", "position"])}


# -- weights -----------------------------------------------------------------------------------------------------------

def ov(model, inputs):
    """Eigenvalue ratios of OV: folded, in the residual basis and through the vocabulary; and with ln_1's gain alone."""
    w = folded(model)
    join = w.W_U @ w.W_E                                                                     # [d_model, d_model]
    gained = torch.stack([double(b.ln_1_weight)[:, None] * double(b.W_V) for b in model.weights.blocks])
    raw_O = torch.stack([double(b.W_O) for b in model.weights.blocks])

    def ratio(core):
        return Reading(eigenvalue_ratio(torch.linalg.eigvals(core)))                         # [layer, head]

    return {"ov_copying": ratio(w.W_O @ w.W_V), "ov_copying_vocab": ratio(w.W_O @ join @ w.W_V),
            "ov_copying_uncentred": ratio(raw_O @ gained)}


def composition(model, inputs):
    """Composition of all pairs of heads, LayerNorm folded.

    "q", "k", "v": [pair], nothing subtracted, in the order of (layer_from, head_from, layer, head). "k 5.1" and its kin:
    [layer, head], with head 5.1, over what random matrices have, 1 / sqrt(d_model); NaN from its own layer on.
    """
    config, w = model.config, folded(model)
    every = [ends(product(w.W_V[n], w.W_O[n]), product(w.W_Q[n], w.W_K[n].mT)) for n in range(config.n_layer)]
    shape = (config.n_layer, config.n_head, config.n_layer, config.n_head)
    grids = {kind: torch.full(shape, torch.nan, dtype=torch.float64) for kind in KINDS}
    for later in range(config.n_layer):
        for first in range(later):
            met = meetings(every[first].out, every[later])
            for kind, value in compositions(met, every[first].out, every[later]).items():
                grids[kind][first, :, later] = value
    found = {}
    for kind, grid in grids.items():
        pairs = torch.nonzero(~grid.isnan())                                                 # [pair, 4]
        found[kind] = Reading(grid[tuple(pairs.T)], names=[f"{a}.{b} -> {c}.{d}" for a, b, c, d in pairs.tolist()])
        for layer in range(config.n_layer):
            for head in range(config.n_head):
                found[f"{kind} {layer}.{head}"] = Reading(grid[:, :, layer, head] * config.d_model**0.5)
    return found


READINGS = {
    "tl-seed0": tl_seed0, "tl-main": of_protocol("tl-main", loss=True), "song2024": of_protocol("song2024"),
    "olsson": of_protocol("olsson"), "ioi": of_protocol("ioi"), "stripe": of_protocol("stripe"),
    "bos-48": of_protocol("stripe", period=48, bos=True), "bos-50": of_protocol("stripe", bos=True),
    "copying": copying_family, "detector": detector, "explainer": explainer, "attribution": attribution,
    "ov": ov, "composition": composition,
}
