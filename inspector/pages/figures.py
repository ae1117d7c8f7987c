"""Figures as files: one axes a figure, a few images in it, text and frames as vectors; the same bytes every time.

The cost of a figure is axes, ticks and text, not pixels: all grids share one axes, each is one image, and its frame one
rectangle. Object-oriented matplotlib only: nothing global. The figures of layers are made of this in `layer_figures`.
"""

import io
import math
import unicodedata
from contextlib import contextmanager
from functools import cache

import numpy as np

from . import palette

FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Symbols2")
LONGEST = 16            # characters of a token label
SOFT = "#625d70"        # the colour of what explains


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
    drawn = "".join(c if any(ord(c) in characters for characters in known) or unicodedata.combining(c)
                    else f"U+{ord(c):04X}" for c in shown)
    # A mark with no letter before it: shaping would put a dotted circle under it, which few fonts have.
    return "".join(f"U+{ord(c):04X}" if unicodedata.category(c).startswith("M") and not (n and drawn[n - 1].isalpha())
                   else c for n, c in enumerate(drawn))


@contextmanager
def style():
    """The one context in which figures are made and saved."""
    import matplotlib
    settings = {"svg.hashsalt": "inspector", "svg.fonttype": "none", "svg.image_inline": True, "text.parse_math": False,
                "text.usetex": False, "image.resample": True, "font.family": [name for name, _ in fonts()],
                "font.size": 8, "axes.linewidth": 0.6}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def blank(width, height):
    """(figure, its one axes), measured in inches from the top left."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    axes.set_axis_off()
    return figure, axes


def coloured(values):
    """The ramp's colour of numbers 0..1, NaN transparent: uint8 [..., 4]. values: float64, any shape."""
    return palette.colormap()(values, bytes=True)


def ramp():
    """The inside of a colour bar: uint8 [1, 256, 4]."""
    return coloured(np.linspace(0, 1, 256)[None])


def image(axes, colours, box, kind="png"):
    """One grid as one image, in SVG at its own resolution. colours: uint8 [rows, columns, 4]; box: see `frame`."""
    from matplotlib.image import AxesImage
    left, top, width, height = box
    made = AxesImage(axes, extent=(left, left + width, top + height, top), origin="upper", interpolation_stage="rgba",
                     interpolation="none" if kind == "svg" else "antialiased")
    made.set_data(colours)
    axes.add_image(made)
    return made


def hatching(axes, box):
    """What shows through where a cell of a grid is masked. box: (left, top, width, height) in inches."""
    from matplotlib.patches import Rectangle
    left, top, width, height = box
    return axes.add_patch(Rectangle((left, top), width, height, facecolor="none", edgecolor="#cfc9bd", hatch="////",
                                    linewidth=0, zorder=-1))


def frame(axes, box):
    """The frame of a grid. box: (left, top, width, height) in inches."""
    from matplotlib.patches import Rectangle
    left, top, width, height = box
    return axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="#8a8597", linewidth=0.6))


def score_figure(maps, title, kind="png", *, how=""):
    """Maps over layers (down) and heads (across) on a fixed scale from 0 to 1. maps: [(name, [layer, head])].

    how: the protocol, in a few words, to stand under the title.
    """
    n_layer, n_head = maps[0][1].shape
    columns, wide, gap, top = 3, 2.1, 0.4, 0.95
    tall = wide * min(2.5, max(0.4, n_layer / n_head))
    rows, margin = math.ceil(len(maps) / columns), 0.45
    figure, axes = blank(margin + columns * (wide + gap) - gap + 0.15, top + rows * (tall + 0.55) - 0.15)
    for at, (name, values) in enumerate(maps):
        box = (margin + (at % columns) * (wide + gap), top + (at // columns) * (tall + 0.55), wide, tall)
        hatching(axes, box)
        image(axes, coloured(values.detach().cpu().double().numpy()), box, kind)
        frame(axes, box)
        axes.text(box[0], box[1] - 0.06, name, fontsize=9)
        for i in range(0, n_layer, math.ceil(0.14 * n_layer / tall)):
            axes.text(box[0] - 0.05, box[1] + (i + 0.5) / n_layer * tall, str(i), ha="right", va="center", fontsize=7)
        for i in range(0, n_head, math.ceil(0.17 * n_head / wide)):
            axes.text(box[0] + (i + 0.5) / n_head * wide, box[1] + tall + 0.05, str(i), ha="center", va="top", fontsize=7)
    what = "layers down, heads across; hatched: no value" + (f"; {how}" if how else "")
    axes.text(margin, 0.32, drawable(title, 60), fontsize=11)
    axes.text(margin, 0.50, what, fontsize=7, color=SOFT)
    bar = (figure.get_figwidth() - 0.15 - 1.8, 0.22, 1.8, 0.09)
    image(axes, ramp(), bar, kind)
    frame(axes, bar)
    for tick in (0, 0.25, 0.5, 0.75, 1):
        axes.text(bar[0] + tick * bar[2], 0.36, f"{tick:.3g}", fontsize=6.5, ha="center", va="top")
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
