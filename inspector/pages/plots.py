"""What the study's figures share: a sheet with title and caption, quiet axes, kinds of heads, names that keep apart.

The rules are those of `figures`: made and saved inside its `style()`, object-oriented matplotlib only, the same bytes
every time. Every figure carries its caption, so that what a person takes away says how it was measured. Sizes in inches.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from .figures import SOFT, drawable
from .words import head_name

INK, RULE, GREY = "#2b2733", "#8a8597", "#8f8a99"
CAPTION_SIZE = 6.5
HEAD = 0.42             # height of the title
EDGE = 0.15             # left and right of the caption
WIDTH = 7.0             # a page of a paper, both columns


class Kind(NamedTuple):
    """How a head with a verdict is drawn; colour and shape each tell the kinds apart alone."""

    verdict: str
    words: str
    colour: str
    marker: str


# The colours of Okabe and Ito 2008, "Color Universal Design": apart also for the colour-blind. The first that fits counts.
KINDS = (
    Kind("induction_head", "induction head", "#D55E00", "o"),
    Kind("anti_induction_head", "anti-induction head", "#0072B2", "v"),
    Kind("induction", "matches only", "#CC79A7", "D"),
    Kind("previous_token", "previous-token head", "#009E73", "s"),
)
OTHER = Kind("", "none of these", "#a8a3b1", "o")


def kind_of(verdict):
    """The Kind of a head. verdict: its list of words."""
    return next((kind for kind in KINDS if kind.verdict in verdict), OTHER)


def is_of(table, *kinds):
    """Which heads of a table (column verdict) are of these kinds: a boolean array [row]."""
    return np.array([kind_of(verdict) in kinds for verdict in table["verdict"]], dtype=bool)


def wrapped(text, width, size=CAPTION_SIZE):
    """Lines of a text, each at most `width` inches wide in this style's font at `size` points; long words are cut.

    A twelfth is left free: on coarse screens letters are set on whole pixels, and come out wider.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path
    font = FontProperties(size=size)

    def fits(part):
        return text_to_path.get_text_width_height_descent(part, font, ismath=False)[0] <= 66 * width

    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if fits(longer):
            lines[-1] = longer
            continue
        while not fits(word):
            cut = max(1, bisect_right(range(len(word)), False, key=lambda n: not fits(word[:n])) - 1)
            lines.append(word[:cut])
            word = word[cut:]
        lines.append(word)
    return [line for line in lines if line]


def sheet(title, caption, body, width=WIDTH):
    """(figure, place): a page with its title, room of `body` inches, and its caption below.

    place(left, top, width, height) adds axes, measured from the top left of the room.
    """
    from matplotlib.figure import Figure
    step = CAPTION_SIZE * 1.35 / 72
    lines = wrapped(drawable(caption, len(caption)), width - 2 * EDGE)
    height = HEAD + body + step * len(lines) + 0.18
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.text(EDGE / width, 1 - 0.27 / height, drawable(title, 90), fontsize=10, color=INK)
    for n, line in enumerate(lines):
        figure.text(EDGE / width, 1 - (HEAD + body + 0.12 + step * n) / height, line, fontsize=CAPTION_SIZE, color=SOFT,
                    va="top")

    def place(left, top, wide, tall, **options):
        axes = figure.add_axes((left / width, 1 - (HEAD + top + tall) / height, wide / width, tall / height), **options)
        return quiet(axes)

    return figure, place


def quiet(axes):
    """Axes with two thin lines and small labels, so that the data speak."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(RULE)
    axes.tick_params(labelsize=7, length=2.5, width=0.6, color=RULE, labelcolor=INK, pad=2)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(size=7.5, color=INK)
    return axes


def bare(axes, wide, tall):
    """Axes without lines, measured in inches from the top left: a sheet to draw on."""
    axes.set(xlim=(0, wide), ylim=(tall, 0), autoscale_on=False)
    axes.set_axis_off()
    return axes


def names_of(table):
    """["0.3", ...]: the names of the heads of a table with the columns layer and head."""
    return [head_name(int(layer), int(head)) for layer, head in zip(table["layer"], table["head"], strict=True)]


def key_of_kinds(axes, kinds, **options):
    """A legend of the kinds of heads that a figure shows."""
    from matplotlib.lines import Line2D
    entries = [Line2D([], [], linestyle="", marker=kind.marker, color=kind.colour, label=kind.words, markeredgewidth=0,
                      markersize=3.5 if kind is OTHER else 5) for kind in kinds]
    if entries:
        axes.legend(handles=entries, frameon=False, fontsize=7, labelcolor=INK, handletextpad=0.3, borderaxespad=0.2,
                    labelspacing=0.35, **options)


def name_points(axes, x, y, names, others=(), size=6.5):
    """Write a name beside each point so that names cover neither each other nor points, with a thin line where one is far.

    x, y, names: of the points to name; others: (x, y) of the points that are only to be kept clear. Each name in turn,
    the most crowded first, takes the cheapest of 96 places around its point.
    """
    if not len(names):
        return
    to_inches = axes.transData - axes.figure.dpi_scale_trans
    points = to_inches.transform(np.column_stack([x, y]))
    clear = np.concatenate([points, to_inches.transform(np.column_stack(others))]) if len(others) else points
    corner, far = (axes.transAxes - axes.figure.dpi_scale_trans).transform([(0, 0), (1, 1)])
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    gaps = np.repeat([0.05, 0.10, 0.18, 0.28, 0.42, 0.60], len(angles))
    towards = np.tile(directions, (6, 1))                                                    # [place, 2]
    crowd = [np.sum(np.hypot(*(points - point).T) < 0.3) for point in points]
    taken = np.empty((0, 4))
    for n in sorted(range(len(names)), key=lambda n: (-crowd[n], names[n])):
        half = np.array([0.64 * len(names[n]) * size, 1.15 * size]) / 144                    # half width, half height
        centres = points[n] + towards * (gaps[:, None] + half)
        low, high = centres - half, centres + half
        outside = np.maximum(corner - low, 0).sum(1) + np.maximum(high - far, 0).sum(1)
        lap = np.minimum(high[:, None], taken[:, 2:]) - np.maximum(low[:, None], taken[:, :2])   # [place, name, 2]
        inside = ((clear > low[:, None] - 0.03) & (clear < high[:, None] + 0.03)).all(-1).sum(1)
        cost = 100 * outside + 1000 * lap.clip(0).prod(-1).sum(1) + 1.0 * inside + gaps - 0.02 * towards[:, 0]
        best = int(cost.argmin())
        taken = np.concatenate([taken, [[*low[best], *high[best]]]])
        place = to_inches.inverted().transform(centres[best])
        axes.text(*place, names[n], fontsize=size, ha="center", va="center", color=INK, zorder=5)
        if gaps[best] > 0.12:
            end = to_inches.inverted().transform(points[n] + towards[best] * (gaps[best] + 0.02))
            axes.plot([x[n], end[0]], [y[n], end[1]], color=RULE, linewidth=0.4, zorder=1)
