"""`study`: every measure of every head in one table, the verdicts that follow from several of them, and the circuit.

No single score makes an induction head here. It must *match*: attend to what followed earlier copies of its token, above a
threshold and above its control; and *copy*: raise the token it attends to (Olsson et al. 2022, "In-context Learning and
Induction Heads", define the head by both). A head that matches and lowers that token has a name of its own, anti-induction
head (in GPT-2 small 10.7 and 11.10: McDougall et al. 2023, "Copy Suppression"). What the weights say, what the loss does
without the head and who feeds whom stand beside it, so that the verdict can be disputed with the tables alone.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..checkpoint import tokens
from ..errors import ArgumentError, TextError
from ..record import rows_of, run_record
from ..showing import Shown
from .ablation import ablations
from .causes import K_BELOW, QV_ABOVE, causes
from .circuits.table import circuits
from .copying import LEAST_Z, copying
from .head_names import head_names
from .learning import learned_in, loss_by_position
from .prompts import draw, longest_period, refuse_counts
from .published.table import published as compared
from .table import heads
from .verdicts import LEVEL, THRESHOLD, verdicts

PERCENTILE = 99
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
# Every threshold, its default, and who says so.
SOURCES = (
    ("threshold", THRESHOLD, "ARENA 1.2, whose authors call 0.4 a bit arbitrary; published lists of GPT-2 use 0.3 to 0.8"),
    ("copying_threshold", LEAST_Z, "how large copying z (standard deviations) must be, in either sign, to copy or "
                                   "suppress; a random OV reads within 0.1: our choice"),
    ("level", LEVEL, "1 % after Holm 1979 over all heads, against the same head on unrepeated tokens: our choice"),
    ("k_below", K_BELOW, "less than this share of the stripe is left with the keys of the run without the earlier head: "
                         "our choice"),
    ("qv_above", QV_ABOVE, "and more than this with its queries, or of its copying with its values: our choice"),
    ("percentile", PERCENTILE, "K-composition lies above it among random factors; Elhage et al. 2021 subtract their mean"),
)
SET_COLUMNS = ["role", "cut", "n_heads", "fill", "patterns", "clean_loss", "loss", "change", "change_se", "text_change",
               "n_controls", "control_shared", "control_mean", "control_low", "control_high", "rest", "rest_change"]
SETS = ("induction_head", "anti_induction_head", "previous_token")       # the roles whose heads are cut together
PAIR = ["layer_from", "head_from", "layer", "head"]


@dataclass(frozen=True, repr=False)
class Study(Shown):
    """What was found, with its evidence. Losses in nats, logits natural; standard errors over sequences."""

    table: Any              # a row a head: every measure; verdict: list of words (`roles`)
    thresholds: Any         # threshold, matching (heads), induction_heads, anti_induction_heads: how the lists change
    circuit: Any            # a row a pair (previous-token head, head that matches): causal test, composition, agrees
    sets: Any               # cuts of whole roles beside random sets: role, fill, patterns, cut, change, ..., control_*
    cuts: dict              # {(role, patterns): the table of `ablate`} behind `sets`
    circuits: Any           # `Circuits`: what the weights say
    loss: Any               # loss by position on the repeated sequences, clean and without the induction heads
    learning: Any           # in-context learning on the text, or None
    published: Any          # ours beside the published, or None
    left_out: dict          # {what could not be measured: why}
    found: dict             # {role: ((layer, head), ...)}
    run: dict               # the run record

    def __repr__(self):
        return f"Study({'; '.join(f'{role}: {head_names(found)}' for role, found in self.found.items() if found) or 'none'})"


def roles(matching, speaking):
    """The verdict of one head from what it attends to and what it says: a list of words.

    matching: words of `heads`; speaking: words of `copying`. "induction" alone is attention to the stripe; with "copies" it
    is an "induction_head", with "suppresses" an "anti_induction_head".
    """
    both = [*matching, *speaking]
    if "induction" in matching:
        both += ["induction_head"] * ("copies" in speaking) + ["anti_induction_head"] * ("suppresses" in speaking)
    return both


def found_in(table):
    """{role: ((layer, head), ...)} of a table with a verdict column, in the order of the heads."""
    found = {}
    for row in table.itertuples():
        for word in row.verdict:
            found.setdefault(word, []).append((int(row.layer), int(row.head)))
    return {word: tuple(each) for word, each in found.items()}


def threshold_table(stripe, speaking, n, thresholds=THRESHOLDS):
    """How the lists change with the threshold: a row a threshold.

    stripe: the table of `heads`; speaking: words of `copying`, a list a head; n: sequences, as many controls.
    """
    rows = []
    for threshold in thresholds:
        words = [roles(a, b) for a, b in zip(verdicts(stripe, n, n, threshold), speaking, strict=True)]
        found = found_in(stripe.assign(verdict=words))
        rows.append({"threshold": threshold, "matching": head_names(found.get("induction", ())),
                     "induction_heads": head_names(found.get("induction_head", ())),
                     "anti_induction_heads": head_names(found.get("anti_induction_head", ())),
                     "previous_token": head_names(found.get("previous_token", ()))})
    return pd.DataFrame(rows)


def joined(*tables):
    """Tables with a row a head side by side, on layer and head; of columns that several have, the first."""
    first, *others = tables
    for other in others:
        first = first.merge(other[["layer", "head", *(c for c in other if c not in first)]], on=["layer", "head"],
                            how="left", validate="one_to_one")
    return first


def single_cuts(table, name):
    """`ablate`'s rows of single heads as columns NAME, NAME_se (change of the loss) and NAME_text."""
    own = table[table["kind"] == "head"][["layer", "head", "change", "change_se", "text_change"]]
    return own.rename(columns={"change": name, "change_se": name + "_se", "text_change": name + "_text"})


def set_row(role, table):
    """One row of `sets` from a table of `ablate`. A set of one head stands as that head."""
    own = table[table["kind"] == ("set" if (table["kind"] == "set").any() else "head")].iloc[0]
    rest = table[table["kind"] == "rest"]
    run, facts = table.attrs["run"]["arguments"], table.attrs
    return {"role": role, "cut": own["cut"], "n_heads": int(own["n_heads"]), "fill": run["fill"],
            "patterns": run["patterns"], "clean_loss": facts["clean_loss"], "loss": own["loss"], "change": own["change"],
            "change_se": own["change_se"], "text_change": own["text_change"], "n_controls": facts["n_controls"],
            "control_shared": facts["control_shared"], "control_mean": facts["control_mean"],
            "control_low": facts["control_low"], "control_high": facts["control_high"],
            "rest": None if rest.empty else rest["cut"].iloc[0],
            "rest_change": None if rest.empty else rest["change"].iloc[0]}


def circuit_table(model, found, weights, *, k_below, qv_above, **how):
    """The causal test of every pair (previous-token head, matching head of a later layer), its composition beside it.

    weights: `Circuits`. Beside the columns of `causes`: q_left, k_left, direct_left (shares of the clean stripe), v_left
    (share of the head's part of the right token's logit, since no stripe shows v), causal (its `agrees`), the K-composition
    with its rank among the heads of the earlier layer, and route: "direct" where the stripe falls below `k_below` without
    the direct path alone, else "indirect", by what lies between. agrees: causal, and the K-composition lies above the
    baseline's 99th percentile.
    """
    tested = causes(model, list(found.get("previous_token", ())), list(found.get("induction", ())), k_below=k_below,
                    qv_above=qv_above, **how)
    pairs = weights.pairs[[*PAIR, "k_composition", "k_composition_excess", "k_composition_high", "matching_effective"]]
    ranks = weights.pairs.groupby(["layer_from", "layer", "head"])["k_composition"].rank(ascending=False, method="min")
    pairs = pairs.assign(k_composition_rank=ranks)
    table = tested.rename(columns={"agrees": "causal"}).merge(pairs, on=PAIR, how="left")
    for name in ("q", "k", "direct"):
        table[name + "_left"] = table[name] / table["clean"]
    table["v_left"] = table["logit_v"] / table["logit"]
    table["route"] = ["direct" if left < k_below else "indirect" for left in table["direct_left"]]
    table["agrees"] = table["causal"].astype(bool) & table["k_composition_high"].eq(True)     # NaN is no
    table.attrs = tested.attrs
    return table


def refuse_shares(**values):
    """Raise ArgumentError for a value that is no number from 0 to 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ArgumentError(f"{name} is {value!r}; expected a number from 0 to 1")


def measured_or_not(left_out, what, measure):
    """The result of `measure()`; None, and the reason noted in `left_out`, where this model or text does not allow it."""
    try:
        return measure()
    except (ArgumentError, TextError) as error:
        left_out[what] = str(error)
        return None


def study(model, text=None, *, ids=None, bos=False, period=None, repeats=2, n_sequences=16, seed=0, threshold=THRESHOLD,
          copying_threshold=LEAST_Z, k_below=K_BELOW, qv_above=QV_ABOVE, n_controls=20, fold=True, progress=None):
    """Which heads do induction, and by what evidence: a `Study`.

    On `n_sequences` drawn sequences of `period` ids (None = 50, or as much as the model can hold), `repeats` times: head
    scores with controls, copying, every head cut alone (later patterns free and frozen), the heads of each role cut together
    beside `n_controls` random sets, the causal test of each pair, loss by position; then prefix matching by the protocol of
    Olsson et al. 2022, and what the weights say. On a text, if one is given: each cut's loss there, and in-context learning.
    The published figures are compared where there are some for this model. `threshold`, `copying_threshold`,
    `k_below`, `qv_above`: see SOURCES. One sequence has no spread, so that no head gets a verdict.

    The table's columns: those of `heads`, `copying` and `Circuits.heads`; prefix_matching (at most 2/m = 0.5) with _se,
    _uniform, _control, _control_se; cut_free, cut_frozen (change of the loss in copies 2..m) with _se and _text; verdict.

    Raises ArgumentError, TextError.
    """
    refuse_shares(threshold=threshold, k_below=k_below, qv_above=qv_above)
    if isinstance(copying_threshold, bool) or not isinstance(copying_threshold, int | float) or not copying_threshold >= 0:
        raise ArgumentError(f"copying_threshold is {copying_threshold!r}; expected a number from 0 up")
    refuse_counts(n_controls=(n_controls, 0))
    period = longest_period(model, bos, repeats) if period is None else period
    drawn = {"period": period, "n_sequences": n_sequences, "bos": bos, "seed": seed}
    how = {**drawn, "repeats": repeats, "progress": progress}
    row = None if text is None and ids is None else tokens.encode(model, text, ids=ids)
    left_out = {}
    stripe = heads(model, threshold=threshold, **how)
    speaking = copying(model, prompts=draw(model, repeats=repeats, **drawn), seed=seed, least_z=copying_threshold,
                       progress=progress)
    said = speaking["verdict"].tolist()
    stripe["verdict"], matching = [roles(a, b) for a, b in zip(stripe["verdict"], said, strict=True)], stripe.copy()
    found = found_in(stripe)

    olsson = measured_or_not(left_out, "prefix matching",
                             lambda: heads(model, protocol="olsson", seed=seed, threshold=threshold, progress=progress))
    on_text = None if row is None or len(row) + bos < 2 else row[:model.config.n_positions - bos]
    if on_text is not None and len(on_text) < len(row):
        left_out["cuts on the whole text"] = (f"read on its first {len(on_text)} of {len(row)} tokens: all that the model "
                                              "can hold")
    elif row is not None and on_text is None:
        left_out["cuts on the text"] = "a single token leaves none to predict"
    weights = circuits(model, fold=fold, seed=seed, progress=progress,
                       previous=matching["previous_token"].to_numpy(copy=True).reshape(model.config.n_layer, -1))
    there = [role for role in SETS if role in found]
    cut = {name: ablations(model, [None, *(list(found[role]) for role in there)], patterns=name, ids=on_text,
                           n_controls=n_controls, **how) for name in ("free", "frozen")}
    single = {name: every for name, (every, *_) in cut.items()}
    cuts = {(role, name): cut[name][1 + n] for n, role in enumerate(there) for name in cut}
    learning = None
    if row is not None:
        learning = measured_or_not(left_out, "in-context learning",
                                   lambda: learned_in(model, ids=row, bos=bos, progress=progress))
    else:
        left_out["in-context learning"] = "it needs a text, the longer the better"
    published = measured_or_not(left_out, "published", lambda: compared(model, progress=progress))
    if published is None:
        left_out["published"] = left_out["published"].partition(". Known")[0]    # which models are: `check` says it all

    prefix = [] if olsson is None else [olsson[["layer", "head", *(c for c in olsson if c.startswith("prefix_matching"))]]]
    table = joined(stripe.drop(columns="verdict"), *prefix, speaking.drop(columns="verdict"), weights.heads,
                   *(single_cuts(cut, f"cut_{name}") for name, cut in single.items()))
    table["verdict"] = stripe["verdict"]
    run = run_record(model, "study", text=text, ids=row, repeats=repeats, threshold=threshold,
                     copying_threshold=copying_threshold, level=LEVEL, k_below=k_below,
                     qv_above=qv_above, percentile=PERCENTILE, n_controls=n_controls, fold=fold, cut_fill="mean",
                     protocol="stripe", **drawn)
    table.attrs = {"run": run, "period": period, "threshold": threshold}
    return Study(
        table=table, thresholds=threshold_table(matching, said, n_sequences),
        circuit=circuit_table(model, found, weights, k_below=k_below, qv_above=qv_above, repeats=repeats, progress=progress,
                              **drawn),
        sets=pd.DataFrame([set_row(role, cut) for (role, _), cut in cuts.items()], columns=SET_COLUMNS), cuts=cuts,
        circuits=weights, loss=loss_by_position(model, list(found.get("induction_head", ())) or None, **how),
        learning=learning, published=published, left_out=left_out, found=found, run=run)


def as_json(study):
    """A study as plain data: run, rows (a row a head), and every other table by its name."""
    both = study.learning and {"bands": study.learning.bands, "published": study.learning.published}
    learning = both and {name: {"early": each.early, "late": each.late, "value": each.value, "se": each.se,
                                "headline": each.headline} for name, each in both.items()}
    tables = {"thresholds": study.thresholds, "circuit": study.circuit, "sets": study.sets, "loss": study.loss,
              "pairs": study.circuits.pairs, "directions": study.circuits.directions}
    return {"run": study.run, "found": {role: [list(head) for head in found] for role, found in study.found.items()},
            "rows": rows_of(study.table), **{name: rows_of(table) for name, table in tables.items()},
            "published": None if study.published is None else rows_of(study.published), "learning": learning,
            "left_out": study.left_out}
