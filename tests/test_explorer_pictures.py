"""The pictures that are taken away, in Chromium: the PNG and the SVG of a view, with its labels and its colour scale."""

import base64
import io
import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

import inspector

from . import exploring
from .exploring import explorer, settle, taken
from .test_browser import TORTURE

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return exploring.two_texts(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def torture(made, tmp_path_factory):
    """(trace, page) of the torture text on the demo model."""
    trace = inspector.trace(made.model, TORTURE)
    return trace, exploring.save_page(tmp_path_factory.mktemp("torture") / "page.html", [trace])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_png_has_the_cells_colours(browser, made, scheme):
    """The grid of one head is a square of 1,800 pixels, 40 cells a side, right of and below its labels."""
    with explorer(browser, made.path, scheme=scheme) as page:
        settle(page, heads=["1.1"], query=39)
        data, name = taken(page, "PNG")
        ramp = torch.tensor(page.evaluate(f"explorer.store.bundle.ramps.{scheme}")).double()
        gutter = page.evaluate("""async () => { const { gutterOf } = await import("inspector/drawing.js");
          return gutterOf(explorer.view.grid.labels, 900); }""")
    assert name == "L1H1_pattern.png"
    image = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    left, top, side = 2 * (8 + gutter), 2 * (46 + gutter), 1800 / 40
    for query, key in ((0, 0), (39, 0), (20, 9), (30, 7), (12, 12)):
        level = float(made.traces[0].pattern[1, 1, query, key]) ** 0.5 * 32
        low = min(int(level), 31)
        want = torch.lerp(ramp[low], ramp[low + 1], level - low)
        found = image[int(top + (query + 0.5) * side), int(left + (key + 0.5) * side)]
        assert np.abs(found - want.numpy()).max() <= 4, (query, key)
    scale = image[top + 1800 + 2 * (14 + 5)]                # the colour scale below the grid, even in its ramp
    for at in (0.01, 0.25, 0.5, 0.8, 0.99):
        want = torch.lerp(ramp[int(at * 32)], ramp[int(at * 32) + 1], at * 32 % 1)
        assert np.abs(scale[int(left + at * 1800)] - want.numpy()).max() <= 4, at
    masked = image[int(top + 5 * side):int(top + 6 * side), int(left + 30 * side):int(left + 31 * side)].reshape(-1, 3)
    assert len(np.unique(masked, axis=0)) > 1                                   # hatched


@pytest.mark.parametrize("other", ["", "0.1"])
def test_the_svg_is_well_formed_and_holds_every_label(browser, torture, other):
    """Parsed as XML, on the torture text: one picture of the cells a grid, and the labels as text."""
    trace, path = torture
    with explorer(browser, path) as page:
        settle(page, other=other)
        data, name = taken(page, "SVG")
    assert name.endswith("_pattern.svg")
    tree = ElementTree.fromstring(data)
    names = {tag.tag.split("}")[1] for tag in tree.iter()}
    assert names == {"svg", "rect", "text", "image", "path"}
    images = [tag for tag in tree.iter() if tag.tag.endswith("image")]
    assert len(images) == (6 if other else 2)                                   # of each grid the cells and the scale
    href = images[0].get("href")
    cells = np.asarray(Image.open(io.BytesIO(base64.b64decode(href.partition(",")[2]))))
    assert cells.shape == (len(trace.labels), len(trace.labels), 4)
    assert (cells[..., 3] == 255).sum() == len(trace.labels) * (len(trace.labels) + 1) // 2
    texts = [tag.text or "" for tag in tree.iter() if tag.tag.endswith("text")]
    step = next(2 ** k for k in range(9) if 900 / len(trace.labels) * 2 ** k >= 11)
    short = [label.replace("\u200e", "") for label in trace.labels[::step] if len(label) < 6]
    assert len(short) > 20
    assert all(any(text.replace("\u200e", "") == label for text in texts) for label in short)
    named = [["0", "0.01", "0.1", "0.25", "0.5", "1"]] * (2 if other else 1)
    assert [texts[i:i + 6] for i, text in enumerate(texts) if texts[i:i + 2] == ["0", "0.01"]] == named


def marked(data, grid):
    """(heights of those of another colour, least distance of two) of the labels left of one grid of an SVG, in pixels."""
    found = {}
    for tag in ElementTree.fromstring(data).iter():
        if tag.get("text-anchor") == "end" and tag.get("font-size") != "12":
            at, right = float(tag.get("y")), float(tag.get("x"))
            found.setdefault(right, []).append((at, tag.get("fill")))
    rows = found[sorted(found)[grid]]
    places = [at for at, _ in rows]
    usual = max({fill for _, fill in rows}, key=[fill for _, fill in rows].count)
    return [at for at, fill in rows if fill != usual], min(b - a for a, b in itertools.pairwise(places))


def test_the_query_s_own_label_is_always_there(browser, made, torture):
    """Marked, and no other so near that they would touch; beside it, in another text, that of the token there."""
    trace, path = torture
    pitch = 900 / len(trace.labels)
    with explorer(browser, path) as page:
        for query in (41, 42, 100):
            settle(page, query=query)
            gutter = page.evaluate("import('inspector/drawing.js').then(m => m.gutterOf(explorer.view.grid.labels, 900))")
            own, least = marked(taken(page, "SVG")[0], 0)
            assert own == pytest.approx([46 + gutter + (query + 0.5) * pitch], abs=0.01)
            assert least >= 11
    with explorer(browser, made.path) as page:
        settle(page, heads=["1.1"], query=30, other="t1", twin=4)
        data, _ = taken(page, "SVG")
        gutter = page.evaluate("import('inspector/drawing.js').then(m => m.gutterOf(explorer.view.beside.grid.labels, 900))")
        assert marked(data, 1)[0] == pytest.approx([46 + gutter + 4.5 * 900 / 18], abs=0.01)


def test_a_colour_scale_says_the_numbers_of_its_grid(browser, made):
    """On the page and in the SVG: parts of the largest number there is, where that is not 1."""
    with explorer(browser, made.path) as page:
        settle(page, heads=["1.1"], other="3.2")
        for shown, parts in (("scores", (-1, -0.5, 0, 0.5, 1)), ("values", (0, 0.01, 0.1, 0.25, 0.5, 1))):
            settle(page, shown=shown)
            most = page.evaluate("explorer.view.largest")
            assert not 0.9 < most < 1.1
            said = page.locator(".x-main .x-legend .x-ticks span").all_text_contents()
            want = pytest.approx([part * most for part in parts], rel=6e-3)
            assert [float(text.replace("−", "-")) for text in said] == want
            tree = ElementTree.fromstring(taken(page, "SVG")[0])
            texts = [tag.text or "" for tag in tree.iter() if tag.tag.endswith("text")]
            assert any(texts[i:i + len(said)] == said for i in range(len(texts)))


BLOCKS = """async () => {
  const { cellsOf } = await import("inspector/drawing.js"), { Colours } = await import("inspector/colour.js");
  const colours = new Colours(explorer.store.bundle, "light"), found = [];
  const values = Float32Array.from([0.1, NaN, NaN, NaN, NaN,  0.2, 0.875, NaN, NaN, NaN,  0.3, 0.1, 0, NaN, NaN,
    0.5, -0.8, 0.4, 0.2, NaN,  0.1, 0.2, 0.3, -0.6, 0.5]);
  for (const scale of ["linear", "signed"]) {
    const canvas = cellsOf({ values: values.slice(), n: 5, scale, largest: 1 }, colours, 2);
    const colour = colours.pixelOf(scale, 1);
    const { data } = canvas.getContext("2d").getImageData(0, 0, 3, 3), pixels = new Uint32Array(data.buffer);
    const want = [0.875, NaN, NaN, -0.8, 0.4, NaN, 0.2, -0.6, 0.5].map(x => Number.isNaN(x) ? 0 : colour(x));
    found.push([canvas.width, Array.from(pixels).join() === want.join()]);
  }
  return found;
}"""


def test_a_block_of_cells_shows_the_number_farthest_from_0(browser, made):
    """Where a screen has fewer pixels than the grid cells; by hand, with a block at the edge."""
    with explorer(browser, made.path) as page:
        assert page.evaluate(BLOCKS) == [[3, True], [3, True]]


APART = """async () => {
  const { picture, svg } = await import("inspector/save.js"), bundle = explorer.store.bundle;
  const element = document.querySelector(".x-save"), one = picture(explorer.view, bundle, element);
  const image = new Image(), { width, height } = one;
  image.src = "data:image/svg+xml," + encodeURIComponent(svg(explorer.view, bundle, element));
  await image.decode();
  const drawn = (picture, wide, high) => {
    const canvas = new OffscreenCanvas(wide, high), context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, 0, 0, wide, high);
    return canvas;
  };
  const small = picture => drawn(drawn(picture, width, height), width / 8, height / 8).getContext("2d")
    .getImageData(0, 0, width / 8, height / 8).data;
  const [a, b] = [small(one), small(image)];
  return [image.naturalWidth / width, image.naturalHeight / height,
    a.reduce((most, x, at) => Math.max(most, Math.abs(x - b[at])), 0)];
}"""


@pytest.mark.parametrize(("width", "scheme", "ratio"), [(1280, "light", 1), (390, "dark", 2)])
@pytest.mark.parametrize("patch", [{"query": 37}, {"query": 20, "other": "3.2", "shown": "scores", "first": False},
                                   {"other": "t1", "twin": 9, "scale": "log"}])
def test_the_png_and_the_svg_are_the_same_picture(browser, made, patch, width, scheme, ratio):
    """Seen from afar: letters and lines may lie a fraction of a pixel apart. The size of the screen changes neither."""
    with explorer(browser, made.path, width=width, scheme=scheme, device_scale_factor=ratio) as page:
        settle(page, heads=["1.1"], **patch)
        wide, high, apart = page.evaluate(APART)
    assert (wide, high) == (0.5, 0.5)
    assert 0 <= apart < 64          # of 255
