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
MOST_LABELS = 26        # along one grid
FINEST = 512            # cells a side of one grid; longer texts are drawn in blocks
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


def _sheet(width, height):
    """(figure, its one axes), measured in inches from the top left."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    axes.set_axis_off()
    return figure, axes


def _image(axes, values, box, norm, kind):
    """One grid as one image, in SVG at its own resolution. values: [rows, columns], NaN transparent; box: see `_frame`."""
    left, top, width, height = box
    axes.imshow(values.detach().cpu().double().numpy(), cmap=palette.colormap(), norm=norm, aspect="auto", origin="upper",
                extent=(left, left + width, top + height, top), interpolation="none" if kind == "svg" else "antialiased",
                interpolation_stage="data" if kind == "svg" else "rgba")


def _frame(axes, box):
    """The frame of a grid, and under it the hatching that shows through where a cell is masked.

    box: (left, top, width, height) in inches.
    """
    from matplotlib.patches import Rectangle
    left, top, width, height = box
    axes.add_patch(Rectangle((left, top), width, height, facecolor="none", edgecolor="#cfc9bd", hatch="////", linewidth=0,
                             zorder=-1))
    axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="#8a8597", linewidth=0.6))


def _heading(axes, left, right, title, what, norm, ticks, kind):
    """Title and explanation at the left, the colour bar at the right."""
    import torch
    axes.text(left, 0.32, drawable(title, 60), fontsize=11)
    axes.text(left, 0.50, what, fontsize=7, color=SOFT)
    bar = (right - 1.8, 0.22, 1.8, 0.09)
    places = torch.linspace(0, 1, 256, dtype=torch.float64)
    _image(axes, torch.from_numpy(norm.inverse(places.numpy()).copy())[None], bar, norm, kind)
    _frame(axes, bar)
    for tick in ticks:
        axes.text(bar[0] + float(norm(tick)) * bar[2], 0.36, f"{tick:.3g}", fontsize=6.5, ha="center", va="top")


def layer_figure(pattern, labels, title, layer, kind="png", weighted=False):
    """All heads of a layer as one figure. pattern: [head, query, key]; labels: [pos]; kind: "png" or "svg".

    Colour is the square root of the weight on a fixed scale from 0 to 1, as its bar says; masked cells are hatched.
    `weighted`: the pattern is value-weighted, and the scale ends at its largest number.
    """
    from matplotlib.colors import PowerNorm
    n_head, n, _ = pattern.shape
    columns = math.ceil(math.sqrt(n_head * 4 / 3))
    rows = math.ceil(n_head / columns)
    side, gap, top = 2.7, 0.3, 0.95
    step = math.ceil(n / MOST_LABELS)
    size = min(8.0, 0.72 * 72 * side / n * step)
    names = [drawable(label) for label in labels]
    margin = 0.25 + max(map(len, names)) * size * 0.62 / 72
    width = margin + columns * side + (columns - 1) * gap + 0.15
    figure, axes = _sheet(max(width, margin + 5), top + rows * (side + gap) - gap + margin)
    full = (float(pattern.max()) or 1.0) if weighted else 1
    norm = PowerNorm(0.5, 0, full)
    block = cells.block_size(n, FINEST)
    shown = cells.pool(cells.mask(pattern), block)                                           # [head, query, key]
    for h in range(n_head):
        box = (margin + (h % columns) * (side + gap), top + (h // columns) * (side + gap), side, side)
        _image(axes, shown[h], box, norm, kind)
        _frame(axes, box)
        axes.text(box[0], box[1] - 0.05, words.head_name(layer, h), fontsize=9)
        for i in range(0, n, step):
            at = (i + 0.5) / n * side
            if h % columns == 0:
                axes.text(box[0] - 0.05, box[1] + at, names[i], ha="right", va="center", fontsize=size)
            if h + columns >= n_head:
                axes.text(box[0] + at, box[1] + side + 0.05, names[i], ha="center", va="top", rotation=90, fontsize=size)
    what = "row: query, the token that looks; column: key, the token looked at; hatched: masked"
    what += f"; one token in {step} is named" if step > 1 else ""
    what += f"; one cell: the largest weight of {block} x {block} tokens" if block > 1 else ""
    right = figure.get_figwidth() - 0.15
    if weighted:
        axes.text(margin, 0.64, "value-weighted: weight times the length of v W_O; the scale ends at the layer's largest",
                  fontsize=7, color=SOFT)
        _heading(axes, margin, right, title, what, norm, [full * part for part in (0, 0.1, 0.25, 0.5, 1)], kind)
    else:
        _heading(axes, margin, right, title, what, norm, (0, 0.01, 0.1, 0.25, 0.5, 1), kind)
    return figure


def score_figure(maps, title, kind="png", *, how=""):
    """Maps over layers (down) and heads (across) on a fixed scale from 0 to 1. maps: [(name, [layer, head])].

    how: the protocol, in a few words, to stand under the title.
    """
    from matplotlib.colors import Normalize
    n_layer, n_head = maps[0][1].shape
    columns, wide, gap, top = 3, 2.1, 0.4, 0.95
    tall = wide * min(2.5, max(0.4, n_layer / n_head))
    rows, margin = math.ceil(len(maps) / columns), 0.45
    figure, axes = _sheet(margin + columns * (wide + gap) - gap + 0.15, top + rows * (tall + 0.55) - 0.15)
    norm = Normalize(0, 1)
    for at, (name, values) in enumerate(maps):
        box = (margin + (at % columns) * (wide + gap), top + (at // columns) * (tall + 0.55), wide, tall)
        _image(axes, values, box, norm, kind)
        _frame(axes, box)
        axes.text(box[0], box[1] - 0.06, name, fontsize=9)
        for i in range(0, n_layer, math.ceil(0.14 * n_layer / tall)):
            axes.text(box[0] - 0.05, box[1] + (i + 0.5) / n_layer * tall, str(i), ha="right", va="center", fontsize=7)
        for i in range(0, n_head, math.ceil(0.17 * n_head / wide)):
            axes.text(box[0] + (i + 0.5) / n_head * wide, box[1] + tall + 0.05, str(i), ha="center", va="top", fontsize=7)
    what = "layers down, heads across; hatched: no value" + (f"; {how}" if how else "")
    _heading(axes, margin, figure.get_figwidth() - 0.15, title, what, norm,
             (0, 0.25, 0.5, 0.75, 1), kind)
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
