"""Figures as files: one axes a figure, a few images in it, text and frames as vectors; the same bytes every time.

The cost of a figure is axes, ticks and text, not pixels: all heads of a layer share one axes, each head's grid is one
image, and token labels stand once at the left and at the bottom. Object-oriented matplotlib only: nothing global.
"""

import io
import math
import unicodedata
from contextlib import contextmanager
from functools import cache

from . import cells, palette, words

FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Symbols2")
GAP = 0.10              # between two grids, as a share of a grid
MOST_LABELS = 34        # along one grid
LONGEST = 16            # characters of a token label


@cache
def fonts():
    """The families at hand that may draw a label, with the characters each knows: [(family, frozenset)]."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font
    found = []
    for family in FONTS:
        try:
            path = font_manager.findfont(family, fallback_to_default=False)
        except ValueError:
            continue
        found.append((family, frozenset(FT2Font(path).get_charmap())))
    return found


def drawable(label, longest=LONGEST):
    """A label that the fonts at hand can draw, cut to `longest` characters; a character they lack as U+1F600."""
    known = [characters for _, characters in fonts()]
    shown = label if len(label) <= longest else label[:longest - 1] + "…"
    return "".join(c if any(ord(c) in characters for characters in known) or unicodedata.combining(c)
                   else f"U+{ord(c):04X}" for c in shown)


@contextmanager
def style():
    """The one context in which figures are made and saved."""
    import matplotlib
    settings = {"svg.hashsalt": "inspector", "svg.fonttype": "none", "svg.image_inline": True, "text.parse_math": False,
                "image.composite_image": False, "image.resample": True, "font.family": [name for name, _ in fonts()],
                "font.size": 8, "axes.linewidth": 0.6, "text.usetex": False}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def _image(axes, values, left, top, width, height, norm, kind):
    """One grid as one image, at its own resolution in SVG. values: [rows, columns], NaN transparent."""
    axes.imshow(values.detach().cpu().double().numpy(), cmap=palette.colormap(), norm=norm,
                extent=(left, left + width, top + height, top), interpolation="none" if kind == "svg" else "antialiased",
                interpolation_stage="data" if kind == "svg" else "rgba", origin="upper")


def _frame(axes, left, top, width, height):
    """The frame of one grid, and under it the hatching that shows through where a cell is masked."""
    from matplotlib.patches import Rectangle
    axes.add_patch(Rectangle((left, top), width, height, facecolor="none", edgecolor="#cfc9bd", hatch="////", linewidth=0,
                             zorder=-1))
    axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="#8a8597", linewidth=0.6))


def _colour_bar(figure, norm, left, bottom, width, ticks):
    from matplotlib.cm import ScalarMappable
    axes = figure.add_axes((left, bottom, width, 0.08 / figure.get_figheight()))
    bar = figure.colorbar(ScalarMappable(norm, palette.colormap()), cax=axes, orientation="horizontal", ticks=ticks,
                          format=lambda value, _: f"{value:g}")
    bar.ax.tick_params(labelsize=7, length=2, width=0.5, pad=1)
    bar.outline.set_linewidth(0.5)


def _canvas(width, height):
    """(figure, one bare axes over all of it, in inches from the top left)."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    return figure, axes


def layer_figure(pattern, labels, title, layer, kind="png"):
    """All heads of a layer as one figure. pattern: [head, query, key]; labels: [pos]; kind: "png" or "svg".

    Colour is the square root of the weight on a fixed scale from 0 to 1, as its bar says; masked cells are hatched.
    """
    from matplotlib.colors import PowerNorm
    n_head, n, _ = pattern.shape
    columns = math.ceil(math.sqrt(n_head * 4 / 3))
    rows = math.ceil(n_head / columns)
    side, margin, head = 2.7, 1.25, 0.75                            # inches: a grid, room for labels, room for the title
    width, height = margin + columns * side * (1 + GAP) + 0.1, head + rows * side * (1 + GAP) + margin
    figure, axes = _canvas(width, height)
    axes.set_aspect("auto")
    norm = PowerNorm(0.5, 0, 1)
    step = max(1, math.ceil(n / MOST_LABELS))
    names = [drawable(label) for label in labels]
    size = max(4.5, min(8.0, 0.75 * 72 * side / n * step))
    for h in range(n_head):
        left, top = (h % columns) * (1 + GAP), (h // columns) * (1 + GAP)
        _image(axes, cells.mask(pattern[h]), left, top, 1, 1, norm, kind)
        _frame(axes, left, top, 1, 1)
        axes.text(left, top - 0.02, words.head_name(layer, h), ha="left", va="bottom", fontsize=9)
        for i in range(0, n, step):
            at = (i + 0.5) / n
            if h % columns == 0:
                axes.text(left - 0.02, top + at, names[i], ha="right", va="center", fontsize=size)
            if h + columns >= n_head:
                axes.text(left + at, top + 1.02, names[i], ha="center", va="top", rotation=90, fontsize=size)
    axes.set_xlim(-margin / side, -margin / side + width / side)
    axes.set_ylim(-head / side + height / side, -head / side)
    figure.text(margin / width, 1 - 0.16 / height, drawable(title, 90), fontsize=12, va="top")
    figure.text(margin / width, 1 - 0.37 / height, "rows look (query), columns are looked at (key); hatched: masked",
                fontsize=7, va="top", color="#625d70")
    _colour_bar(figure, norm, 1 - 1.9 / width, 1 - 0.27 / height, 1.75 / width, (0, 0.01, 0.1, 0.25, 0.5, 1))
    return figure


def score_figure(table, title, kind="png"):
    """The maps of all scores, layers down and heads across, on a fixed scale from 0 to 1. table: a row a head."""
    from matplotlib.colors import Normalize

    from .index import grid_of
    maps = [(score.title, grid_of(table, score.column)) for score in words.SCORES]
    n_layer, n_head = maps[0][1].shape
    each, ratio = 1.9, n_layer / n_head
    tall = each * min(2.5, max(0.4, ratio))
    columns, margin, head = 3, 0.45, 0.95
    width, height = margin + columns * each * 1.18 + 0.1, head + 2 * (tall + 0.55)
    figure, axes = _canvas(width, height)
    norm = Normalize(0, 1)
    for at, (name, values) in enumerate(maps):
        left, top = margin + (at % columns) * each * 1.18, head + (at // columns) * (tall + 0.55)
        _image(axes, values, left, top, each, tall, norm, kind)
        _frame(axes, left, top, each, tall)
        axes.text(left, top - 0.04, name, ha="left", va="bottom", fontsize=9)
        for i in range(0, n_layer, max(1, math.ceil(n_layer / (tall / 0.14)))):
            axes.text(left - 0.04, top + (i + 0.5) / n_layer * tall, str(i), ha="right", va="center", fontsize=7)
        for i in range(0, n_head, max(1, math.ceil(n_head / (each / 0.17)))):
            axes.text(left + (i + 0.5) / n_head * each, top + tall + 0.04, str(i), ha="center", va="top", fontsize=7)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_aspect("auto")
    figure.text(margin / width, 1 - 0.16 / height, drawable(title, 90), fontsize=12, va="top")
    figure.text(margin / width, 1 - 0.37 / height, "layers down, heads across; hatched: no such token in the text",
                fontsize=7, va="top", color="#625d70")
    _colour_bar(figure, norm, 1 - 1.9 / width, 1 - 0.27 / height, 1.75 / width, (0, 0.25, 0.5, 0.75, 1))
    return figure


def files(draw, dpi=150):
    """{"png": bytes, "svg": bytes} of one figure. draw: a function (kind) -> Figure, called inside the style."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    made = {"png": io.BytesIO(), "svg": io.BytesIO()}
    with style():
        figure = draw("png")
        figure.set_dpi(dpi)
        FigureCanvasAgg(figure).print_png(made["png"], metadata={"Software": None})
        FigureCanvasSVG(draw("svg")).print_svg(made["svg"], metadata={"Date": None})
    return {kind: file.getvalue() for kind, file in made.items()}
