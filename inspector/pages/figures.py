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
DPI = 150               # pixels an inch of PNG files
LONGEST = 16            # characters of a token label
SOFT = "#625d70"        # the colour of what explains
EDGE = "#8a8597"        # of frames


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


def snapped(length):
    """The next length, in inches, that is a whole number of pixels: frames and grids then meet on the same pixels."""
    return math.ceil(length * DPI - 1e-9) / DPI


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


def text(axes, x, y, said, **options):
    """A text at a place of the axes, but of the figure's own: one of the axes would be made ready to be clipped, slowly."""
    return axes.figure.text(x, y, said, transform=axes.transData, **options)


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
    return axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=EDGE, linewidth=0.6))


def files(draw):
    """{"png": bytes, "svg": bytes} of one figure. draw: a function (kind) -> Figure, called inside the style."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    made = {"png": io.BytesIO(), "svg": io.BytesIO()}
    with style():
        figure = draw("png")
        figure.set_dpi(DPI)
        FigureCanvasAgg(figure).print_png(made["png"], metadata={"Software": None})
        FigureCanvasSVG(draw("svg")).print_svg(made["svg"], metadata={"Date": None})
    return {kind: file.getvalue() for kind, file in made.items()}
