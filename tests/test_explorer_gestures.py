"""The explorer by its user's gestures in Chromium: pointer and keyboard on the text, the grid and the switches."""

import math

import pytest
import torch

from inspector.pages import words

from . import exploring
from .exploring import cell, explorer, numbers, settle, state, tile, token, wait

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return exploring.two_texts(tmp_path_factory.mktemp("page"))


@pytest.fixture
def page(browser, made):
    with explorer(browser, made.path, height=1400) as found:
        yield found


# -- the text ----------------------------------------------------------------------------------------------------------

def test_the_pointer_previews_a_query_until_it_is_locked(page):
    token(page, 12).hover()
    wait(page, "explorer.view.query === 12")
    assert state(page)["query"] == 39                           # a preview only
    assert token(page, 12).get_attribute("class").split().count("x-query") == 1
    page.mouse.move(2, 2)
    wait(page, "explorer.view.query === 39")
    token(page, 30).click()
    settle(page)
    assert (state(page)["query"], state(page)["locked"]) == (30, True)
    token(page, 5).hover()
    page.wait_for_timeout(150)
    assert page.evaluate("explorer.view.query") == 30
    token(page, 30).click()                                     # once more: unlocked
    settle(page)
    assert not state(page)["locked"]
    for unlock in ("Escape", "button"):
        token(page, 20).click()
        settle(page)
        assert page.get_by_role("button", name="Unlock").is_visible()
        if unlock == "Escape":
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="Unlock").click()
        settle(page)
        assert (state(page)["query"], state(page)["locked"]) == (20, False)
    page.get_by_role("button", name="Lock", exact=True).click()
    settle(page)
    assert state(page)["locked"]


def test_every_token_is_named_with_its_own_weight(page, made):
    """What a screen reader says, after each change: of the query, of a head, of the direction."""
    for patch, (layer, head), query, way in (({"query": 30}, (1, 1), 30, "from"), ({"heads": ["3.2"]}, (3, 2), 30, "from"),
                                             ({"query": 8}, (3, 2), 8, "from"), ({"way": "to"}, (3, 2), 8, "to")):
        settle(page, **{"heads": ["1.1"], **patch} if layer == 1 else patch)
        pattern = made.traces[0].pattern[layer, head]
        values, verb, first = pattern[query, :query + 1], "looked at with", 0
        if way == "to":
            values, verb, first = pattern[query:, query], "looks with", query
        names = page.locator(".x-text button").evaluate_all("all => all.map(b => b.getAttribute('aria-label'))")
        for place, name in enumerate(names):
            assert f", position {place}" in name
            assert (", query" in name) is (place == query)
            if 0 <= place - first < len(values):
                said = name.split(f", {verb} ")[1].strip("<>")
                assert float(said) == pytest.approx(float(values[place - first]), abs=2e-4)
            else:
                assert "look" not in name


def test_a_locked_text_reads_a_value_under_the_pointer(page, made):
    tile(page, "1.1").click()
    token(page, 30).click()
    settle(page)
    read = page.locator(".x-words .x-readout")
    token(page, 4).hover()
    assert "30 → “" in read.text_content()
    weight = float(made.traces[0].pattern[1, 1, 30, 4])
    assert float(read.locator("b").text_content().strip("<")) == pytest.approx(weight, abs=8e-4)
    token(page, 35).hover()
    assert "masked: a later token" in read.text_content()


def test_tokens_are_shaded_by_weight(page, made):
    """Darker for more, on the square root and on the linear scale; a masked token is not shaded at all."""
    tile(page, "1.1").click()
    settle(page, query=30, locked=True)
    weights = made.traces[0].pattern[1, 1, 30]
    ramp = torch.tensor(page.evaluate("explorer.store.bundle.ramps.light")).double()
    for scale, name in (("sqrt", "square root"), ("linear", "linear"), ("log", "log")):
        page.get_by_role("radio", name=name).check()
        settle(page)
        shades = page.locator(".x-text button").evaluate_all("all => all.map(b => getComputedStyle(b).backgroundColor)")
        for place in range(40):
            if place > 30:
                assert shades[place] == "rgba(0, 0, 0, 0)"
                continue
            w = float(weights[place])
            level = {"sqrt": w ** 0.5, "linear": w, "log": max(0, 1 - math.log(w) / math.log(1e-4))}[scale] * 32
            low = min(int(level), 31)
            found = torch.tensor([float(part) for part in shades[place][4:-1].split(",")]).double()
            assert (found - torch.lerp(ramp[low], ramp[low + 1], level - low)).abs().max() <= 3


def test_arrow_keys_walk_the_text(page):
    """The token with the focus is the query until Enter locks it; then the focus reads."""
    page.keyboard.press("Tab")
    token(page, 39).focus()
    for key, place in (("ArrowLeft", 38), ("ArrowUp", 37), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1),
                       ("ArrowDown", 2), ("End", 39), ("ArrowRight", 39), ("ArrowLeft", 38)):
        page.keyboard.press(key)
        settle(page)
        assert state(page)["query"] == place
        assert page.evaluate("document.activeElement.title") == f"position {place}"
    page.keyboard.press("Enter")
    settle(page)
    assert state(page)["locked"]
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert state(page)["query"] == 38
    assert "38 → “" in page.locator(".x-words .x-readout").text_content()
    assert page.evaluate("document.querySelectorAll('.x-text [tabindex=\"0\"]').length") == 1


def test_the_other_direction_shows_who_looks_at_a_token(page, made):
    tile(page, "1.1").click()
    token(page, 8).click()
    page.get_by_role("radio", name="who looks at it").check()
    settle(page)
    want = made.traces[0].pattern[1, 1, :, 8].double()
    found = numbers(page, "explorer.view.values")
    assert found[:8].isnan().all()
    torch.testing.assert_close(found[8:], want[8:], rtol=0, atol=1e-3)
    assert page.locator(".x-row caption").inner_text().startswith("Who looks at")
    first = page.locator(".x-row tbody tr").first
    assert int(first.locator("sup").text_content()) == int(want.argmax())
    assert float(first.locator("td").nth(0).text_content().strip("<>")) == pytest.approx(float(want.max()), abs=1e-3)


# -- the grid ----------------------------------------------------------------------------------------------------------

def test_the_grid_is_read_by_pointer_and_keys_and_a_click_picks(page, made):
    tile(page, "1.1").click()
    settle(page)
    cells, read = page.locator(".x-main .x-cells"), page.locator(".x-main .x-plot .x-readout")
    labels = [words.bare(label) for label in made.traces[0].labels]
    for query, key in ((39, 0), (17, 16), (8, 3)):
        cells.hover(position=cell(page, query, key))
        assert read.text_content().startswith(f"“{labels[query]}” {query} → “{labels[key]}” {key}")
        assert float(read.locator("b").text_content().strip("<>")) == pytest.approx(
            float(made.traces[0].pattern[1, 1, query, key]), abs=8e-4)
    cells.hover(position=cell(page, 3, 20))
    assert read.locator("b").text_content() == "masked"
    cells.click(position=cell(page, 3, 20))
    settle(page)
    assert state(page)["query"] == 39
    cells.click(position=cell(page, 25, 7))
    settle(page)
    assert [state(page)[name] for name in ("query", "key", "locked")] == [25, 7, True]
    assert page.locator(".x-row tr.x-on sup").all_text_contents() in ([], ["7"])
    assert f"key “{labels[7]}” (7)" in page.locator(".x-moves > .note").inner_text()
    page.get_by_role("radio", name="who looks at it").check()
    cells.click(position=cell(page, 25, 7))
    settle(page)
    assert [state(page)[name] for name in ("query", "key")] == [7, 25]         # the token looked at, and who looks

    page.get_by_role("radio", name="what it looks at").check()
    cells.focus()
    cells.hover(position=cell(page, 10, 4))
    for key in ["ArrowDown"] * 3 + ["ArrowLeft", "ArrowUp", "Enter"]:
        page.keyboard.press(key)
    settle(page)
    assert [state(page)[name] for name in ("query", "key")] == [12, 3]


def test_a_key_chosen_in_the_row_is_marked_and_moves(page):
    settle(page, heads=["1.1"], query=30, locked=True)
    third = page.locator(".x-row tbody tr").nth(2)
    place = int(third.locator("sup").text_content())
    third.locator("button").click()
    settle(page)
    assert state(page)["key"] == place
    assert page.locator(".x-row tr.x-on sup").text_content() == str(place)
    assert page.locator(".x-text li button.x-key").count() == 1
    assert f"({place}): another is chosen in the table" in page.locator(".x-moves > .note").inner_text()


# -- the switches ------------------------------------------------------------------------------------------------------

def test_the_slider_and_its_marks_set_the_sharpness(page):
    field, slider = page.get_by_label("Sharpness as a number"), page.get_by_role("slider", name="Sharpness")
    for mark, beta in (("√d_head", math.sqrt(32)), ("0 uniform", 0), ("1 the model", 1), ("100", 100)):
        page.get_by_role("button", name=mark, exact=True).click()
        settle(page)
        assert state(page)["beta"] == pytest.approx(beta)
        assert float(field.input_value()) == pytest.approx(beta, rel=1e-3)
        # The thumb stands at the mark: both in the middle of the same pixels.
        at = page.evaluate("""name => { const s = document.querySelector('.x-slide input'), b = s.getBoundingClientRect();
          const thumb = 16, mark = [...document.querySelectorAll('.x-marks button')].find(m => m.textContent === name);
          const m = mark.getBoundingClientRect();
          return [b.left + thumb / 2 + (b.width - thumb) * s.value / s.max, (m.left + m.right) / 2]; }""", mark)
        assert at[0] == pytest.approx(at[1], abs=2)
    slider.focus()
    page.keyboard.press("Home")
    settle(page)
    assert state(page)["beta"] == 0
    weights = numbers(page, "explorer.view.values")
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 40), rtol=1e-6, atol=0)
    page.keyboard.press("End")
    settle(page)
    assert state(page)["beta"] == 100
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 8 + (box["width"] - 16) * 0.25, box["y"] + box["height"] / 2)
    settle(page)
    assert state(page)["beta"] == pytest.approx(0.5, abs=0.02)
    for typed, beta in (("7.25", 7.25), ("-3", 0), ("1000", 100), ("", 1)):
        field.fill(typed)
        page.keyboard.press("Enter")
        settle(page)
        assert state(page)["beta"] == beta
    page.keyboard.press("Tab")
    assert field.input_value() == "1"


def test_every_switch_changes_what_is_shown(page):
    """By its label, and nothing else with it."""
    start = state(page)
    for role, name, field, value in (
            ("radio", "scores", "shown", "scores"), ("radio", "value-weighted", "shown", "values"),
            ("radio", "pattern", "shown", "pattern"), ("radio", "linear", "scale", "linear"),
            ("radio", "log", "scale", "log"), ("radio", "square root", "scale", "sqrt"),
            ("radio", "who looks at it", "way", "to"), ("radio", "what it looks at", "way", "from")):
        page.get_by_role(role, name=name, exact=True).check()
        settle(page)
        assert state(page) == {**start, field: value}
    for name, field in (("first token", "first"), ("the query itself", "self")):
        box = page.get_by_role("checkbox", name=name)
        box.uncheck()
        settle(page)
        assert state(page) == {**start, field: False}
        assert f"Without {'the ' if field == 'first' else ''}{name}: the rest is renormalised" in page.locator(
            ".x-row .note").inner_text()
        box.check()
    page.get_by_role("radio", name="scores", exact=True).check()
    settle(page)
    assert page.get_by_role("radio", name="log", exact=True).is_disabled()         # scores have a scale of their own


def test_what_is_typed_is_not_overwritten_by_a_preview(page):
    field = page.get_by_label("Sharpness as a number")
    field.fill("3.")
    token(page, 12).hover()
    wait(page, "explorer.view.query === 12")
    assert field.evaluate("f => f.value || f.validity.badInput") in ("3", "3.", True)
