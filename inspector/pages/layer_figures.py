"""The figures of layers: all heads of one as grids, with a label at every token there is room for."""

import math
from functools import partial

import numpy as np

from . import cells, figures, painting
from .figures import SOFT, drawable
from .painting import Sheet, Word
from .words import head_name

MOST_LABELS = 26        # along one grid
FINEST = 512            # cells a side of one grid; longer texts are drawn in blocks
SIDE, GAP, TOP = 2.7, 0.3, 0.96                                  # inches, whole pixels
VALUES = "value-weighted: weight times the length of v W_O; the scale ends at the layer's largest"
TICKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
VALUE_TICKS = (0, 0.1, 0.25, 0.5, 1)


def sheet(labels, n_head):
    """The Sheet for patterns over these tokens. labels: [pos]."""
    n = len(labels)
    columns = math.ceil(math.sqrt(n_head * 4 / 3))
    rows = math.ceil(n_head / columns)
    step = math.ceil(n / MOST_LABELS)
    size = min(8.0, 0.72 * 72 * SIDE / n * step)
    names = [drawable(label) for label in labels]
    margin = figures.snapped(0.25 + max(map(len, names)) * size * 0.62 / 72)
    width = max(margin + columns * SIDE + (columns - 1) * GAP + 0.16, margin + 5)
    figure, axes = figures.blank(width, TOP + rows * (SIDE + GAP) - GAP + margin)
    boxes = [(margin + (h % columns) * (SIDE + GAP), TOP + (h // columns) * (SIDE + GAP), SIDE, SIDE) for h in range(n_head)]
    bar = (width - 0.16 - 1.8, 0.22, 1.8, 0.1)
    for box in [*boxes, bar]:
        figures.hatching(axes, box)
    for h, (left, top, _, _) in enumerate(boxes):
        for i in range(0, n, step):
            at = (i + 0.5) / n * SIDE
            if h % columns == 0:
                figures.text(axes, left - 0.05, top + at, names[i], ha="right", va="center", fontsize=size)
            if h + columns >= n_head:
                figures.text(axes, left + at, top + SIDE + 0.05, names[i], ha="center", va="top", rotation=90, fontsize=size)
    block = cells.block_size(n, FINEST)
    what = "row: query, the token that looks; column: key, the token looked at; hatched: masked"
    what += f"; one token in {step} is named" if step > 1 else ""
    what += f"; one cell: the largest weight of {block} x {block} tokens" if block > 1 else ""
    figures.text(axes, margin, 0.50, what, fontsize=7, color=SOFT)
    return Sheet(figure, axes, boxes, bar, margin)


def marks(sheet, pattern, title, layer, weighted=False):
    """(grids, words): [(box, colours)] and [Word], what one layer puts on the sheet.

    pattern: [head, query, key]. colours: uint8 [rows, columns, 4], a masked cell transparent. Colour is the square root of
    the weight on a fixed scale from 0 to 1, as the bar says; `weighted`: the scale ends at the largest number.
    """
    full = (float(pattern.max()) or 1.0) if weighted else 1.0
    shown = cells.pool(cells.mask(pattern), cells.block_size(pattern.shape[-1], FINEST))               # [head, query, key]
    colours = figures.coloured(np.sqrt(shown.detach().cpu().double().numpy() / full))        # [head, query, key, 4]
    left, _, width, _ = sheet.bar
    texts = [Word(sheet.margin, 0.32, drawable(title, 60), 11)]
    texts += [Word(sheet.margin, 0.64, VALUES, 7, SOFT)] * weighted
    texts += [Word(left + math.sqrt(part) * width, 0.36, f"{full * part:.3g}", 6.5, middle=True)
              for part in (VALUE_TICKS if weighted else TICKS)]
    texts += [Word(box[0], box[1] - 0.05, head_name(layer, h), 9) for h, box in enumerate(sheet.boxes)]
    return [*zip(sheet.boxes, colours, strict=True), (sheet.bar, figures.ramp())], texts


def layer_figure(pattern, labels, title, layer, weighted=False):
    """All heads of a layer as one matplotlib Figure, whole. pattern: [head, query, key]; labels: [pos]."""
    own = sheet(labels, len(pattern))
    return painting.whole(own, *marks(own, pattern, title, layer, weighted))


def files(wanted, labels, n_head):
    """`painting.files` of figures over the same tokens. wanted: (stem, arguments of `marks` behind the sheet) of each."""
    return painting.files(partial(sheet, labels, n_head), marks, wanted)
