"""The explorer by its user's gestures in Chromium: pointer and keyboard on the wall, the text, the grid and the switches."""

import itertools
import math

import pytest
import torch

import inspector
from inspector.pages import words

from . import browser as chromium
from . import exploring
from .exploring import cell, demo_ids, explorer, numbers, settle, state, wait

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with chromium.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def model():
    return inspector.load("demo")


@pytest.fixture(scope="module")
def traces(model):
    """Two texts that begin alike and part at position 8, the second shorter."""
    ids = demo_ids(model, 40)
    return [inspector.trace(model, ids=ids), inspector.trace(model, ids=[*ids[:8], *ids[20:30]])]


@pytest.fixture(scope="module")
def repeats(model):
    return inspector.heads(model, n_sequences=4)


@pytest.fixture(scope="module")
def page_path(traces, repeats, tmp_path_factory):
    return exploring.save_page(tmp_path_factory.mktemp("page") / "explorer.html", traces, repeats=repeats)


@pytest.fixture
def page(browser, page_path):
    with explorer(browser, page_path, height=1400) as found:
        yield found


def token(page, place):
    return page.locator(".x-text button").nth(place)


def tile(page, head):
    return page.locator(f".x-board [data-head='{head}']")


def places(page):
    """{head: (row, column)} on the wall, as the eye sees it: by the buttons' boxes."""
    boxes = page.evaluate("[...document.querySelectorAll('.x-board button')].map(b => { const r = b.getBoundingClientRect();"
                          " return [b.dataset.head, r.left, r.top]; })")
    tops, lefts = sorted({round(top) for *_, top in boxes}), sorted({round(left) for _, left, _ in boxes})
    return {head: (tops.index(round(top)), lefts.index(round(left))) for head, left, top in boxes}


# -- the wall ----------------------------------------------------------------------------------------------------------

def test_the_wall_stands_by_layer_and_by_every_score(page, model, traces, repeats):
    """Layer and head in the model's order; by a score the largest first, equal ones as in the model, those without last."""
    heads = [f"{layer}.{head}" for layer in range(4) for head in range(6)]
    assert places(page) == {head: divmod(i, 6) for i, head in enumerate(heads)}
    on_text = inspector.heads(model, ids=traces[0].ids.tolist())
    order = page.get_by_label("Order")
    values = order.locator("option").evaluate_all("all => all.map(o => o.value)")
    assert values == ["layer", *(f"{on}:{score.column}" for on in ("text", "repeats") for score in words.SCORES)]
    for value in values[1:]:
        order.select_option(value)
        settle(page)
        on, column = value.split(":")
        scores = (repeats if on == "repeats" else on_text)[column].round(6).tolist()
        scores = [-1 if math.isnan(score) else score for score in scores]
        want = sorted(range(24), key=lambda i: -scores[i])
        assert places(page) == {heads[i]: divmod(place, 6) for place, i in enumerate(want)}, value
        assert page.evaluate("[...document.querySelectorAll('.x-board button')].map(b => b.dataset.head)") == [
            heads[i] for i in want]                                    # for Tab and screen readers alike
    assert page.locator(".x-layers span").count() == 0
    order.select_option("layer")
    settle(page)
    assert page.locator(".x-layers span").all_inner_texts() == ["0", "1", "2", "3"]


def test_a_tile_shows_its_head(page, traces):
    """The strongest cell of each block, on the ramp: the canvas' pixels against the trace."""
    side, pixels = page.evaluate("""() => { const canvas = document.querySelector('.x-tiles');
      return [explorer.store.bundle.texts[0].side, Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width,
        canvas.height).data)]; }""")
    ramp = page.evaluate("explorer.store.bundle.ramps.light")
    image = torch.tensor(pixels).view(4 * (side + 3) - 3, 6 * (side + 3) - 3, 4)
    block = math.ceil(40 / side)
    assert (side, block) == (20, 2)
    for layer, head in ((0, 3), (1, 2), (3, 5)):
        pooled = torch.nn.functional.max_pool2d(traces[0].pattern[layer, head][None, None], block, ceil_mode=True)[0, 0]
        for i, j in ((0, 0), (7, 3), (19, 19), (12, 0), (5, 4)):
            level = float(pooled[i, j]) ** 0.5 * 32
            low = min(int(level), 31)
            want = torch.lerp(torch.tensor(ramp[low]).double(), torch.tensor(ramp[low + 1]).double(), level - low)
            found = image[layer * (side + 3) + i, head * (side + 3) + j]
            assert found[3] == 255
            assert (found[:3] - want).abs().max() <= 6, (layer, head, i, j)
        assert image[layer * (side + 3), head * (side + 3) + 1, 3] == 0            # masked: nothing is painted


def test_hover_names_a_head_and_its_scores(page, model, traces, repeats):
    on_text = inspector.heads(model, ids=traces[0].ids.tolist()).set_index(["layer", "head"])
    verdicts = repeats.set_index(["layer", "head"])["verdict"]
    for layer, head in ((0, 3), (1, 1), (3, 0)):
        tile(page, f"{layer}.{head}").hover()
        said = page.locator(".x-wall > .x-readout").text_content()
        verdict = words.verdict_words(verdicts[layer, head])
        assert said.startswith(f"{layer}.{head} ({verdict}): " if verdict else f"{layer}.{head}: ")
        for score in words.SCORES:
            assert f"{score.title} {words.number(on_text.loc[(layer, head), score.column])}" in said
        assert tile(page, f"{layer}.{head}").get_attribute("aria-label") == said
    page.mouse.move(2, 2)
    wait(page, "document.querySelector('.x-wall > .x-readout').textContent.trim() === ''")


def test_a_click_opens_a_head_and_shift_adds_one(page):
    tile(page, "2.4").click()
    settle(page)
    assert page.locator("h2.x-head").inner_text().startswith("Head 2.4")
    assert page.locator(".x-main .x-title").inner_text() == "2.4 pattern"
    for modifier, head, heads in (("Shift", "0.1", ["2.4", "0.1"]), ("Control", "3.3", ["2.4", "0.1", "3.3"]),
                                  ("Shift", "0.1", ["2.4", "3.3"]), ("Shift", "2.4", ["3.3"]), ("Shift", "3.3", ["3.3"])):
        tile(page, head).click(modifiers=[modifier])
        settle(page)
        assert state(page)["heads"] == heads
        pressed = page.locator(".x-board [aria-pressed=true]")
        assert pressed.evaluate_all("all => all.map(b => b.dataset.head)") == sorted(heads)


def test_arrow_keys_walk_the_wall_as_it_stands(page):
    """In the order of the eye, also when sorted by a score; Enter opens, Shift and Enter adds; edges stop."""
    for order in ("layer", "text:first_token"):
        page.get_by_label("Order").select_option(order)
        settle(page)
        at = {place: head for head, place in places(page).items()}
        tile(page, at[0, 0]).click()
        row = column = 0
        for key in ["Right", "Down", "Down", "Left", "Left", "Up", "Right", "End", "Right", "Down", "Up", "Home", "Left", "Up"]:
            key = key if key in ("Home", "End") else "Arrow" + key
            page.keyboard.press(key)
            step = {"ArrowLeft": -1, "ArrowRight": 1, "ArrowUp": -6, "ArrowDown": 6, "Home": -99, "End": 99}[key]
            to = 6 * row + column + step
            if abs(step) != 6 or 0 <= to < 24:
                row, column = divmod(max(0, min(23, to)), 6)
            assert page.evaluate("document.activeElement.dataset.head") == at[row, column], key
            assert page.locator(".x-wall > .x-readout").text_content().startswith(at[row, column])
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        settle(page)
        assert state(page)["heads"] == [at[1, 0]]
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Shift+Enter")
        settle(page)
        assert state(page)["heads"] == [at[1, 0], at[1, 1]]


def test_several_heads_are_shown_by_mean_or_max(page, traces):
    tile(page, "1.1").click()
    assert not page.get_by_role("radio", name="max").is_visible()
    tile(page, "3.2").click(modifiers=["Shift"])
    both = torch.stack([traces[0].pattern[1, 1], traces[0].pattern[3, 2]]).double()[:, -1]
    page.get_by_role("radio", name="max").check()
    settle(page)
    torch.testing.assert_close(numbers(page, "explorer.view.values"), both.amax(0), rtol=0, atol=1e-3)
    assert page.locator(".x-main .x-title").inner_text() == "1.1, 3.2 pattern, max"
    page.get_by_role("radio", name="mean").check()
    settle(page)
    torch.testing.assert_close(numbers(page, "explorer.view.values"), both.mean(0), rtol=0, atol=1e-3)


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
    page.wait_for_timeout(100)
    settle(page)
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


def test_a_locked_text_reads_a_value_under_the_pointer(page, traces):
    tile(page, "1.1").click()
    token(page, 30).click()
    settle(page)
    read = page.locator(".x-words .x-readout")
    token(page, 4).hover()
    assert "30 → “" in read.text_content()
    weight = float(traces[0].pattern[1, 1, 30, 4])
    assert float(read.locator("b").text_content().strip("<")) == pytest.approx(weight, abs=8e-4)
    token(page, 35).hover()
    assert "masked: a later token" in read.text_content()


def test_tokens_are_shaded_by_weight(page, traces):
    """Darker for more, on the square root and on the linear scale; a masked token is not shaded at all."""
    tile(page, "1.1").click()
    settle(page, query=30, locked=True)
    weights = traces[0].pattern[1, 1, 30]
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


def test_the_other_direction_shows_who_looks_at_a_token(page, traces):
    tile(page, "1.1").click()
    token(page, 8).click()
    page.get_by_role("radio", name="who looks at it").check()
    settle(page)
    want = traces[0].pattern[1, 1, :, 8].double()
    found = numbers(page, "explorer.view.values")
    assert found[:8].isnan().all()
    torch.testing.assert_close(found[8:], want[8:], rtol=0, atol=1e-3)
    assert page.locator(".x-row caption").inner_text().startswith("Who looks at")
    first = page.locator(".x-row tbody tr").first
    assert int(first.locator("sup").text_content()) == int(want.argmax())
    assert float(first.locator("td").nth(0).text_content().strip("<>")) == pytest.approx(float(want.max()), abs=1e-3)


# -- the grid ----------------------------------------------------------------------------------------------------------

def test_the_grid_is_read_by_pointer_and_keys_and_a_click_picks(page, traces):
    tile(page, "1.1").click()
    settle(page)
    cells, read = page.locator(".x-main .x-cells"), page.locator(".x-main .x-plot .x-readout")
    labels = [words.bare(label) for label in traces[0].labels]
    for query, key in ((39, 0), (17, 16), (8, 3)):
        cells.hover(position=cell(page, query, key))
        assert read.text_content().startswith(f"“{labels[query]}” {query} → “{labels[key]}” {key}")
        assert float(read.locator("b").text_content().strip("<>")) == pytest.approx(
            float(traces[0].pattern[1, 1, query, key]), abs=8e-4)
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
    assert f"({place}): choose another key" in page.locator(".x-moves > .note").inner_text()


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
            ("radio", "log", "scale", "log"), ("radio", "square root", "scale", "sqrt"), ("radio", "who looks at it", "way", "to"),
            ("radio", "what it looks at", "way", "from")):
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


# -- what comes late ---------------------------------------------------------------------------------------------------

def test_what_was_asked_for_last_is_what_stands(page):
    """Parts that arrive late belong to a view that is gone: here the second text's, asked for and left again."""
    pixels = "document.querySelector('.x-tiles').toDataURL()"
    before = page.evaluate(pixels)
    page.evaluate("""async () => { const { store } = explorer, wait = ms => new Promise(done => setTimeout(done, ms));
      let called;
      const asked = new Promise(done => { called = done; });
      const slow = make => async (text, ...more) => {
        if (text === 1) { called(); await wait(600); }
        return make.call(store, text, ...more); };
      store.thumbs = slow(store.thumbs);
      const [one, two] = document.querySelectorAll(".x-texts button");
      two.click();
      await asked;
      one.click();
      await wait(1000); }""")
    assert page.evaluate(pixels) == before
    assert page.locator(".x-text button").count() == 40
    assert "(17), key" in page.locator(".x-moves > .note").inner_text()
    assert page.evaluate("explorer.view.state.text") == 0


def test_nothing_can_be_touched_before_it_is_there(browser, page_path):
    """Pointer and keys in a page whose texts are still being unpacked: no error, and it comes to life."""
    held = "let free; const gate = new Promise(done => { free = done; }); window.free = () => " \
        "free(); const read = Response.prototype.arrayBuffer; Response.prototype.arrayBuffer = async function () { " \
        "await gate; return read.call(this); };"
    with chromium.opened(browser, page_path, script=held) as page:
        page.wait_for_selector(".x-explorer", state="attached")
        for x, y in itertools.product(range(20, 1280, 140), range(100, 900, 90)):
            page.mouse.move(x, y)
        for place in ((1000, 190), (500, 300), (200, 250), (600, 700)):
            page.mouse.click(*place)
        for _ in range(12):
            page.keyboard.press("Tab")
            page.keyboard.press("ArrowRight")
        page.evaluate("free()")
        page.wait_for_selector("[data-ready]")
        token(page, 3).click()
        settle(page)
        assert state(page)["query"] == 3
