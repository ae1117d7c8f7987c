"""The wall of all heads in Chromium: its orders, its pictures, pointer and keys; and what happens while a page loads."""

import itertools
import math

import pytest
import torch

import inspector
from inspector.pages import words

from . import browser as chromium
from . import exploring
from .exploring import explorer, numbers, settle, state, tile, token, wait

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return exploring.two_texts(tmp_path_factory.mktemp("page"))


@pytest.fixture
def page(browser, made):
    with explorer(browser, made.path, height=1400) as found:
        yield found


def places(page):
    """{head: (row, column)} on the wall, as the eye sees it: by the buttons' boxes."""
    boxes = page.evaluate("[...document.querySelectorAll('.x-board button')].map(b => { const r = b.getBoundingClientRect();"
                          " return [b.dataset.head, r.left, r.top]; })")
    tops, lefts = sorted({round(top) for *_, top in boxes}), sorted({round(left) for _, left, _ in boxes})
    return {head: (tops.index(round(top)), lefts.index(round(left))) for head, left, top in boxes}


# -- the wall ----------------------------------------------------------------------------------------------------------

def test_the_wall_stands_by_layer_and_by_every_score(page, made):
    """Layer and head in the model's order; by a score the largest first, equal ones as in the model, those without last."""
    heads = [f"{layer}.{head}" for layer in range(4) for head in range(6)]
    assert places(page) == {head: divmod(i, 6) for i, head in enumerate(heads)}
    on_text = inspector.heads(made.model, ids=made.traces[0].ids.tolist())
    order = page.get_by_label("Order")
    values = order.locator("option").evaluate_all("all => all.map(o => o.value)")
    assert values == ["layer", *(f"{on}:{score.column}" for on in ("text", "repeats") for score in words.SCORES)]
    for value in values[1:]:
        order.select_option(value)
        settle(page)
        on, column = value.split(":")
        scores = (made.repeats if on == "repeats" else on_text)[column].round(6).tolist()
        scores = [-1 if math.isnan(score) else score for score in scores]
        want = sorted(range(24), key=lambda i: -scores[i])
        assert places(page) == {heads[i]: divmod(place, 6) for place, i in enumerate(want)}, value
        assert page.evaluate("[...document.querySelectorAll('.x-board button')].map(b => b.dataset.head)") == [
            heads[i] for i in want]                                    # for Tab and screen readers alike
    assert page.locator(".x-layers span").count() == 0
    order.select_option("layer")
    settle(page)
    assert page.locator(".x-layers span").all_inner_texts() == ["0", "1", "2", "3"]


def test_a_tile_shows_its_head(page, made):
    """The strongest cell of each block, on the ramp: the canvas' pixels against the trace."""
    side, pixels = page.evaluate("""() => { const canvas = document.querySelector('.x-tiles');
      return [explorer.store.bundle.texts[0].side, Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width,
        canvas.height).data)]; }""")
    ramp = page.evaluate("explorer.store.bundle.ramps.light")
    image = torch.tensor(pixels).view(4 * (side + 3) - 3, 6 * (side + 3) - 3, 4)
    block = math.ceil(40 / side)
    assert (side, block) == (20, 2)
    for layer, head in ((0, 3), (1, 2), (3, 5)):
        pooled = torch.nn.functional.max_pool2d(made.traces[0].pattern[layer, head][None, None], block, ceil_mode=True)[0, 0]
        for i, j in ((0, 0), (7, 3), (19, 19), (12, 0), (5, 4)):
            level = float(pooled[i, j]) ** 0.5 * 32
            low = min(int(level), 31)
            want = torch.lerp(torch.tensor(ramp[low]).double(), torch.tensor(ramp[low + 1]).double(), level - low)
            found = image[layer * (side + 3) + i, head * (side + 3) + j]
            assert found[3] == 255
            assert (found[:3] - want).abs().max() <= 6, (layer, head, i, j)
        assert image[layer * (side + 3), head * (side + 3) + 1, 3] == 0            # masked: nothing is painted


def test_hover_names_a_head_and_its_scores(page, made):
    on_text = inspector.heads(made.model, ids=made.traces[0].ids.tolist()).set_index(["layer", "head"])
    verdicts = made.repeats.set_index(["layer", "head"])["verdict"]
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
        for letter in "RDDLLURERDUHLU":
            key = {"R": "ArrowRight", "L": "ArrowLeft", "U": "ArrowUp", "D": "ArrowDown", "H": "Home", "E": "End"}[letter]
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


def test_several_heads_are_shown_by_mean_or_max(page, made):
    tile(page, "1.1").click()
    assert not page.get_by_role("radio", name="max").is_visible()
    tile(page, "3.2").click(modifiers=["Shift"])
    both = torch.stack([made.traces[0].pattern[1, 1], made.traces[0].pattern[3, 2]]).double()[:, -1]
    page.get_by_role("radio", name="max").check()
    settle(page)
    torch.testing.assert_close(numbers(page, "explorer.view.values"), both.amax(0), rtol=0, atol=1e-3)
    assert page.locator(".x-main .x-title").inner_text() == "1.1, 3.2 pattern, max"
    page.get_by_role("radio", name="mean").check()
    settle(page)
    torch.testing.assert_close(numbers(page, "explorer.view.values"), both.mean(0), rtol=0, atol=1e-3)


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


def test_a_head_that_is_pointed_at_is_decoded_before_it_is_opened(browser, made):
    """After a rest, not in passing; by the keys too."""
    known = "Array.from(explorer.store.heads.keys())"
    with explorer(browser, made.path) as page:
        before, opened = page.evaluate(known), state(page)["heads"]
        page.evaluate("""() => {
          const tell = (name, element) => element.dispatchEvent(new PointerEvent(name, { bubbles: name === "pointerover" }));
          for (const head of ["2.0", "2.1"]) tell("pointerover", document.querySelector(`[data-head="${head}"]`));
          tell("pointerleave", document.querySelector(".x-board"));
        }""")
        page.wait_for_timeout(150)
        assert page.evaluate(known) == before
        tile(page, "3.3").hover()
        wait(page, f"{known}.includes('0/3.3')")
        tile(page, "3.3").focus()
        page.keyboard.press("ArrowRight")
        wait(page, f"{known}.includes('0/3.4')")
        assert page.evaluate(known) == [*before, "0/3.3", "0/3.4"]
        assert state(page)["heads"] == opened


def test_without_several_at_once_the_latest_head_stays(browser, made):
    with explorer(browser, made.path) as page:
        several = page.get_by_label("several at once")
        several.check()
        for head in ("2.2", "3.1"):
            tile(page, head).click()
        settle(page)
        assert len(state(page)["heads"]) == 3
        several.uncheck()
        settle(page)
        assert state(page)["heads"] == ["3.1"]
        tile(page, "0.4").click()
        settle(page)
        assert state(page)["heads"] == ["0.4"]


def test_nothing_can_be_touched_before_it_is_there(browser, made):
    """Pointer and keys in a page whose texts are still being unpacked: no error, and it comes to life."""
    held = "let free; const gate = new Promise(done => { free = done; }); window.free = () => " \
        "free(); const read = Response.prototype.arrayBuffer; Response.prototype.arrayBuffer = async function () { " \
        "await gate; return read.call(this); };"
    with chromium.opened(browser, made.path, prepare=lambda page: page.add_init_script(held)) as page:
        page.wait_for_selector("text=Opening …")
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
