"""Figures that share much: one sheet for all of them, and upon it what differs from figure to figure.

Text is what a figure costs. What the figures of a kind have alike, labels, hatching, explanation, and the place of
everything else, is drawn once by matplotlib: the sheet. A figure then puts its grids, title, names and ticks on it: in PNG
as pixels, a grid's taken straight from its cells, in SVG as elements behind those of the sheet. `whole` is the same figure
in matplotlib alone. Sizes in inches from the top left.
"""

import io
import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from html import escape
from typing import Any, NamedTuple

import numpy as np

from . import cells, figures
from .figures import DPI, EDGE

INK, THIN = "#000000", 0.6


class Sheet(NamedTuple):
    """What the figures of a kind share."""

    figure: Any             # matplotlib's, with labels, hatching and explanation on it
    axes: Any               # its one axes, in inches from the top left
    boxes: list             # (left, top, width, height) of each grid, all on whole pixels: see `figures.snapped`
    bar: tuple              # the same of the colour bar
    margin: float           # where text begins


class Word(NamedTuple):
    """A text at (x, y) inches, `size` points: begins there and stands on y; `middle`: is centred there and hangs from y."""

    x: float
    y: float
    text: str
    size: float
    colour: str = INK
    middle: bool = False


def write(axes, word):
    """A Word as matplotlib's artist on the axes."""
    across, up = ("center", "top") if word.middle else ("left", "baseline")
    return figures.text(axes, word.x, word.y, word.text, fontsize=word.size, color=word.colour, ha=across, va=up)


def whole(sheet, grids, words):
    """The sheet's own matplotlib Figure with these marks. grids: [(box, colours)]; words: [Word]."""
    for box, colours in grids:
        figures.image(sheet.axes, colours, box)
        figures.frame(sheet.axes, box)
    for word in words:
        write(sheet.axes, word)
    return sheet.figure


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
        return whole.take(across, axis=-1).take(down, axis=-2)[..., None].view(np.uint8)
    solid = colours / 255.0
    solid[..., :3] *= solid[..., 3:]                                           # a masked cell lends no colour
    mixed = np.einsum("hr,wc,...rcx->...hwx", averaging(rows, height), averaging(columns, width), solid, optimize=True)
    mixed[..., :3] /= np.where(mixed[..., 3:] > 0, mixed[..., 3:], 1)
    return np.rint(255 * mixed).astype(np.uint8, order="C")


def lay(pixels, colours, box):
    """Lay a grid on a picture. pixels: uint8 [rows, columns, 4], opaque, changed in place; box: in inches."""
    left, top, right, bottom = (round(edge * DPI) for edge in (box[0], box[1], box[0] + box[2], box[1] + box[3]))
    below = pixels[top:bottom, left:right]
    above = resized(colours, bottom - top, right - left)
    alpha = above[..., 3]
    solid = alpha == 255
    if solid.all():
        below[:] = above
    elif (solid | (alpha == 0)).all():
        np.copyto(below.view(np.uint32)[..., 0], above.view(np.uint32)[..., 0], where=solid)
    else:
        share = alpha[..., None] / 255
        below[..., :3] = np.rint(share * above[..., :3] + (1 - share) * below[..., :3])


def painter(sheet):
    """A function (grids, words) -> (pixels, SVG text): the sheet with these marks. The sheet itself is drawn here, once."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    text = io.BytesIO()
    FigureCanvasSVG(sheet.figure).print_svg(text, metadata={"Date": None})
    head, _, end = text.getvalue().decode("utf-8").rpartition("</svg>")
    sheet.figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(sheet.figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())                                  # a view: what the canvas draws, it shows
    bare = pixels.copy()
    pixels[:] = 255
    for box in [*sheet.boxes, sheet.bar]:
        sheet.axes.draw_artist(figures.frame(sheet.axes, box))
    edge = (pixels[..., 0] < 255).nonzero()                                    # frames lie on the grids
    line = np.array([int(EDGE[at:at + 2], 16) for at in (1, 3, 5)])
    share = (255 - pixels[edge][:, :1].astype(float)) / (255 - line[0])        # how much of each pixel they cover
    pixels[:] = bare

    @cache
    def written(word):
        """(place, pixels) of a word on the bare sheet, to be put down again: many stand on several figures."""
        artist = write(sheet.axes, word)
        sheet.figure.draw_artist(artist)
        left, bottom, right, top = artist.get_window_extent().padded(1).extents
        artist.remove()
        place = (slice(max(0, math.floor(len(pixels) - top)), math.ceil(len(pixels) - bottom)),
                 slice(max(0, math.floor(left)), math.ceil(right)))
        found = pixels[place].copy()
        pixels[place] = bare[place]
        return place, found

    def paint(grids, texts):
        words = [written(word) for word in texts]
        done = bare.copy()
        for box, colours in grids:
            lay(done, colours, box)
        done[(*edge, slice(3))] = np.rint(share * line + (1 - share) * done[(*edge, slice(3))])
        for place, found in words:
            done[place] = found
        return done, f"{head}{svg_marks(sheet, grids, texts)}\n</svg>{end}"

    return paint


def files(sheet, marks, wanted):
    """Yield (stem, "png" or "svg", bytes) of figures that share a sheet.

    sheet: a function () -> Sheet; marks: a function (sheet, *asked) -> (grids, words); both are called in the `style`.
    wanted: (stem, asked) of each figure. A second thread squeezes one picture while the next is painted: half of the time
    goes there.
    """
    with figures.style(), ThreadPoolExecutor(1) as pool:
        own = sheet()
        paint = painter(own)
        before = None
        for stem, asked in wanted:
            pixels, svg = paint(*marks(own, *asked))
            if before:
                yield before[0], "png", before[1].result()
            before = stem, pool.submit(cells.png, pixels, DPI)
            yield stem, "svg", svg.encode()
        if before:
            yield before[0], "png", before[1].result()
