"""Tensors and tables to pages: pure functions that return one whole HTML file as text.

Everything a page shows is inside it: styles, script, grids as data addresses. Templates escape by default; what goes into
a `<script>` goes through `script_json`. Nothing here reads a clock, a random number or the network.
"""

import json
import math
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import torch

from .. import __version__
from . import cells, palette, words

PITCH = 10          # pixels from one axis label to the next, at least: the line height of the smallest label
NUMBER = 22         # pixels of a cell that holds its number, at least
MOST_NUMBERS = 12   # cells beside each other, beyond which none holds a number
HIGH = 0.51         # where on the ramp text changes from the page's ink to the page's own colour
WIDE = 900          # pixels a side of the largest grid a page shows


def script_json(data):
    """JSON that is safe inside <script>: no `<`, so that no token can close the element."""
    from markupsafe import Markup
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def environment():
    """The templates, with the words that they use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    env = Environment(loader=PackageLoader("inspector.pages"), autoescape=True, undefined=StrictUndefined,
                      trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    env.filters |= {"number": words.number, "percent": words.percent, "count": words.count, "bare": words.bare,
                    "scientific": words.scientific, "compact": words.compact, "signed": words.signed,
                    "significant": words.significant, "verdict": words.verdict_words}
    env.globals |= {"head_name": words.head_name, "page_name": page_name, "plural": words.plural, "hint": words.HINT,
                    "papers": words.PAPERS, "values": words.VALUES}
    return env


@cache
def static(name):
    """A style sheet or script of the package, to stand inside a page."""
    from markupsafe import Markup
    return Markup(files("inspector.pages").joinpath("static", name).read_text(encoding="utf-8"))


def page_name(layer, n_layer):
    """layer_05.html: two digits, or as many as the last layer needs."""
    return f"layer_{layer:0{max(2, len(str(n_layer - 1)))}d}.html"


def width_of(label):
    """How wide a label is, in average letters: East Asian wide characters and emoji count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in label)


def level(index):
    """How late a label is left out when there is no room: the factors of two in its index; the first always stays."""
    return 30 if index == 0 else (index & -index).bit_length() - 1


def axis(labels, pitch=PITCH, widest=WIDE):
    """[{index, label, level}] of the labels that the largest grid has room for."""
    least = 0
    while widest / len(labels) * 2 ** least < pitch:
        least += 1
    return [{"index": i, "label": words.directed(label), "level": level(i)} for i, label in enumerate(labels)
            if level(i) >= least]


@lru_cache(maxsize=8)
def side(labels, pitch=PITCH):
    """(the labels along one side of a grid as markup, the width of the widest). Made once: all heads share them.

    labels: a tuple.
    """
    kept = axis(labels, pitch)
    return environment().get_template("grid.html").module.axis(kept), max(width_of(each["label"]) for each in kept)


def thinning(name, n, pitch=PITCH):
    """Style rules that leave out labels where a grid of n cells is small: every second one, then every fourth, ...

    name: the class of the axis. Labels of level L stay where 2^L cells are at least `pitch` pixels.
    """
    rules = []
    for at in range(max(1, (n - 1).bit_length())):
        limit = f"{pitch * n / 2 ** at - 0.01:.2f}px"
        hide = f"{{.{name} .t{at}{{display:none}}}}"
        rules.append(f"@container keys (max-width:{limit}){hide}@container queries (max-height:{limit}){hide}")
    return "\n".join(rules)


def cell_numbers(values, written=words.short):
    """[{row, column, text, high}]: the numbers to stand in the cells of a small grid; none for a large one.

    written: a value 0..1 as text. high: the classes of cells whose colour needs the page's colour for its text, on one
    scale or on both.
    """
    if values.shape[1] > MOST_NUMBERS:
        return []
    return [{"row": row, "column": column, "text": written(value),
             "high": (" high-sqrt" if math.sqrt(value) > HIGH else "") + (" high-linear" if value > HIGH else "")}
            for row, line in enumerate(values.tolist()) for column, value in enumerate(line) if not math.isnan(value)]


def number_rule(n):
    """The style rule that leaves the numbers out of cells too small for them, in a grid n cells wide."""
    return f"@container cells (max-width:{NUMBER * n - 0.01:.2f}px){{.value{{display:none}}}}"


def picture(values, row_labels, column_labels, name, aria, *, rows, columns, pitch=PITCH, numbers=False):
    """What the template `grid` draws. values: [rows, columns] in 0..1, NaN = masked.

    name: the picture's id; aria: what it shows, for those who cannot see it; rows, columns: the classes that
    `thinning` has rules for; numbers: whether small grids show the numbers in their cells.
    """
    (down, tallest), (across, widest) = side(tuple(row_labels)), side(tuple(column_labels), pitch)
    return {"name": name, "aria": aria, "n_rows": len(row_labels), "n_columns": len(column_labels),
            "rows": down, "columns": across, "row_class": rows, "column_class": columns,
            "gutter": f"{min(max(tallest, widest), 30) * 6.6 + 10:.0f}px", "uri": cells.data_uri(cells.encode(values)),
            "numbers": cell_numbers(values) if numbers else [], "weighted": None}


def with_values(drawn, values, largest):
    """A picture that can be switched to another grid of the same cells, whose numbers run from 0 to `largest`.

    drawn: see `picture`; values: [rows, columns], the numbers as parts of the largest, 0..1; NaN = masked.
    """
    return {**drawn, "weighted": {"uri": cells.data_uri(cells.encode(values)), "largest": f"{largest:.6g}",
                                  "digits": words.decimals(largest),
                                  "numbers": cell_numbers(values, lambda part: words.compact(part * largest))}}


@cache
def ramps():
    """The filters that colour stored levels: [(id, {"R": table, ...})], and the colour bars' own levels."""
    return [(f"{theme}-{scale}", palette.filter_tables(theme, scale))
            for theme in ("light", "dark") for scale in ("sqrt", "linear")]


@cache
def bars():
    """Two colour bars as data addresses, {scale: uri}: weight grows evenly along `linear`, its root along `sqrt`."""
    steps = torch.linspace(0, 1, 256, dtype=torch.float64)[None]
    return {"sqrt": cells.data_uri(cells.encode(steps ** 2)), "linear": cells.data_uri(cells.encode(steps))}


def ticks():
    """{scale: [(place in percent, label)]} of the colour bars."""
    return {"sqrt": [(100 * math.sqrt(w), words.short(w)) for w in (0, 0.01, 0.1, 0.25, 0.5, 1)],
            "linear": [(100 * w, words.short(w)) for w in (0, 0.25, 0.5, 0.75, 1)]}


def value_scale(largest, what):
    """The colour bar of value-weighted grids: ticks as of `ticks`, in the numbers' own measure, and what its end is.

    largest: the number at the full end; what: what that end is.
    """
    places = {"sqrt": (0, 0.1, 0.25, 0.5, 1), "linear": (0, 0.25, 0.5, 0.75, 1)}
    return {"what": what, "ticks": {scale: [(100 * (math.sqrt(part) if scale == "sqrt" else part),
                                             words.compact(part * largest)) for part in parts]
                                    for scale, parts in places.items()}}


def spark(counts):
    """A histogram as an SVG path in a box of len(counts) x 100, the highest bar full."""
    top = max(counts)
    return "M0 100" + "".join(f"V{100 - 100 * c / top:.1f}H{i + 1}" for i, c in enumerate(counts)) + "V100Z"


def model_facts(model):
    """What every page says about its model, as plain values. A coarse number says so wherever it goes."""
    source = model.files.source
    source = Path(source).name if Path(source).exists() and len(Path(source).parts) > 1 else source
    half = model.dtype not in ("float32", "float64")
    return {"model": f"{source} in {model.dtype}" if half else source, "source": source, "half": half,
            "release": model.release, "n_layer": model.config.n_layer, "n_head": model.config.n_head, "dtype": model.dtype,
            "device": model.device, "version": __version__}


def render(template, facts, **content):
    """One page as text. facts: what all pages of a report share (see `report.facts`)."""
    return environment().get_template(template).render(
        facts=facts, css=static("report.css"), script=static("report.js"), ramps=ramps(), bars=bars(), ticks=ticks(),
        **content)
