"""How heads came to be: scores, losses and in-context learning over the steps of training, run beside run.

After Olsson et al. 2022, "In-context Learning and Induction Heads", Argument 1: the heads, the loss on repeats and
in-context learning change in one short stretch, and in models of one layer nothing of it happens.
"""

import math

import numpy as np

from .captions import phase_caption
from .plots import GREY, INK, KINDS, RULE, SOFT, WIDTH, sheet
from .words import head_name

MATCHING, LATER, PREVIOUS = KINDS[0].colour, KINDS[1].colour, KINDS[3].colour
ZERO = 0.35             # step 0, which has no place on a log scale, stands so far (in powers of ten) left of the next one
HEIGHTS = {"score": 1.75, "copying (logit)": 1.1, "loss (nats)": 1.4, "in-context\nlearning (nats)": 1.1}


def places_of(steps, first):
    """Steps as places on a log axis, in powers of ten; 0 stands a little left of `first`, the smallest other step."""
    steps = np.asarray(steps, dtype=float)
    return np.where(steps > 0, np.log10(np.maximum(steps, 1)), math.log10(first) - ZERO)


def over_steps(axes, rows, column, se=None, **options):
    """A column over the steps, with its band; the value at step 0 is a dot of its own, since no line leads there.

    rows: place, step, the column and, where there is one, the column `se`.
    """
    rows = rows.sort_values("step", kind="stable")
    zero, later = rows[rows["step"] == 0], rows[rows["step"] > 0]
    axes.plot(later["place"], later[column], **options)
    axes.plot(zero["place"], zero[column], linestyle="", marker="o", markersize=2.5, markeredgewidth=0,
              color=options["color"], alpha=options.get("alpha"))
    if se is not None:
        axes.fill_between(later["place"], later[column] - later[se], later[column] + later[se], color=options["color"],
                          alpha=0.22, linewidth=0)


def step_axis(axes, places, first, words):
    """Ticks at 0 and at the powers of ten, with a gap in the axis between; words: whether they are labelled."""
    low, first, last = min(places), math.log10(first), max(places)
    zero = [low] if low < first else []
    powers = [n for n in range(9) if first - 0.02 <= n <= last + 0.02]
    axes.set_xticks([*zero, *powers], ["0"] * len(zero) + [f"{10**n:,}" for n in powers])
    fine = [n + math.log10(k) for n in range(9) for k in range(2, 10)]
    axes.set_xticks([place for place in fine if first <= place <= last], minor=True)
    axes.tick_params(which="minor", length=1.5, width=0.4, color=RULE)
    axes.tick_params(labelbottom=words)
    axes.set_xlim(low - 0.08, last + 0.04)
    if zero:
        axes.plot([first - 0.21, first - 0.17], [0, 0], color="white", linewidth=2.5, clip_on=False, zorder=6,
                  transform=axes.get_xaxis_transform())


def best_of(heads, column):
    """(layer, head, value) of the head with the largest number at the last step; None where there is no number."""
    last = heads[heads["step"] == heads["step"].max()]
    if not last[column].notna().any():
        return None
    row = last.loc[last[column].idxmax()]
    return int(row["layer"]), int(row["head"]), float(row[column])


def one_line_a_head(axes, heads, column, colour, words):
    """A column of every head over the steps, thin; the best of the last step bold and named. Returns the best's rows."""
    best, rows = best_of(heads, column), None
    for end, mine in heads.groupby(["layer", "head"]):
        if best and end == best[:2]:
            rows = mine
        else:
            over_steps(axes, mine, column, color=colour, linewidth=0.5, alpha=0.35)
    if rows is not None:
        digits = 2 if abs(best[2]) < 1 else 1
        over_steps(axes, rows, column, color=colour, linewidth=1.6, zorder=3,
                   label=f"{words}{head_name(*best[:2])}: {best[2]:.{digits}f}".replace("-", "−"))
    return rows


def score_panel(axes, heads, threshold):
    """Previous-token and induction scores of every head, the best induction head also on its control."""
    one_line_a_head(axes, heads, "previous_token", PREVIOUS, "previous token ")
    rows = one_line_a_head(axes, heads, "induction", MATCHING, "induction ")
    if rows is not None:
        over_steps(axes, rows, "induction_control", color=GREY, linewidth=1.0, dashes=(3, 2),
                   label="its control")
    axes.axhline(threshold, color=RULE, linewidth=0.6, dashes=(5, 3), zorder=0)
    axes.set_ylim(-0.02, 1.02)


def loss_panel(axes, steps):
    """Loss of both copies and of the held-out text."""
    for column, colour, words in (("first_copy_loss", GREY, "first copy"), ("second_copy_loss", MATCHING, "second copy"),
                                  ("held_out_loss", INK, "held-out text")):
        over_steps(axes, steps, column, color=colour, linewidth=1.3, label=words)


def first_above(heads, threshold):
    """The first step at which some head's induction score is above the threshold; None where there is none."""
    steps = heads.loc[heads["induction"] > threshold, "step"]
    return int(steps.min()) if len(steps) else None


def mark(axes, place, words=None, **options):
    """A line from top to bottom at a place, with words above it."""
    axes.axvline(place, color=RULE, linewidth=0.8, zorder=0, **options)
    if words:
        axes.text(place, 1.0, words + " ", fontsize=6.5, color=SOFT, ha="right", va="bottom",
                  transform=axes.get_xaxis_transform())


def phase_change(steps, heads, kind="png", *, caption=None, threshold=0.4, turns=None, title="How the heads came to be"):
    """Scores, losses and in-context learning over training, one column of panels a run: a matplotlib Figure.

    steps: a row a checkpoint: run (its label), step, first_copy_loss, second_copy_loss, held_out_loss, in_context,
    in_context_se (nats). heads: a row a head and checkpoint: run, step, layer, head, previous_token, induction,
    induction_control and, where it was measured, copying_second. caption: None = what `phase_caption` says of the defaults
    of `scripts/reproduce_induction.py`. turns: {run: step at which its training changed}, marked by a dotted line.
    """
    runs, first = list(dict.fromkeys(steps["run"])), min(steps.loc[steps["step"] > 0, "step"], default=1)
    steps, heads = (table.assign(place=places_of(table["step"], first)) for table in (steps, heads))
    caption = caption or phase_caption([(run, None) for run in runs], n_sequences=16, period=50, seed=0, windows=64)
    names = list(HEIGHTS)
    if "copying_second" not in heads or not heads["copying_second"].notna().any():
        names.remove("copying (logit)")
    gap, margin, head, space = 0.17, 0.62, 0.28, 0.2
    wide = (WIDTH - margin - 0.15 - space * (len(runs) - 1)) / len(runs)
    figure, place = sheet(title, caption, head + sum(HEIGHTS[name] + gap for name in names) + 0.3)
    grid = {}
    for column, run in enumerate(runs):
        mine, points, top = heads[heads["run"] == run], steps[steps["run"] == run], head
        passed = first_above(mine, threshold)
        for name in names:
            axes = grid[name, column] = place(margin + column * (wide + space), top, wide, HEIGHTS[name])
            top += HEIGHTS[name] + gap
            if name == "score":
                score_panel(axes, mine, threshold)
                axes.set_title(run, fontsize=8.5, color=INK, loc="left", pad=5)
            elif name == "copying (logit)":
                one_line_a_head(axes, mine, "copying_second", LATER, "")
            elif name == "loss (nats)":
                loss_panel(axes, points)
            else:
                over_steps(axes, points, "in_context", "in_context_se", color=LATER, linewidth=1.3)
            if name not in ("score", "loss (nats)"):
                axes.axhline(0, color=RULE, linewidth=0.6, dashes=(1, 2), zorder=0)
            if passed is not None:
                mark(axes, places_of(passed, first), f"{threshold:g} passed at step {passed:,}" if name == "score" else None)
            if turns and run in turns:
                mark(axes, places_of(turns[run], first), linestyle=(0, (1, 2)))
            step_axis(axes, steps["place"], first, words=name == names[-1])
            if axes.get_legend_handles_labels()[1]:
                axes.legend(frameon=False, fontsize=6.5, labelcolor=INK, handlelength=1.6, labelspacing=0.3,
                            loc="lower left" if name == "loss (nats)" else "upper left")
        axes.set_xlabel("training step")
    for name in names:                           # one scale a row, so that the runs compare
        row = [grid[name, column] for column in range(len(runs))]
        low, high = min(axes.get_ylim()[0] for axes in row), max(axes.get_ylim()[1] for axes in row)
        row[0].set_ylabel(name)
        for axes in row:
            axes.set_ylim(low, high)
            axes.tick_params(labelleft=axes is row[0])
    return figure
