"""`intervene`: one text with heads turned off or sharpened, beside the same text untouched.

Three things can be done to a head, and each is an `Edit`, data for the one forward pass:

    "zero"    its z is 0 before W_O: it writes nothing
    "mean"    its z is, at each position, the mean of its z over the text's own tokens in random orders: it writes what it
              would write to such tokens on average (`ablate` with fill "mean" does the same)
    a number  its scores are multiplied by it before the softmax: 0 looks everywhere alike, 1 is the model, a large one puts
              all weight on the highest score

Later layers are free to react. What changes: the next token, the loss of each token, and where the other heads look.
"""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from ..checkpoint import tokens
from ..errors import ArgumentError
from ..model.kernels import Edit
from ..model.tracing import Trace, trace
from ..record import run_record
from ..showing import Shown
from .ablation import next_seed, shuffles
from .attribution import place_of, rank
from .cutting import mean_z
from .head_names import head_name, parse_heads
from .prompts import find_period, generator_of, refuse_counts

CUTS = ("zero", "mean")
KEEP = ("pattern", "logits")
TOP = 10                # next tokens of each run


@dataclass(frozen=True, repr=False)
class Intervention(Shown):
    """One text before and after heads were changed. Losses in nats, changes are after minus before.

    `copies` is empty where the text is not one block of tokens repeated. Else it has a row for each copy of the block: the
    predictions made by that copy's own queries, so that the first token of copy 2 counts with copy 1, which cannot foresee
    it either; the mean over copies 2 and on, weighted by `tokens`, is the loss that `ablate` reads.
    """

    tokens: Any             # DataFrame: position, id, label, loss_before, loss_after, change; losses NaN at position 0
    next: Any               # DataFrame: id, label, p_before, p_after, rank_before, rank_after, change: the likeliest next
                            # tokens of either run, by p_before
    patterns: Any           # DataFrame, a row a head: layer, head, largest (largest change of a cell, in size), moved (the
                            # share of a query's weight that went elsewhere, mean over queries 1, 2, ...)
    copies: Any             # DataFrame: copy (from 1), tokens (how many are predicted), loss_before, loss_after, change
    before: Trace           # the pattern and the logits
    after: Trace            # the same, with the edits
    position: int           # `next` is the token after it; counted from 0
    run: dict               # the run record; its edits are {"5.1": "zero", "3.0": 2.0}

    def __repr__(self):
        edits = " ".join(f"{head}={how}" for head, how in self.run["arguments"]["edits"].items())
        return f"Intervention({edits or 'nothing'} on {len(self.tokens)} tokens)"


def _how(head, value):
    """What is done to one head: "zero", "mean" or a float. Raises ArgumentError."""
    if value in CUTS:
        return value
    try:
        factor = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        factor = math.nan
    if not 0 <= factor < math.inf:
        raise ArgumentError(f"the edit of head {head} is {str(value)[:40]!r}; expected zero, mean, or a number of at least "
                            "0 that multiplies its scores")
    return factor


def _pairs(edits):
    """[(head as given, value)] of edits in any form. Raises ArgumentError."""
    if isinstance(edits, str):
        words = edits.replace(",", " ").split()
        if unclear := [word for word in words if word.count("=") != 1]:
            raise ArgumentError(f"the edit {unclear[0][:40]!r} is unclear; expected head=what, such as 5.1=zero, 5.1=mean "
                                "or 5.1=2")
        return [tuple(word.split("=")) for word in words]
    if not hasattr(edits, "items"):
        raise ArgumentError(f"edits is {str(edits)[:40]!r}; expected heads and what is done to them (zero, mean, or a "
                            "number), such as {\"5.1\": \"zero\"} or \"5.1=zero 3.0=2\"")
    return list(edits.items())


def parse_edits(model, edits):
    """{(layer, head): "zero", "mean" or a float}, sorted, from {"5.1": "zero", "3.0": 2.0} or "5.1=zero 3.0=2".

    Raises ArgumentError for what is written otherwise, a head that the model lacks or that is named twice, and a factor
    that is negative or not finite.
    """
    found = {}
    for name, value in _pairs(edits):
        (head,) = parse_heads(model, [name])
        if head in found:
            raise ArgumentError(f"head {head_name(head)} is named twice in the edits; expected once")
        found[head] = _how(head_name(head), value)
    return dict(sorted(found.items()))


def _edit(model, here, mean):
    """The Edit of one layer. here: {head: what is done to it}; mean: what the heads say on average, [head, pos, d_head]."""
    how = [here.get(head, 1.0) for head in range(model.config.n_head)]
    sharpness, keep, averaged = map(model.weights.W_E.new_tensor, (
        [1.0 if each in CUTS else each for each in how], [float(each not in CUTS) for each in how],
        [float(each == "mean") for each in how]))                                            # [head] each
    return Edit(sharpness=sharpness if (sharpness != 1).any() else None, keep=keep if (keep != 1).any() else None,
                fill=mean * averaged[:, None, None] if averaged.any() else None)


def edits_for(model, ids, edits, *, n_references=16, seed=0, progress=None):
    """{layer: Edit} that does to one text what `edits` (in any form of `parse_edits`) say: `trace` and `layers` take it.

    ids: the text's, a list. The mean is over them in `n_references` random orders, drawn with seed + 1, as in `ablate`.
    Raises ArgumentError.
    """
    refuse_counts(n_references=(n_references, 1))
    generator_of(seed)                      # refuses one that cannot be; the next one always can
    chosen, mean = parse_edits(model, edits), {}
    averaged = [layer for (layer, _), how in chosen.items() if how == "mean"]
    if averaged:
        reference = shuffles(torch.tensor(ids), n_references, next_seed(seed), model.config.bos_token_id)
        mean = mean_z(model, reference, stop=max(averaged) + 1, progress=progress)
    by_layer = {}
    for (layer, head), how in chosen.items():
        by_layer.setdefault(layer, {})[head] = how
    return {layer: _edit(model, here, mean.get(layer)) for layer, here in by_layer.items()}


def _wide(x):
    return x.cpu().double()


def token_losses(before, after):
    """`Intervention.tokens` of two traces."""
    losses = [[math.nan, *_wide(run.losses).tolist()] for run in (before, after)]
    table = pd.DataFrame({"position": range(len(before.labels)), "id": before.ids.tolist(), "label": before.labels,
                          "loss_before": losses[0], "loss_after": losses[1]})
    table["change"] = table["loss_after"] - table["loss_before"]
    return table


def next_tokens(model, before, after, position, top):
    """`Intervention.next`: the `top` likeliest next tokens of each run, together."""
    logits = [_wide(run.logits[position]) for run in (before, after)]                        # [vocab]
    p = [torch.softmax(row, dim=-1) for row in logits]
    ids = sorted({token for row in logits for token in row.topk(top).indices.tolist()})
    table = pd.DataFrame({"id": ids, "label": [tokens.labels(model, [token])[0] for token in ids],
                          "p_before": p[0][ids], "p_after": p[1][ids],
                          "rank_before": [int(rank(logits[0], token)) for token in ids],
                          "rank_after": [int(rank(logits[1], token)) for token in ids]})
    table["change"] = table["p_after"] - table["p_before"]
    return table.sort_values("p_before", ascending=False, kind="stable", ignore_index=True)


def pattern_changes(before, after):
    """`Intervention.patterns` of two patterns [layer, head, query, key].

    Moved is half the L1 distance of a query's two rows: 0 if they are the same, 1 if they have no key in common. Query 0
    sees itself alone and is left out: NaN for a text of one token.
    """
    rows = []
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        change = (new - old).abs()                                                           # [head, query, key]
        moved = _wide(change[:, 1:].sum(-1, dtype=torch.float64)).mean(-1) / 2
        rows += [(layer, head, float(cell), float(share))
                 for head, (cell, share) in enumerate(zip(change.amax((-2, -1)), moved, strict=True))]
    return pd.DataFrame(rows, columns=["layer", "head", "largest", "moved"])


def copy_losses(losses, first, period):
    """`Intervention.copies` of a token table, whose tokens repeat with `period` from position `first` on; None = empty."""
    rows, n = [], len(losses)
    if period is not None:
        for copy, start in enumerate(range(first, n - 1, period), 1):
            mine = losses.iloc[start + 1:min(start + period, n - 1) + 1]
            rows.append((copy, len(mine), *(float(mine[name].mean()) for name in ("loss_before", "loss_after", "change"))))
    return pd.DataFrame(rows, columns=["copy", "tokens", "loss_before", "loss_after", "change"])


def next_place(model, n, position, top=TOP):
    """The position after which the next token is asked for, counted from 0, in a text of n tokens.

    Raises ArgumentError for one outside the text, and for more next tokens than there are.
    """
    refuse_counts(top=(top, 1))
    if top > model.config.vocab_size:
        raise ArgumentError(f"top is {top}; the vocabulary has {model.config.vocab_size} tokens")
    return place_of(position, n)


def intervention(before, after, edits, *, position, top=TOP, text=None, bos=False, n_references=16, seed=0):
    """The Intervention between two runs of one text that exist already: what `intervene` says of them.

    before, after: Traces with their model, pattern and logits, the same one where nothing is changed; edits: those of
    `after`, as of `parse_edits`; the rest is what `intervene` was asked. Raises ArgumentError as `next_place`.
    """
    model, row, losses = before.model, before.ids.tolist(), token_losses(before, after)
    place = next_place(model, len(row), position, top)
    return Intervention(
        tokens=losses, next=next_tokens(model, before, after, place, top),
        patterns=pattern_changes(before.pattern, after.pattern),
        copies=copy_losses(losses, int(before.bos), find_period(before.ids[None], model.config.bos_token_id)),
        before=before, after=after, position=place,
        run=run_record(model, "intervene", edits={head_name(head): how for head, how in edits.items()}, text=text, ids=row,
                       bos=bos, position=place, n_references=n_references, seed=seed, reference_seed=next_seed(seed),
                       top=top, kernel="patterns"))


@torch.no_grad()
def intervene(model, edits, text=None, *, ids=None, bos=False, position=-1, n_references=16, seed=0, top=TOP, progress=None):
    """Change heads on one text and see what changes with them: an Intervention.

    edits: {"5.1": "zero", "4.11": "mean", "3.0": 2.0} or "5.1=zero 4.11=mean 3.0=2": "zero" and "mean" cut the head, a
    number of at least 0 multiplies its scores; none at all changes nothing. The mean is over the text's own tokens in
    `n_references` random orders, drawn with seed + 1, as `ablate` has it. position: the next token is the one after it,
    counted from 0, or from the end if negative. top: how many next tokens of each run.

    Raises TextError as `trace`; ArgumentError as `parse_edits`, for a position outside the text, and for counts below 1.
    """
    refuse_counts(n_references=(n_references, 1))
    chosen = parse_edits(model, edits)
    row = tokens.encode(model, text, ids=ids, bos=bos)
    place = next_place(model, len(row), position, top)
    before = trace(model, ids=row, keep=KEEP, progress=progress)
    changes = edits_for(model, row, chosen, n_references=n_references, seed=seed, progress=progress)
    after = trace(model, ids=row, keep=KEEP, edits=changes, progress=progress) if changes else before
    return intervention(before, after, chosen, position=place, top=top, text=text, bos=bos, n_references=n_references,
                        seed=seed)
