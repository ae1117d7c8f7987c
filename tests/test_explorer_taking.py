"""Comparing and taking away, in Chromium: two heads, two texts, pictures and tables."""

import base64
import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

import inspector

from . import exploring
from .exploring import explorer, numbers, settle, state
from .test_browser import TORTURE

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return exploring.two_texts(tmp_path_factory.mktemp("page"))


@pytest.fixture
def page(browser, made):
    with explorer(browser, made.path, height=1400) as found:
        yield found


@pytest.fixture(scope="module")
def torture(made, tmp_path_factory):
    """(trace, page) of the torture text on the demo model."""
    trace = inspector.trace(made.model, TORTURE)
    return trace, exploring.save_page(tmp_path_factory.mktemp("torture") / "page.html", [trace])


def taken(page, name):
    """The bytes and the file's name of a download, by the button's name."""
    with page.expect_download() as found:
        page.get_by_role("button", name=name, exact=True).click()
    return found.value.path().read_bytes(), found.value.suggested_filename


# -- comparing ---------------------------------------------------------------------------------------------------------

def test_two_heads_stand_side_by_side_with_their_difference(page, made):
    settle(page, heads=["1.1"])
    assert page.locator(".x-pair .x-plot:visible").count() == 0
    page.get_by_label("Beside it").select_option("3.2")
    settle(page)
    assert page.locator(".x-pair .x-plot .x-title").all_inner_texts() == ["1.1 pattern", "3.2 pattern", "Difference"]
    mine, other = (made.traces[0].pattern[layer, head].double() for layer, head in ((1, 1), (3, 2)))
    below = torch.ones(40, 40).tril().bool()
    found = numbers(page, "explorer.view.beside.difference.values").view(40, 40)
    torch.testing.assert_close(found[below], (other - mine)[below], rtol=0, atol=2e-3)
    assert found[~below].isnan().all()
    for plot, want in ((0, other[30, 7]), (1, (other - mine)[30, 7])):
        cells = page.locator(".x-pair .x-cells").nth(1 + plot)
        box = cells.bounding_box()
        cells.hover(position={"x": 7.5 / 40 * box["width"], "y": 30.5 / 40 * box["height"]})
        read = page.locator(".x-pair .x-plot").nth(1 + plot).locator(".x-readout b").text_content()
        assert float(read.replace("−", "-").strip("<>+")) == pytest.approx(float(want), abs=2e-3)
    page.locator(".x-pair .x-cells").nth(1).click(position={"x": 3.5 / 40 * box["width"], "y": 20.5 / 40 * box["height"]})
    settle(page)
    assert [state(page)[name] for name in ("query", "key", "locked")] == [20, 3, True]
    page.get_by_role("radio", name="scores", exact=True).check()
    settle(page)
    found = numbers(page, "explorer.view.beside.difference.values").view(40, 40)
    want = (made.traces[0].scores[3, 2] - made.traces[0].scores[1, 1]).double()
    torch.testing.assert_close(found[below], want[below], rtol=0, atol=0.03)
    page.get_by_label("Beside it").select_option("")
    settle(page)
    assert page.locator(".x-pair .x-plot:visible").count() == 0


def test_a_head_on_two_texts_and_the_cosines_of_a_token_s_streams(page, made):
    """The difference over the positions both have, where they part, and the cosine of every pair by layer."""
    one, two = made.traces
    settle(page, heads=["1.1"], query=39, locked=True)
    page.get_by_label("Beside it").select_option("t1")
    settle(page)
    assert page.locator(".x-pair .x-title").nth(1).inner_text() == "1.1 pattern, text 2"
    n, below = 18, torch.ones(18, 18).tril().bool()
    found = numbers(page, "explorer.view.beside.difference.values").view(n, n)
    want = two.pattern[1, 1].double() - one.pattern[1, 1, :n, :n].double()
    torch.testing.assert_close(found[below], want[below], rtol=0, atol=2e-3)
    note = page.locator(".x-compare > .note").inner_text()
    assert "over the 18 tokens that both have: from position 8 on the tokens differ" in note

    def stream(trace, place):
        return torch.cat([trace.resid_pre[:, place], trace.resid_post[-1:, place]]).double()

    for query, twin in ((39, 0), (5, 5), (20, 8), (12, 17)):
        page.locator(".x-text button").nth(query).click()
        page.get_by_label("Token there").select_option(str(twin))
        settle(page)
        want = torch.nn.functional.cosine_similarity(stream(one, query), stream(two, twin), dim=-1)
        said = page.locator(".x-chart").get_attribute("aria-label").replace("−", "-").removeprefix("Cosine by layer: ")
        assert [each.rsplit(" ", 1)[0] for each in said.split(", ")] == ["embedding", "layer 1", "layer 2", "layer 3", "end"]
        assert [float(each.rsplit(" ", 1)[1]) for each in said.split(", ")] == pytest.approx(want.tolist(), abs=0.0055)
        torch.testing.assert_close(numbers(page, "explorer.view.cosines"), want, rtol=0, atol=5e-4)
        texts = page.locator(".x-chart .x-number").all_text_contents()
        assert [float(text.replace("−", "-")) for text in texts] == pytest.approx(want.tolist(), abs=0.0055)
        heights = page.locator(".x-chart circle").evaluate_all("all => all.map(c => Number(c.getAttribute('cy')))")
        rise = (heights[0] - heights[-1]) / float(want[-1] - want[0]) if query != twin else 126        # pixels from 0 to 1
        assert [heights[0] - rise * float(each - want[0]) for each in want] == pytest.approx(heights, abs=0.2)
    assert stream(one, 5).allclose(stream(two, 5), atol=1e-4)          # they begin alike: a cosine of 1


def test_the_same_token_is_found_in_the_other_text(page, made):
    """'Token there' starts at the first equal token; a cell of the other grid chooses it."""
    labels = [trace.labels for trace in made.traces]
    query = next(i for i in range(39, 0, -1) if labels[0][i] in labels[1])
    settle(page, query=query, locked=True)
    page.get_by_label("Beside it").select_option("t1")
    settle(page)
    assert state(page)["twin"] == labels[1].index(labels[0][query])
    cells = page.locator(".x-pair .x-cells").nth(1)
    box = cells.bounding_box()
    cells.click(position={"x": 2.5 / 18 * box["width"], "y": 9.5 / 18 * box["height"]})
    settle(page)
    assert state(page)["twin"] == 9
    assert state(page)["query"] == query


def test_the_other_text_opens_with_a_query_that_it_has(page, made):
    page.get_by_label("Beside it").select_option("t1")
    page.get_by_role("button", name="text 2:").click()
    settle(page)
    found = state(page)
    assert (found["text"], found["other"], found["query"]) == (1, "", 17)
    assert page.locator(".x-text button").count() == 18
    options = page.get_by_label("Beside it").locator("option").evaluate_all("all => all.map(o => o.value)")
    assert "t0" in options
    assert "t1" not in options
    page.get_by_label("Beside it").select_option("t0")
    settle(page)
    found = numbers(page, "explorer.view.beside.difference.values")
    assert len(found) == 18 * 18


# -- taking away -------------------------------------------------------------------------------------------------------

def test_csv_of_the_row_and_of_the_grid_are_the_library_s(page, made):
    """Read as the report's tables are: the row's weights are the exact ones, bit for bit; the grid's within the error."""
    trace = made.traces[0]
    settle(page, heads=["1.1"], query=30, locked=True)
    data, name = taken(page, "Row as CSV")
    assert name == "L1H1_pattern_from_30.csv"
    row = pandas.read_csv(io.BytesIO(data), quoting=2, keep_default_na=False)
    assert list(row) == ["layer", "head", "query", "key", "query_token", "key_token", "weight"]
    assert row["key"].tolist() == list(range(31))
    assert row["key_token"].tolist() == [label.replace("\u200e", "") for label in trace.labels[:31]]
    assert (row["layer"] == 1).all()
    assert (row["head"] == 1).all()
    assert (row["weight"].to_numpy(dtype=np.float32) == trace.pattern[1, 1, 30, :31].numpy()).all()
    data, name = taken(page, "Grid as CSV")
    assert name == "L1H1_pattern.csv"
    grid = pandas.read_csv(io.BytesIO(data), quoting=2, keep_default_na=False)
    assert len(grid) == 40 * 41 // 2
    want = trace.pattern[1, 1][grid["query"].astype(int).tolist(), grid["key"].astype(int).tolist()]
    torch.testing.assert_close(torch.tensor(grid["weight"]), want.double(), rtol=0, atol=1e-3)

    settle(page, heads=["1.1", "3.2"], shown="scores", beta=2, first=False)
    data, name = taken(page, "Grid as CSV")
    assert name == "L1H1_L3H2_scores_sharpness_2_without_first.csv"
    grid = pandas.read_csv(io.BytesIO(data), quoting=2)
    assert set(grid["heads"]) == {"1.1 3.2"}
    assert set(grid["merge"]) == {"mean"}
    assert grid.loc[grid["key"] == 0, "score"].isna().all()                     # left out: an empty cell
    rest = grid[grid["key"] > 0]
    want = (trace.scores[1, 1] + trace.scores[3, 2])[rest["query"].astype(int).tolist(), rest["key"].astype(int).tolist()]
    torch.testing.assert_close(torch.tensor(rest["score"].to_numpy()), want.double(), rtol=0, atol=0.05)
    settle(page, heads=[f"{layer}.{head}" for layer in range(4) for head in range(6)])
    assert taken(page, "Grid as CSV")[1].startswith("24_heads_")


def test_csv_survives_the_torture_text(browser, torture):
    trace, path = torture
    with explorer(browser, path) as page:
        data, _ = taken(page, "Row as CSV")
    row = pandas.read_csv(io.BytesIO(data), quoting=2, keep_default_na=False)
    shown = [label.replace("\u200e", "") for label in row["key_token"]]
    assert shown == [label.replace("\u200e", "") for label in trace.labels]


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
