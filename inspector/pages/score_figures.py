"""The figures of scores: a map of each score over layers and heads, on a fixed scale from 0 to 1."""

import math
from functools import partial

from . import figures, painting
from .figures import SOFT, drawable
from .painting import Sheet, Word

COLUMNS = 3
WIDE, GAP, BELOW, TOP, MARGIN = 2.1, 0.4, 0.56, 0.96, 0.46      # inches, whole pixels


def sheet(names, n_layer, n_head):
    """The Sheet for maps of these scores: layers down, heads across."""
    tall = figures.snapped(WIDE * min(2.5, max(0.4, n_layer / n_head)))
    rows = math.ceil(len(names) / COLUMNS)
    figure, axes = figures.blank(MARGIN + COLUMNS * (WIDE + GAP) - GAP + 0.16, TOP + rows * (tall + BELOW) - 0.16)
    boxes = [(MARGIN + at % COLUMNS * (WIDE + GAP), TOP + at // COLUMNS * (tall + BELOW), WIDE, tall)
             for at in range(len(names))]
    bar = (figure.get_figwidth() - 0.16 - 1.8, 0.22, 1.8, 0.1)
    for (left, top, *_), name in zip(boxes, names, strict=True):
        figures.hatching(axes, (left, top, WIDE, tall))
        figures.text(axes, left, top - 0.06, name, fontsize=9)
        for i in range(0, n_layer, math.ceil(0.14 * n_layer / tall)):
            figures.text(axes, left - 0.05, top + (i + 0.5) / n_layer * tall, str(i), ha="right", va="center", fontsize=7)
        for i in range(0, n_head, math.ceil(0.17 * n_head / WIDE)):
            at = left + (i + 0.5) / n_head * WIDE
            figures.text(axes, at, top + tall + 0.05, str(i), ha="center", va="top", fontsize=7)
    for tick in (0, 0.25, 0.5, 0.75, 1):
        figures.text(axes, bar[0] + tick * bar[2], 0.36, f"{tick:.3g}", fontsize=6.5, ha="center", va="top")
    return Sheet(figure, axes, boxes, bar, MARGIN)


def marks(sheet, maps, title, how=""):
    """(grids, words) of one figure. maps: a [layer, head] for each name; how: the protocol, in a few words."""
    colours = [figures.coloured(values.detach().cpu().double().numpy()) for values in maps]
    what = "layers down, heads across; hatched: no value" + (f"; {how}" if how else "")
    return ([*zip(sheet.boxes, colours, strict=True), (sheet.bar, figures.ramp())],
            [Word(sheet.margin, 0.32, drawable(title, 60), 11), Word(sheet.margin, 0.50, what, 7, SOFT)])


def score_figure(maps, title, *, how=""):
    """Maps of scores as one matplotlib Figure, whole. maps: [(name, [layer, head])]; how: see `marks`."""
    names, values = zip(*maps, strict=True)
    own = sheet(names, *values[0].shape)
    return painting.whole(own, *marks(own, values, title, how))


def files(wanted, names, n_layer, n_head):
    """`painting.files` of figures of the same scores. wanted: (stem, arguments of `marks` behind the sheet) of each."""
    return painting.files(partial(sheet, names, n_layer, n_head), marks, wanted)
