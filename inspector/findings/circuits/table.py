"""`circuits`: what every head's weights say, as tables."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
import torch

from ...checkpoint import tokens
from ...errors import ArgumentError
from ...record import run_record
from ...showing import Shown
from ..prompts import generator_of, longest_period
from ..table import heads as measured_heads
from .columns import copying, joins_of, matching, positional
from .composition import KINDS, baseline, compositions, ends, matching_through, meetings, moved
from .directions import leading, spectrum, svd
from .eigen import product
from .folding import effective_embedding, folded
from .positions import layer_norm_scale

N_SEQUENCES = 4        # for the previous-token weights: each score is a mean over a hundred queries already
PAIR = ["layer_from", "head_from", "layer", "head"]
PAIR_COLUMNS = (*(f"{kind}_composition" for kind in KINDS), "matching", "matching_effective")


@dataclass(frozen=True, repr=False)
class Circuits(Shown):
    """What the weights say, a DataFrame for each thing that has rows.

    A ratio is `eigen.eigenvalue_ratio`: from -1 to 1, about 0 for random matrices, NaN where there is nothing to take it of.
    *Effective*: where a head of a later layer reads a token, the effective embedding (`folding.py`) stands for W_E.

    heads: a row a head; layer, head, then
      ov_copying             ratio of W_V W_O, in the residual basis
      ov_copying_vocab       ratio of W_E W_V W_O W_U: does a token raise its own logit
      ov_copying_effective   the same, effective; NaN in layer 0
      ov_positive            share of the eigenvalues of W_V W_O with a positive real part
      ov_norm                ||W_V W_O||, Frobenius
      qk_matching            ratio of W_E W_QK W_E^T: do equal tokens match (duplicate-token heads)
      qk_matching_effective  the same, effective; NaN in layer 0
      qk_matching_composed   ratio of W_E W_QK (W_E M)^T, M the sum of all earlier heads' OV, each times its `previous`:
                             does a token match the one before the key (induction heads; Olsson et al. 2022, appendix,
                             QK-eigenvalue measure); NaN in layer 0
      qk_matching_composed_effective   the same, effective: the query's token, and the key's behind heads of layer 1 on
      qk_symmetric           ||(W + W^T) / 2||^2 / ||W||^2 of W = W_QK, about 1/2 for random factors
      qk_norm                ||W_QK||, Frobenius, without 1 / sqrt(d_head)
      positional_offset      the offset at which position embeddings alone score highest (`positions.py`)
      positional_z           by how many standard deviations of the other offsets offset 1 stands above their mean
      positional_previous    what `previous_token` would be if the stream held positions alone, at the size that layer 0's
                             LayerNorm gives them; later layers read a larger stream with more in it
    pairs: a row a pair of heads, the first in an earlier layer; layer_from, head_from, layer, head, then
      q_composition          `composition.py`; q_composition_excess, minus the baseline's mean; q_composition_high, whether
                             it is above the baseline's 99th percentile; k_... and v_... likewise
      matching, matching_effective   as qk_matching_composed, M the OV of that one head, wherever it looks
    directions: layer, head, rank, singular_value, share (of ||W_V W_O||^2), reads, writes, reads_opposite, writes_opposite:
      labels of the tokens that lie furthest out, furthest first (`directions.py`).
    spectra: layer, head, circuit ("ov" or "qk"), rank, singular_value: all of them.
    baseline: kind (q, k, v), mean, spread, p99, samples: the composition of random heads.

    `ov_copying` does not tell copying from suppressing: GPT-2 small's 11.10 reads 0.996 there, and lowers the logits of what
    it attends to. Alone, a token is all that its layer-0 heads can see: a previous-token head of layer 0 moves the token
    itself, so an induction head may read high in qk_matching_effective. Biases are outside all of this. A head's scale
    (1 / sqrt(d_head), over the layer's number where the config says so) is positive and changes no ratio; of all columns
    positional_previous alone has it.
    """

    heads: pd.DataFrame
    pairs: pd.DataFrame
    directions: pd.DataFrame
    spectra: pd.DataFrame
    baseline: pd.DataFrame
    run: dict                     # the run record

    def __repr__(self):
        return f"Circuits({len(self.heads)} heads, {len(self.pairs)} pairs)"


def previous_scores(model, seed):
    """[layer, head] previous-token scores, measured on a few repeated sequences of the longest period that fits."""
    try:
        found = measured_heads(model, period=longest_period(model), n_sequences=N_SEQUENCES, seed=seed)["previous_token"]
    except ArgumentError as error:
        raise ArgumentError(f"previous-token scores cannot be measured: {error}; give previous, a number a head") from error
    return torch.tensor(found.to_numpy()).unflatten(0, (model.config.n_layer, -1))


def given_scores(model, previous):
    """`previous` as [layer, head], float64. Raises ArgumentError where it has another shape or is not finite."""
    expected = f"expected a finite number for each [layer, head], {[model.config.n_layer, model.config.n_head]}"
    try:
        found = torch.tensor(previous.tolist() if hasattr(previous, "tolist") else previous, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"previous is a {type(previous).__name__} that holds other things than numbers; {expected}"
                            ) from error
    if found.shape != (model.config.n_layer, model.config.n_head) or not torch.isfinite(found).all():
        raise ArgumentError(f"previous has the shape {list(found.shape)}, {int((~torch.isfinite(found)).sum())} not finite; "
                            + expected)
    return found


def framed(places, columns):
    """A DataFrame of a grid: `places` {name: its places} along each axis, then each column's [*axes] values flattened."""
    index = pd.MultiIndex.from_product(list(places.values()), names=list(places)).to_frame(index=False)
    return index.join(pd.DataFrame({name: values.flatten().numpy() for name, values in columns.items()}))


class Earlier(NamedTuple):
    """What later layers need of a layer's heads."""

    out: torch.Tensor             # `Ends.out`
    moved: dict                   # {column: Moved}


def pairs_of(earlier, later):
    """{column: [from, to]} of all pairs of two layers' heads: Earlier and Ends."""
    met = meetings(earlier.out, later)
    found = {f"{kind}_composition": value for kind, value in compositions(met, earlier.out, later).items()}
    return found | {name: matching_through(met["k"], moves, later) for name, moves in earlier.moved.items()}


def pair_table(grids, level):
    """The rows of all pairs, ordered by the earlier head. grids: {column: [layer_from, head_from, layer, head]}, of which
    only the pairs whose second head is in a later layer count; level: the baseline, indexed by kind.
    """
    grids, columns = dict(grids), {}
    for kind in KINDS:
        name = f"{kind}_composition"
        value = grids.pop(name)
        columns |= {name: value, f"{name}_excess": value - level["mean"][kind], f"{name}_high": value > level["p99"][kind]}
    table = framed(dict(zip(PAIR, map(range, value.shape), strict=True)), columns | grids)
    return table[table["layer_from"] < table["layer"]].reset_index(drop=True)


def key_join(joins, layer):
    """What joins a key's token, as a head of `layer` reads it, to the query's token, as any later layer reads that."""
    return joins.match_effective if layer else joins.match_across


@torch.no_grad()
def circuits(model, *, fold=True, previous=None, samples=200, n_directions=3, n_tokens=8, seed=0, progress=None):
    """What every head's weights say: `Circuits`, whose docstring holds the columns.

    fold: LayerNorm folded into the matrices (`folding.py`); False takes them as they stand. previous: [layer, head], how
    much each head counts as a previous-token head in qk_matching_composed; None measures it. samples: random pairs of heads
    in the baseline, from `seed`. n_directions, n_tokens: of each head's OV at most so many, with at most so many tokens.
    progress wraps the layers.

    Texts are run only to measure `previous`, and each token alone through layer 0 for the effective embedding. Everything
    else is linear algebra of the weights, in float64 on the CPU. Raises ArgumentError.
    """
    for name, value, least in (("samples", samples, 2), ("n_directions", n_directions, 1), ("n_tokens", n_tokens, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"{name} is {value!r}; expected a whole number of at least {least}")
    config, random = model.config, baseline(model.config.d_model, model.config.d_head, samples, generator_of(seed))
    if previous is not None:
        scores = given_scores(model, previous)
    elif config.n_layer > 1:
        scores = previous_scores(model, seed)
    else:
        scores = torch.zeros(1, config.n_head, dtype=torch.float64)       # nobody reads what the last layer writes
    w = folded(model, fold)
    joins = joins_of(w, effective_embedding(model, fold))
    divided_by = layer_norm_scale(w.W_E, w.W_pos, config.layer_norm_epsilon)
    label = functools.cache(lambda i: tokens.labels(model, [i])[0])
    earlier, composed = [], (torch.zeros_like(joins.same), torch.zeros_like(joins.same))
    heads, directions, spectra = [], [], []
    # Made beforehand: small tensors kept between large ones that are dropped would leave the allocator's memory in pieces.
    pairs = {name: torch.full((config.n_layer, config.n_head) * 2, torch.nan, dtype=torch.float64) for name in PAIR_COLUMNS}
    for layer in progress(range(config.n_layer)) if progress is not None else range(config.n_layer):
        ov, qk = product(w.W_V[layer], w.W_O[layer]), product(w.W_Q[layer], w.W_K[layer].mT)
        own = ends(ov, qk)
        heads.append(framed({"layer": [layer], "head": range(config.n_head)}, {
            **copying(ov, joins, layer), **matching(qk, joins, composed, layer),
            **positional(w.W_Q[layer], w.W_K[layer], w.W_pos, divided_by, config.scale(layer))}))
        for first, each in enumerate(earlier):
            for name, values in pairs_of(each, own).items():
                pairs[name][first, :, layer] = values
        earlier.append(Earlier(own.out, {"matching": moved(ov, joins.match),
                                         "matching_effective": moved(ov, key_join(joins, layer))}))
        decomposed, (_, qk_values, _) = svd(ov), svd(qk)
        directions += leading(layer, decomposed, w.W_E, w.W_U, n_directions, n_tokens, label)
        spectra += spectrum(layer, "ov", decomposed[1]) + spectrum(layer, "qk", qk_values)
        weighted = torch.einsum("h,hde,hef->fd", scores[layer], ov.left, ov.right)           # [d_model, d_model], M^T
        composed = composed[0] + weighted @ joins.match, composed[1] + weighted @ key_join(joins, layer)
    run = run_record(model, "circuits", fold=fold, previous=scores, previous_measured=previous is None, samples=samples,
                     n_directions=n_directions, n_tokens=n_tokens, seed=seed)
    return Circuits(pd.concat(heads, ignore_index=True), pair_table(pairs, random.set_index("kind")),
                    pd.DataFrame(directions), pd.DataFrame(spectra), random, run)
