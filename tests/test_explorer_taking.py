"""Comparing and taking away, in Chromium: two heads, two texts, and what is shown as CSV."""

import io

import numpy as np
import pandas
import pytest
import torch

import inspector

from . import exploring
from .exploring import explorer, numbers, settle, state, taken
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


@pytest.mark.parametrize(("patch", "end"), [
    ({"beta": 3}, "_sharpness_3"), ({"first": False}, "_without_first"), ({"self": False}, "_without_self"),
    ({"first": False, "self": False, "beta": 0.5}, "_sharpness_0.5_without_first_without_self")])
def test_a_row_that_is_not_the_model_s_has_no_exact_numbers(page, made, patch, end):
    """Its file says what was done, and holds what is shown: no exact weight of the untouched row beside it or instead."""
    settle(page, heads=["1.1"], query=30, locked=True)
    assert page.locator(".x-row .x-exact").count() > 5
    settle(page, **patch)
    assert page.locator(".x-row .x-exact").count() == 0
    data, name = taken(page, "Row as CSV")
    assert name == f"L1H1_pattern{end}_from_30.csv"
    row = torch.tensor(pandas.read_csv(io.BytesIO(data), quoting=2)["weight"])
    weights = made.traces[0].pattern[1, 1, 30, :31].double() ** patch.get("beta", 1)
    kept = torch.tensor([patch.get("first", True), *[True] * 29, patch.get("self", True)])
    torch.testing.assert_close(row[kept], weights[kept] / weights[kept].sum(), rtol=0, atol=1e-3)
    assert row[~kept].isnan().all()


def test_csv_survives_the_torture_text(browser, torture):
    trace, path = torture
    with explorer(browser, path) as page:
        data, _ = taken(page, "Row as CSV")
    row = pandas.read_csv(io.BytesIO(data), quoting=2, keep_default_na=False)
    shown = [label.replace("\u200e", "") for label in row["key_token"]]
    assert shown == [label.replace("\u200e", "") for label in trace.labels]
