"""The study's heads as pictures: maps of measures, matching against copying, and how a threshold changes the list."""

import math

import numpy as np
import pandas as pd

from . import palette
from .captions import maps_caption, matching_caption, measure, threshold_caption
from .plots import INK, KINDS, OTHER, RULE, SOFT, WIDTH, is_of, key_of_kinds, kind_of, name_points, names_of, sheet
from .words import short

MOST_NAMES = 30                                 # names beside points; beyond that they would hide them
MOST_ROWS = 40                                  # heads of the threshold figure
# Measures from 0 to 1; every other one is signed, and drawn on a diverging scale.
SHARES = ("previous_token", "current_token", "first_token", "duplicate_token", "induction", "prefix_matching",
          "entropy_relative", "ov_positive", "qk_symmetric", "positional_previous")


def grid_of(table, column):
    """A column of a table of heads as [layer, head]; NaN where there is no row or no finite value."""
    layer, head = table["layer"].to_numpy(int), table["head"].to_numpy(int)
    values = np.full((layer.max() + 1, head.max() + 1), np.nan)
    values[layer, head] = table[column].astype(float)
    return np.where(np.isfinite(values), values, np.nan)


def _cell_words(value, signed, limit):
    """A number as it fits a cell: .93, <.01, −2.4; of a signed measure no larger than 1: −.24."""
    if not signed:
        return short(value)
    text = f"{value:.2f}".replace("0.", ".") if limit <= 1 else f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    return text.replace("-", "−") if float(text) else "0"


def _map(axes, values, signed, tall, wide):
    """One map on its axes, numbers in the cells where they fit. Returns the largest value of its scale, at least 1."""
    from matplotlib.patches import Rectangle
    n_layer, n_head = values.shape
    limit = max(1.0, np.nanmax(np.abs(values), initial=0)) if signed else 1.0
    colours, low = (palette.diverging(), -limit) if signed else (palette.colormap(), 0)
    axes.add_patch(Rectangle((-0.5, -0.5), n_head, n_layer, facecolor="white", edgecolor="#cfc9bd", hatch="////",
                             linewidth=0, zorder=-1))
    axes.imshow(values, cmap=colours, vmin=low, vmax=limit, aspect="auto", interpolation="none")
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color(RULE)
    axes.set_xticks(range(0, n_head, math.ceil(0.17 * n_head / wide)))
    axes.set_yticks(range(0, n_layer, math.ceil(0.14 * n_layer / tall)))
    axes.tick_params(labelsize=6.5, length=0)
    words = {cell: _cell_words(value, signed, limit) for cell, value in np.ndenumerate(values) if np.isfinite(value)}
    longest = max(map(len, words.values()), default=1)
    size = min(7, 72 * wide / n_head * 0.86 / (0.62 * longest), 72 * tall / n_layer * 0.62)
    if size >= 4.5:
        for (layer, head), word in words.items():
            red, green, blue, _ = colours((values[layer, head] - low) / (limit - low))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
            axes.text(head, layer, word, fontsize=size, ha="center", va="center_baseline", color="white" if dark else INK)
    return limit


def _scale(axes, signed, limit, wide):
    """The colour bar of one map."""
    axes.imshow(np.linspace(0, 1, 128)[None], cmap=palette.diverging() if signed else palette.colormap(), aspect="auto",
                extent=(0, wide, 0, 1))
    axes.set_yticks([])
    ticks = (-limit, 0, limit) if signed else (0, 0.5, 1)
    axes.set_xticks([wide * (0.5 + t / limit / 2) if signed else wide * t for t in ticks],
                    [f"{t:.2g}".replace("-", "−") for t in ticks])
    axes.tick_params(labelsize=6, length=0, pad=1.5)
    for side in axes.spines.values():
        side.set_visible(False)


def score_maps(table, columns, run, kind="png", *, title="What every head does"):
    """Maps over layers (down) and heads (across), side by side: a matplotlib Figure.

    table: a row a head (layer, head, the columns, verdict: list of words). SHARES are drawn on a scale from 0 to 1, all
    other measures on a diverging one, 0 in its middle. Heads with a verdict of `plots.KINDS` are framed.
    """
    from matplotlib.patches import Rectangle
    grids = {column: grid_of(table, column) for column in columns}
    n_layer, n_head = next(iter(grids.values())).shape
    rows = math.ceil(len(columns) / (3 if n_head <= 8 else 2 if n_head <= 16 else 4))
    across = math.ceil(len(columns) / rows)
    gap, margin = 0.42, 0.32
    wide = (WIDTH - margin - 0.2 - gap * (max(across, 2) - 1)) / max(across, 2)
    tall = wide * min(2.0, max(0.13, n_layer / n_head * (0.72 if n_head <= 16 else 0.9)))
    step = tall + 0.78
    kinds = [kind for kind in KINDS if is_of(table, kind).any()]
    figure, place = sheet(title, maps_caption(columns, run), rows * step + (0.3 if kinds else 0.05))
    for n, (column, values) in enumerate(grids.items()):
        left, top = margin + n % across * (wide + gap), 0.22 + n // across * step
        axes = place(left, top, wide, tall)
        signed = column not in SHARES
        limit = _map(axes, values, signed, tall, wide)
        axes.set_title(measure(column).title, fontsize=8, color=INK, loc="left", pad=4)
        _scale(place(left + 0.55 * wide, top + tall + 0.24, 0.45 * wide, 0.06), signed, limit, 1.0)
        for row in table.itertuples():
            if kind_of(row.verdict) is not OTHER:
                axes.add_patch(Rectangle((row.head - 0.5, row.layer - 0.5), 1, 1, fill=False, zorder=4, clip_on=False,
                                         edgecolor=kind_of(row.verdict).colour, linewidth=1.4 if n_head <= 16 else 0.8))
    if kinds:
        key = place(margin, rows * step + 0.02, WIDTH - 0.5, 0.25)
        key.set_axis_off()
        key_of_kinds(key, kinds, loc="center left", ncols=len(kinds), columnspacing=1.2)
    return figure


def matching_against_copying(table, run, kind="png", *, x="induction", y="copying_second", threshold=0.4,
                             title="Heads that match, and heads that copy"):
    """Every head as a point, matching across and copying up, the found ones by name: a matplotlib Figure.

    table: layer, head, x, y (and x_se, y_se, x_uniform, y_level where there are), verdict. Heads without a value of either
    are left out, and the caption counts them. threshold: of x, where it has one.
    """
    known = table[np.isfinite(table[[x, y]].astype(float)).all(axis=1)]
    found = known[is_of(known, *KINDS)]
    found = found.sort_values(x, ascending=False, kind="stable")
    caption = matching_caption(x, y, threshold, run, absent=len(table) - len(known),
                               unnamed=max(0, len(found) - MOST_NAMES))
    figure, place = sheet(title, caption, 4.75)
    axes = place(0.62, 0.1, WIDTH - 0.85, 4.05)
    axes.set_xlabel(measure(x).title)
    axes.set_ylabel(measure(y).title)
    up = known[y].astype(float)
    low, high = (min(0, up.min()), max(0, up.max())) if len(up) else (-1, 1)
    room = 0.12 * ((high - low) or 1)
    axes.set(xlim=(-0.03, max(1.03, known[x].max() * 1.03 if len(known) else 0)), ylim=(low - room, high + room))
    if threshold is not None:
        axes.axvline(threshold, color=RULE, linewidth=0.7, dashes=(5, 3), zorder=0)
        axes.text(threshold, 1.005, f"threshold {threshold:g}", transform=axes.get_xaxis_transform(), fontsize=6.5,
                  color=SOFT, ha="center", va="bottom")
    level = float(table[x + "_uniform"].iloc[0]) if x + "_uniform" in table and len(table) else math.nan
    if math.isfinite(level):
        axes.axvline(level, color=RULE, linewidth=0.7, dashes=(1, 2), zorder=0)
    level = float(table[y + "_level"].iloc[0]) if y + "_level" in table and len(table) else 0
    axes.axhline(level, color=RULE, linewidth=0.7, dashes=(1, 2), zorder=0)
    shown = []
    for each in (OTHER, *reversed(KINDS)):            # the found ones on top
        mine = known[is_of(known, each)]
        if len(mine):
            shown.insert(0, each)
            errors = [mine[name + "_se"] if name + "_se" in mine and each is not OTHER else None for name in (y, x)]
            axes.errorbar(mine[x], mine[y], *errors, linestyle="", marker=each.marker, color=each.colour, elinewidth=0.6,
                          markersize=3 if each is OTHER else 5.5, markeredgewidth=0.5, markeredgecolor="white", zorder=3)
    named = found.head(MOST_NAMES)
    name_points(axes, named[x].to_numpy(float), named[y].to_numpy(float), names_of(named), (known[x], known[y]))
    key = place(0.5, 4.5, WIDTH - 0.7, 0.25)
    key.set_axis_off()
    key_of_kinds(key, shown, loc="center left", ncols=len(shown), columnspacing=1.2)
    if not len(found):
        axes.text(0.7, 0.75, "no head has a verdict", transform=axes.transAxes, fontsize=8, color=SOFT, ha="center")
    return figure


def threshold_figure(table, thresholds, run, kind="png", *, title="How the threshold changes the list"):
    """Which heads are induction heads at each threshold: a matplotlib Figure.

    table: a row a head: layer, head, induction, induction_se. thresholds: a row a threshold: threshold, induction_heads and
    anti_induction_heads (names, parted by spaces).
    """
    names = pd.Series(names_of(table), index=table.index)
    sets = [(KINDS[0], "induction_heads"), (KINDS[1], "anti_induction_heads")]
    of_kind = {kind: names.isin({name for cell in thresholds[column] for name in cell.split()}) for kind, column in sets}
    ranked = table[of_kind[KINDS[0]] | of_kind[KINDS[1]]].sort_values("induction", ascending=False, kind="stable")
    shown = ranked.head(MOST_ROWS)
    tall = max(0.5, 0.17 * len(shown))
    figure, place = sheet(title, threshold_caption(len(ranked), len(shown), run), tall + 1.0)
    axes = place(0.62, 0.3, WIDTH - 0.85, tall)
    axes.set(xlim=(thresholds["threshold"].min() - 0.05, 1.02), ylim=(max(1, len(shown)) - 0.4, -0.6),
             xlabel="induction score (the stripe)")
    axes.set_yticks(range(len(shown)), names[shown.index])
    for row in thresholds.itertuples():
        axes.axvline(row.threshold, color=RULE, linewidth=0.6, dashes=(5, 3), zorder=0)
        axes.text(row.threshold, 1.02, f"> {row.threshold:g}: {len(row.induction_heads.split())}", fontsize=7, color=INK,
                  ha="center", va="bottom", transform=axes.get_xaxis_transform())
    kinds = [kind for kind, _ in sets if of_kind[kind][shown.index].any()]
    for kind in kinds:
        rows = np.flatnonzero(of_kind[kind][shown.index])
        axes.errorbar(shown["induction"].iloc[rows], rows, xerr=shown["induction_se"].iloc[rows], linestyle="", markersize=5,
                      marker=kind.marker, color=kind.colour, markeredgewidth=0, elinewidth=0.7)
    if not kinds:
        axes.text(0.5, 0.5, "no head matches and copies", transform=axes.transAxes, fontsize=8, color=SOFT, ha="center",
                  va="center")
    key = place(0.5, tall + 0.72, WIDTH - 0.7, 0.22)
    key.set_axis_off()
    key_of_kinds(key, kinds, loc="center left", ncols=2, columnspacing=1.2)
    return figure
