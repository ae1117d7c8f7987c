"""The study's heads as graphs: who writes into whom (composition), and the circuits that the causal test confirms."""

import numpy as np

from .captions import circuit_caption, web_caption
from .plots import GREY, INK, KINDS, OTHER, SOFT, WIDTH, bare, key_of_kinds, kind_of, sheet
from .words import head_name, number, plural

MOST_EDGES = 60
MOST_PAIRS = 16


def _curve(axes, start, end, **options):
    """A line from left to right that leaves and arrives level."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    (x0, y0), (x1, y1) = start, end
    bend = (x1 - x0) * 0.45
    path = Path([(x0, y0), (x0 + bend, y0), (x1 - bend, y1), (x1, y1)], [Path.MOVETO] + [Path.CURVE4] * 3)
    axes.add_patch(PathPatch(path, fill=False, capstyle="round", **options))


def composition_web(pairs, table, run, kind="png", *, which="k", title=None):
    """Which earlier head writes into which later one, strongest first: a matplotlib Figure.

    pairs: as `Circuits.pairs`: layer_from, head_from, layer, head, {which}_composition_excess (above the baseline's mean)
    and {which}_composition_high (above its 99th percentile). table: layer, head, verdict. which: "q", "k" or "v".
    """
    excess, above = f"{which}_composition_excess", f"{which}_composition_high"
    n_layer, n_head = int(table["layer"].max()) + 1, int(table["head"].max()) + 1
    strong = pairs[pairs[above].astype(bool) & (pairs[excess] > 0)].sort_values(excess, ascending=False, kind="stable")
    drawn = strong.head(MOST_EDGES)
    kinds = {(row.layer, row.head): kind_of(row.verdict) for row in table.itertuples()}
    wide, row = WIDTH - 0.7, min(0.34, max(0.13, 4.0 / n_head))
    tall = row * n_head
    figure, place = sheet(title or f"{which.upper()}-composition between heads",
                          web_caption(which, len(strong), len(drawn), len(pairs), run), tall + 0.75)
    axes = bare(place(0.5, 0.05, wide, tall + 0.35), wide, tall + 0.35)

    def spot(layer, head):
        return 0.15 + (wide - 0.45) * (layer / max(1, n_layer - 1)), (head + 0.5) * row

    largest = drawn[excess].max() if len(drawn) else 1
    for edge in drawn.iloc[::-1].itertuples():           # the strongest on top
        ends = (edge.layer_from, edge.head_from), (edge.layer, edge.head)
        known = all(kinds.get(end, OTHER) is not OTHER for end in ends)
        share = getattr(edge, excess) / largest
        _curve(axes, spot(*ends[0]), spot(*ends[1]), linewidth=0.3 + 2.7 * share, zorder=3 if known else 1,
               edgecolor=kinds[ends[1]].colour if known else GREY, alpha=0.9 if known else 0.15 + 0.5 * share)
    for (layer, head), each in sorted(kinds.items()):
        x, y = spot(layer, head)
        found = each is not OTHER
        axes.plot(x, y, linestyle="", marker=each.marker, color=each.colour, zorder=5, markeredgecolor="white",
                  markeredgewidth=0.5, markersize=min(8, row * 42) if found else min(5, row * 28))
        if found and len(kinds) <= 400:
            axes.text(x + 0.075, y - 0.4 * row, head_name(layer, head), fontsize=6.5, color=INK, zorder=6, va="center",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.75})
    for layer in range(n_layer):
        if layer % -(-n_layer // 24) == 0:
            axes.text(spot(layer, 0)[0], tall + 0.12, f"{layer}", fontsize=7, color=SOFT, ha="center", va="center")
    axes.text(wide / 2, tall + 0.29, "layer", fontsize=7.5, color=INK, ha="center", va="center")
    for head in range(0, n_head, -(-n_head // 24)):
        axes.text(-0.12, spot(0, head)[1], f"{head}", fontsize=7, color=SOFT, ha="right", va="center")
    axes.text(-0.38, tall / 2, "head", fontsize=7.5, color=INK, ha="center", va="center", rotation=90)
    if not len(drawn):
        words = "a single layer: no pair" if n_layer == 1 else "no pair above the baseline"
        axes.text(wide / 2, tall / 2, words, fontsize=8, color=SOFT, ha="center", va="center",
                  bbox={"facecolor": "white", "edgecolor": "none"})
    shown = [each for each in KINDS if each in kinds.values()]
    if shown:
        key = place(0.5, tall + 0.48, wide, 0.2)
        key.set_axis_off()
        key_of_kinds(key, shown, loc="center left", ncols=len(shown), columnspacing=1.2)
    return figure


COLUMNS = {"clean": "clean", "cut": "cut", "q": "q", "k": "k", "direct": "direct", "control_k": "k,\ncontrol",
           "v_kept": "v left\n(logit)", "k_composition_excess": "K-comp."}


def _chosen(causes):
    """(the pairs to draw, what to say): those that agree, with the largest falls; where none does, the nearest three."""
    agreed = causes[causes["agrees"].astype(bool)]
    pairs = agreed if len(agreed) else causes
    fall = (pairs["clean"] - pairs["k"]).sort_values(ascending=False, kind="stable")
    shown = pairs.loc[fall.index[:MOST_PAIRS if len(agreed) else 3]]
    shown = shown.sort_values(["layer", "head", "layer_from", "head_from"], kind="stable")
    if not len(causes):
        return shown, "No pair to test: no previous-token head stands in a layer before an induction head."
    if not len(agreed):
        return shown, f"None of {plural(len(causes), 'pair')} agrees; the nearest:"
    words = f"{len(agreed)} of {plural(len(causes), 'pair')} tested agree{'s' if len(agreed) == 1 else ''}"
    return shown, words + (f"; the {len(shown)} with the largest fall are drawn" if len(shown) < len(agreed) else "")


def _heights(shown, names, slots):
    """Where the heads at one side stand, evenly, in the order of the rows they belong to: {(layer, head): y}."""
    middle = {end: float(np.mean([slots[key] for key in keys])) for end, keys in shown.groupby(names).groups.items()}
    low, step = min(slots.values(), default=0), (max(slots.values(), default=0) - min(slots.values(), default=0)) or 1
    ends = sorted(middle, key=lambda end: (middle[end], end))
    if len(ends) == 1 or names[0] == "layer":
        return middle
    return {end: low + step * (n + 0.5) / len(ends) for n, end in enumerate(ends)}


def circuit(causes, table, run, kind="png", *, title="The circuit: previous-token head to induction head"):
    """Pairs that agree in the causal test, the numbers on their edges: a matplotlib Figure.

    causes: layer_from, head_from, layer, head, clean, cut, q, k, direct (the later head's stripe), agrees (bool), and where
    they were measured control_k, logit and logit_v, k_composition_excess. table: layer, head, verdict. Where no pair agrees
    the figure says so and shows the nearest.
    """
    shown, words = _chosen(causes)
    if "logit_v" in shown:
        shown = shown.assign(v_kept=shown["logit_v"] / shown["logit"])
    row, head = 0.34, 0.55
    tall = head + row * len(shown) if len(shown) else 0.3
    figure, place = sheet(title, circuit_caption(run), tall + 0.1)
    axes = bare(place(0, 0, WIDTH, tall), WIDTH, tall)
    axes.text(0.15, 0.12, words, fontsize=8, color=INK, va="center")
    slots = {key: head + row * (n + 0.5) for n, key in enumerate(shown.index)}
    left, right = _heights(shown, ["layer_from", "head_from"], slots), _heights(shown, ["layer", "head"], slots)
    x_left, x_fan, x_end, x_right = 0.75, 1.9, WIDTH - 1.3, WIDTH - 0.75
    columns = [name for name in COLUMNS if name in shown and len(shown)]
    at = dict(zip(columns, np.linspace(x_fan + 0.3, x_end - 0.15, len(columns)), strict=True))
    for name in columns:
        axes.text(at[name], head - 0.12, COLUMNS[name], fontsize=7, color=SOFT, ha="center", va="center")
    for key, pair in shown.iterrows():
        y = slots[key]
        options = {"linewidth": 1.2, "edgecolor": KINDS[0].colour if pair["agrees"] else GREY,
                   "linestyle": "solid" if pair["agrees"] else (0, (3, 2))}
        _curve(axes, (x_left, left[pair["layer_from"], pair["head_from"]]), (x_fan, y), **options)
        _curve(axes, (x_fan, y), (x_end, y), **options)
        _curve(axes, (x_end, y), (x_right, right[pair["layer"], pair["head"]]), **options)
        for name in columns:
            axes.text(at[name], y, number(pair[name], 3 if name == "k_composition_excess" else 2), fontsize=7.5, ha="center",
                      va="center", color=INK, fontweight="bold" if name == "k" else "normal",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})
    kinds = {(row.layer, row.head): kind_of(row.verdict) for row in table.itertuples()}
    for ends, x, side, aside in ((left, x_left, "right", -0.12), (right, x_right, "left", 0.12)):
        for end, y in ends.items():
            each = kinds.get(end, OTHER)
            axes.plot(x, y, linestyle="", marker=each.marker, color=each.colour, markersize=8, markeredgecolor="white",
                      zorder=4)
            axes.text(x + aside, y, head_name(*map(int, end)), fontsize=8, color=INK, ha=side, va="center")
    return figure
