"""What the live page looks like and says, in Chromium: its own colours after every computation, changes taken back."""

import pytest

import inspector

from .serving import running
from .test_live import button, click, live, open_head, status, until, write

pytestmark = pytest.mark.browser

TEXT = "Ms. Dursley saw a cat. Ms. Dursley sat"
# How far the masked part's lines are from the style's own colour, over the pixels that they cover for the most part.
HATCH = """() => {
  const canvas = document.querySelector(".x-main .x-sheet canvas"), cells = document.querySelector(".x-cells");
  const ratio = devicePixelRatio;
  const [left, side] = [parseFloat(cells.style.left) * ratio, parseFloat(cells.style.width) * ratio];
  const { data } = canvas.getContext("2d").getImageData(left + side * 0.6, left + side * 0.05, side * 0.35, side * 0.3);
  const probe = new OffscreenCanvas(1, 1).getContext("2d");
  probe.fillStyle = getComputedStyle(canvas).getPropertyValue("--hatch").trim();
  probe.fillRect(0, 0, 1, 1);
  const want = probe.getImageData(0, 0, 1, 1).data;
  let farthest = 0, seen = 0;
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 120) {
    seen++;
    for (let c = 0; c < 3; c++) farthest = Math.max(farthest, Math.abs(data[at + c] - want[c]));
  }
  return [seen, farthest];
}"""


@pytest.fixture(scope="module")
def site():
    with running({"demo": inspector.load("demo")}) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_grids_have_the_page_s_colours_after_every_computation(browser, site, scheme):
    """Each answer's explorer is made beside the page, where an element has no colours, and then put on it."""
    with live(browser, site, scheme=scheme) as page:
        for _ in range(2):
            page.wait_for_timeout(100)          # the frame in which it is drawn
            seen, farthest = page.evaluate(HATCH)
            assert seen > 100
            assert farthest <= 8
            write(page, TEXT)


def test_changes_that_a_repeated_text_takes_back_are_named(browser, site):
    with live(browser, site) as page:
        write(page, TEXT)
        click(page, "Repeat this text")
        assert "taken back" not in status(page)
        click(page, "Back to the text")
        open_head(page, "1.1")
        click(page, "Turn off")
        click(page, "Repeat this text")
        assert status(page).endswith("tokens, repeated. Your changes were taken back.")
        assert not button(page, "1.1 off: undo").is_visible()
        click(page, "Back to the text")
        assert "taken back" not in status(page)


@pytest.mark.parametrize("meanwhile", ["another edit", "another text", "in the pause"])
def test_a_position_chosen_while_something_computes_ends_nothing(browser, site, meanwhile):
    """The list under "What changes" is of the run that is shown; what was asked for last is what the page ends with."""
    with live(browser, site) as page:
        write(page, TEXT)
        open_head(page, "0.3")
        click(page, "Turn off")
        page.route("**/api/explore", lambda route: (page.wait_for_timeout(600), route.continue_())[1])
        place = page.get_by_label("Next token after")
        if meanwhile == "another edit":
            open_head(page, "1.1")
            button(page, "Turn off").click()
        else:
            page.get_by_label("Text", exact=True).fill("The cat")
            if meanwhile == "another text":
                page.wait_for_timeout(420)          # after the pause: it computes
        place.select_option("5")
        page.wait_for_timeout(300)
        until(page, "document.getElementById('live').dataset.state === 'done'")
        names = page.locator(".x-texts button").all_inner_texts()
        if meanwhile == "another edit":
            assert names == ["before", "after: 0.3 off, 1.1 off"]
            assert place.input_value() == "5"
        else:
            assert names == ["before", "after: 0.3 off"]
            assert page.locator(".x-main .x-text button").count() == 3
            assert place.input_value() == "2"
