"""The live page under quick fingers, in Chromium: keys while requests run, Cancel by hand, Try again."""

import pytest

import inspector

from .serving import running
from .test_live import FIRST, Held, box, button, click, done, labels, live, soon, state, status

pytestmark = pytest.mark.browser

TYPED = "The cat saw Ms. Dursley, and Ms. Dursley saw that the cat sa"


@pytest.fixture(scope="module")
def loaded():
    return {"demo": inspector.load("demo")}


def shows(page, model, text):
    """That the page is at rest, with one explorer, of this text."""
    run = inspector.trace(model, text)
    assert box(page).input_value() == text
    assert labels(page) == run.labels
    assert status(page) == f"{len(run.labels)} tokens."
    assert page.locator(".x-explorer").count() == page.locator(".l-home").count() == 1
    assert not page.get_by_role("progressbar").is_visible()


def test_sixty_keys_while_requests_run_then_cancel_by_hand_and_try_again(browser, loaded, monkeypatch):
    held = Held(monkeypatch)
    assert len(TYPED) == 60
    with running(loaded) as site, live(browser, site, wait=False) as page:
        soon(lambda: held.asked == [FIRST])
        box(page).focus()
        page.keyboard.press("Control+A")
        for n, letter in enumerate(TYPED, 1):
            page.keyboard.type(letter)
            if n % 20 == 0:                                              # a pause: another request runs now
                soon(lambda n=n: held.asked[-1] == TYPED[:n])
        assert {FIRST, TYPED[:20], TYPED[:40], TYPED} <= set(held.asked)
        assert held.asked[1:] == sorted(held.asked[1:], key=len)
        assert held.stopped == held.asked[:-1]
        button(page, "Cancel").click()
        state(page, "cancelled")
        soon(lambda: held.stopped == held.asked)
        before = list(held.asked)
        held.let_go.set()
        page.wait_for_timeout(600)                                       # longer than the pause after a key
        assert held.asked == before                                      # cancelled is cancelled
        assert page.locator(".x-explorer").count() == 0
        click(page, "Try again")
        shows(page, loaded["demo"], TYPED)


@pytest.mark.parametrize("delay", [5, 60])
def test_sixty_keys_on_a_page_that_answers(browser, loaded, delay):
    """Without a pause, and with one that is long enough now and then."""
    with running(loaded) as site, live(browser, site) as page:
        box(page).focus()
        page.keyboard.press("Control+End")
        for part in range(0, 60, 15):
            page.keyboard.type(TYPED[part:part + 15], delay=delay)
            if delay == 60:
                page.wait_for_timeout(380)                               # a request has just begun, or is about to
        done(page)
        page.wait_for_timeout(600)
        done(page)
        shows(page, loaded["demo"], FIRST + TYPED)
