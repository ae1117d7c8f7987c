"""The figures of layers: one sheet for all of them, and upon it what differs from layer to layer.

Text is what a figure costs. The token labels, the hatching and the explanation are the same in every layer, and so is the
place of everything else; they are drawn once. A layer then puts its grids, title, names and ticks on the sheet: in PNG as
pixels, a grid's taken straight from its cells, in SVG as elements behind those of the sheet. `layer_figure` is the same
figure in matplotlib alone.
"""

import io
import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from html import escape
from typing import Any, NamedTuple

import numpy as np

from . import cells, figures
from .figures import SOFT, drawable
from .words import head_name

MOST_LABELS = 26        # along one grid
FINEST = 512            # cells a side of one grid; longer texts are drawn in blocks
SIDE, GAP, TOP = 2.7, 0.3, 0.95                                  # inches
INK, EDGE, THIN = "#000000", "#8a8597", 0.6
VALUES = "value-weighted: weight times the length of v W_O; the scale ends at the layer's largest"
TICKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
VALUE_TICKS = (0, 0.1, 0.25, 0.5, 1)


class Sheet(NamedTuple):
    """What the figures of all layers share."""

    figure: Any             # matplotlib's, with labels, hatching and explanation on it
    axes: Any               # its one axes, in inches from the top left
    boxes: list             # [head], (left, top, width, height) of each grid
    bar: tuple              # the same of the colour bar
    margin: float           # where text begins
    n: int                  # tokens


class Word(NamedTuple):
    """A text at (x, y) inches, `size` points: begins there and stands on y; `middle`: is centred there and hangs from y."""

    x: float
    y: float
    text: str
    size: float
    colour: str = INK
    middle: bool = False


def sheet(labels, n_head):
    """The Sheet for patterns over these tokens. labels: [pos]."""
    n = len(labels)
    columns = math.ceil(math.sqrt(n_head * 4 / 3))
    rows = math.ceil(n_head / columns)
    step = math.ceil(n / MOST_LABELS)
    size = min(8.0, 0.72 * 72 * SIDE / n * step)
    names = [drawable(label) for label in labels]
    margin = 0.25 + max(map(len, names)) * size * 0.62 / 72
    width = max(margin + columns * SIDE + (columns - 1) * GAP + 0.15, margin + 5)
    figure, axes = figures.blank(width, TOP + rows * (SIDE + GAP) - GAP + margin)
    boxes = [(margin + (h % columns) * (SIDE + GAP), TOP + (h // columns) * (SIDE + GAP), SIDE, SIDE) for h in range(n_head)]
    bar = (width - 0.15 - 1.8, 0.22, 1.8, 0.09)
    for box in [*boxes, bar]:
        figures.hatching(axes, box)
    for h, (left, top, _, _) in enumerate(boxes):
        for i in range(0, n, step):
            at = (i + 0.5) / n * SIDE
            if h % columns == 0:
                axes.text(left - 0.05, top + at, names[i], ha="right", va="center", fontsize=size)
            if h + columns >= n_head:
                axes.text(left + at, top + SIDE + 0.05, names[i], ha="center", va="top", rotation=90, fontsize=size)
    block = cells.block_size(n, FINEST)
    what = "row: query, the token that looks; column: key, the token looked at; hatched: masked"
    what += f"; one token in {step} is named" if step > 1 else ""
    what += f"; one cell: the largest weight of {block} x {block} tokens" if block > 1 else ""
    axes.text(margin, 0.50, what, fontsize=7, color=SOFT)
    return Sheet(figure, axes, boxes, bar, margin, n)


def marks(sheet, pattern, title, layer, weighted=False):
    """(grids, words): [(box, colours)] and [Word], what one layer puts on the sheet.

    pattern: [head, query, key]. colours: uint8 [rows, columns, 4], a masked cell transparent. Colour is the square root of
    the weight on a fixed scale from 0 to 1, as the bar says; `weighted`: the scale ends at the largest number.
    """
    full = (float(pattern.max()) or 1.0) if weighted else 1.0
    shown = cells.pool(cells.mask(pattern), cells.block_size(sheet.n, FINEST))               # [head, query, key]
    colours = figures.coloured(np.sqrt(shown.detach().cpu().double().numpy() / full))        # [head, query, key, 4]
    left, _, width, _ = sheet.bar
    texts = [Word(sheet.margin, 0.32, drawable(title, 60), 11)]
    texts += [Word(sheet.margin, 0.64, VALUES, 7, SOFT)] * weighted
    texts += [Word(left + math.sqrt(part) * width, 0.36, f"{full * part:.3g}", 6.5, middle=True)
              for part in (VALUE_TICKS if weighted else TICKS)]
    texts += [Word(box[0], box[1] - 0.05, head_name(layer, h), 9) for h, box in enumerate(sheet.boxes)]
    return [*zip(sheet.boxes, colours, strict=True), (sheet.bar, figures.ramp())], texts


def write(axes, word):
    """A Word as matplotlib's artist on the axes."""
    across, up = ("center", "top") if word.middle else ("left", "baseline")
    return axes.text(word.x, word.y, word.text, fontsize=word.size, color=word.colour, ha=across, va=up)


def layer_figure(pattern, labels, title, layer, weighted=False):
    """All heads of a layer as one matplotlib Figure, whole. pattern: [head, query, key]; labels: [pos]."""
    own = sheet(labels, len(pattern))
    grids, texts = marks(own, pattern, title, layer, weighted)
    for box, colours in grids:
        figures.image(own.axes, colours, box)
        figures.frame(own.axes, box)
    for word in texts:
        write(own.axes, word)
    return own.figure


# -- files -----------------------------------------------------------------------------------------------------------

def svg_marks(sheet, grids, texts):
    """The marks as SVG elements, in points. A grid is an image of its own cells: nothing is lost."""
    found = []
    for (left, top, width, height), colours in grids:
        at = f'x="{72 * left:.4f}" y="{72 * top:.4f}" width="{72 * width:.4f}" height="{72 * height:.4f}"'
        uri = cells.data_uri(cells.png(colours))
        found += [f'<image {at} preserveAspectRatio="none" style="image-rendering: pixelated" xlink:href="{uri}"/>',
                  f'<rect {at} style="fill: none; stroke: {EDGE}; stroke-width: {THIN}"/>']
    family = ", ".join(f"'{name}'" for name, _ in figures.fonts())
    for word in texts:
        # A baseline 0.76 of the size below the top is where DejaVu's digits hang from it.
        x, y = 72 * word.x, 72 * word.y + 0.76 * word.size * word.middle
        anchor = "middle" if word.middle else "start"
        found.append(f'<text x="{x:.4f}" y="{y:.4f}" style="font: {word.size}px {family}; fill: {word.colour}; '
                     f'text-anchor: {anchor}">{escape(word.text, quote=False)}</text>')
    return "\n".join(found)


def averaging(cells, pixels):
    """[pixel, cell]: how much of each pixel's width each cell covers, rows summing to 1."""
    edges = np.arange(cells + 1) * pixels / cells
    begin = np.arange(pixels)[:, None]
    return (np.minimum(begin + 1, edges[1:]) - np.maximum(begin, edges[:-1])).clip(0)


def resized(colours, height, width):
    """Grids at another size. colours: uint8 [..., rows, columns, 4] -> the same [..., height, width, 4].

    From 3 pixels a cell each pixel takes the cell at its middle; below, the average of what it covers.
    """
    rows, columns = colours.shape[-3:-1]
    if height >= 3 * rows and width >= 3 * columns:
        down, across = (((np.arange(n) + 0.5) * m / n).astype(int) for n, m in ((height, rows), (width, columns)))
        whole = np.ascontiguousarray(colours).view(np.uint32)[..., 0]          # four bytes at a time: ten times faster
        return np.ascontiguousarray(whole[..., down[:, None], across])[..., None].view(np.uint8)
    solid = colours / 255.0
    solid[..., :3] *= solid[..., 3:]                                           # a masked cell lends no colour
    mixed = np.einsum("hr,wc,...rcx->...hwx", averaging(rows, height), averaging(columns, width), solid, optimize=True)
    mixed[..., :3] /= np.where(mixed[..., 3:] > 0, mixed[..., 3:], 1)
    return np.rint(255 * mixed).astype(np.uint8, order="C")


def lay(pixels, colours, box, dpi):
    """Lay a grid on a picture. pixels: uint8 [rows, columns, 4], opaque, changed in place; box: in inches."""
    left, top, right, bottom = (round(edge * dpi) for edge in (box[0], box[1], box[0] + box[2], box[1] + box[3]))
    below = pixels[top:bottom, left:right]
    above = resized(colours, bottom - top, right - left)
    alpha = above[..., 3]
    clear = alpha == 0
    if (clear | (alpha == 255)).all():
        np.copyto(below.view(np.uint32)[..., 0], above.view(np.uint32)[..., 0], where=~clear)
    else:
        share = alpha[..., None] / 255
        below[..., :3] = np.rint(share * above[..., :3] + (1 - share) * below[..., :3])


def painter(sheet, dpi=150):
    """A function (grids, words) -> (pixels, SVG text): the sheet with these marks. The sheet itself is drawn here, once."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    text = io.BytesIO()
    FigureCanvasSVG(sheet.figure).print_svg(text, metadata={"Date": None})
    head, _, end = text.getvalue().decode("utf-8").rpartition("</svg>")
    sheet.figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(sheet.figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())                                  # a view: what the canvas draws, it shows
    bare = pixels.copy()
    for box in [*sheet.boxes, sheet.bar]:
        sheet.axes.draw_artist(figures.frame(sheet.axes, box))
    edge = (pixels != bare).any(-1).nonzero()                                  # frames lie on the grids
    framed = pixels[edge]
    pixels[:] = bare

    @cache
    def written(word):
        """(place, pixels) of a word on the bare sheet, to be put down again: many stand on several figures."""
        artist = write(sheet.axes, word)
        sheet.axes.draw_artist(artist)
        left, bottom, right, top = artist.get_window_extent().padded(1).extents
        artist.remove()
        place = (slice(max(0, math.floor(len(pixels) - top)), math.ceil(len(pixels) - bottom)),
                 slice(max(0, math.floor(left)), math.ceil(right)))
        found = pixels[place].copy()
        pixels[place] = bare[place]
        return place, found

    def paint(grids, texts):
        words = [written(word) for word in texts]
        for box, colours in grids:
            lay(pixels, colours, box, dpi)
        pixels[edge] = framed
        for place, found in words:
            pixels[place] = found
        done = pixels.copy()
        pixels[:] = bare
        return done, f"{head}{svg_marks(sheet, grids, texts)}\n</svg>{end}"

    return paint


def files(wanted, labels, n_head, dpi=150):
    """Yield (stem, "png" or "svg", bytes). wanted: (stem, arguments of `marks` behind the sheet) of each figure.

    A second thread squeezes one picture while the next is painted: half of the time goes there.
    """
    with figures.style(), ThreadPoolExecutor(1) as pool:
        own = sheet(labels, n_head)
        paint = painter(own, dpi)
        before = None
        for stem, asked in wanted:
            pixels, svg = paint(*marks(own, *asked))
            if before:
                yield before[0], "png", before[1].result()
            before = stem, pool.submit(cells.png, pixels, dpi)
            yield stem, "svg", svg.encode()
        if before:
            yield before[0], "png", before[1].result()
