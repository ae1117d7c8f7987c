"""How the explorer opens, in Chromium: what the first picture shows comes first, and nothing waits for the rest."""

import http.server
import json
import re
import threading
from contextlib import contextmanager

import pytest

import inspector

from . import browser as chromium
from . import exploring
from .exploring import demo_ids, settle, state, tile

pytestmark = pytest.mark.browser
PART = re.compile(r'<script type="text/plain" id="part-(\d+)">')
OPENING, LATER = "1.1", "0.2"           # the head that the page opens with, and another


def stored(page_text):
    """What the page stores of its text, with numbers of parts in their places."""
    bundle = json.loads(re.search(r'id="explorer-data">(.*?)</script>', page_text).group(1))
    assert bundle["opening"] == OPENING
    return bundle["texts"][0]


@pytest.fixture(scope="module")
def page_text(tmp_path_factory):
    """A page of 60 tokens, as text."""
    trace = inspector.trace(inspector.load("demo"), ids=demo_ids(inspector.load("demo"), 60))
    return exploring.save_page(tmp_path_factory.mktemp("opening") / "explorer.html", [trace]).read_text(encoding="utf-8")


@contextmanager
def halting(text, at):
    """(address, go on): a server of one page that stops after `at` characters until it is told to go on."""
    go_on = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text[:at].encode())
            self.wfile.flush()
            go_on.wait(60)
            self.wfile.write(text[at:].encode())

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", go_on
    finally:
        go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_first_picture_waits_for_its_own_parts_alone(browser, page_text):
    """A page whose other parts have not come yet: drawn, it answers, and a head that comes later opens when it is there."""
    at = page_text.index(f'id="part-{stored(page_text)["heads"][LATER]["moves"]["vectors"]}"') + 500      # within that part
    assert len(PART.findall(page_text[at:])) > 30
    with halting(page_text, at) as (address, go_on):
        context = browser.new_context()
        page = context.new_page()
        try:
            page.goto(address, wait_until="commit")
            page.wait_for_selector("[data-ready]")
            assert page.evaluate("document.readyState") == "loading"
            assert page.locator(".x-text button").count() == 60
            page.locator(".x-text button").nth(20).click()
            settle(page)
            assert state(page)["query"] == 20
            opened = state(page)["heads"]
            tile(page, LATER).click()
            page.wait_for_timeout(100)
            assert page.evaluate("explorer.view.state.heads") == opened
            go_on.set()
            page.wait_for_function(f"explorer.view.state.heads[0] === '{LATER}'")
            assert page.locator(".x-head").text_content().startswith(f"Head {LATER}")
        finally:
            context.close()


def test_the_parts_of_the_head_that_opens_come_first(page_text):
    """And every part comes once."""
    places = [int(number) for number in PART.findall(page_text)]
    assert sorted(places) == list(range(len(places)))
    own = stored(page_text)["heads"][OPENING]["moves"]
    assert set(places[:2]) == {own["vectors"], own["exact"]}


def incomplete(browser, folder, text):
    """The page of a file with this text, which is known to be no whole one."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    return chromium.opened(browser, folder / "page.html", known=("the file is incomplete",))


@pytest.mark.parametrize("at", ["before the first part", "in the first part"])
def test_a_file_that_is_cut_short_says_so(browser, page_text, tmp_path, at):
    place = PART.search(page_text).start() + (300 if at == "in the first part" else 0)
    with incomplete(browser, tmp_path, page_text[:place]) as page:
        page.wait_for_selector("#explorer [role=alert]")
        assert page.locator("#explorer").inner_text().endswith("a part of this file is missing; the file is incomplete")


def test_a_head_whose_part_is_missing_leaves_the_view_as_it_was(browser, page_text, tmp_path):
    """Said above the text; all else goes on, and another head opens."""
    lost = stored(page_text)["heads"][LATER]["moves"]["vectors"]
    text = re.sub(rf'<script type="text/plain" id="part-{lost}">[^<]*</script>', "", page_text)
    assert len(text) < len(page_text) - 100
    with incomplete(browser, tmp_path, text) as page:
        page.wait_for_selector("[data-ready]")
        for _ in range(2):                                  # not known by heart the second time
            tile(page, LATER).click()
            page.wait_for_function("document.querySelector('.x-trouble').textContent !== ''")
            assert "incomplete" in page.locator(".x-trouble").inner_text()
            assert state(page)["heads"] == [OPENING]
            page.locator(".x-text button").nth(12).click()
            settle(page)
            assert (state(page)["heads"], state(page)["query"]) == ([OPENING], 12)
            assert not page.locator(".x-trouble").is_visible()
        tile(page, "2.2").click()
        page.wait_for_function("explorer.view.state.heads[0] === '2.2'")
