"""The page /docs: docstrings in paragraphs, what stands in backticks as code, and nothing of them as markup."""

import re

import pytest

from inspector.server import calls
from inspector.server.docs import docs_page, paragraphs

from . import browser as chromium
from .serving import running, two_models

NASTY = "One `<b>x</b>` & <script>window.hit = 1</script>\nof two `lines`.\n\n  \n`</code>` ends; a ` stays, \"quoted\"."


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with running(two_models(tmp_path_factory.mktemp("worded"))) as found:
        yield found


def test_paragraphs_by_hand():
    assert paragraphs("a `b` c.\nd\n\n`e`\n \n\nf ` g\n") == [
        [("a ", False), ("b", True), (" c.\nd", False)], [("e", True)], [("f ` g", False)]]
    assert paragraphs("a `b\nc` d") == [[("a `b\nc` d", False)]]            # no name goes over two lines
    assert paragraphs("") == []


def a_document(text):
    """An OpenAPI document of one route with this text."""
    return {"info": {"title": "t", "version": "1", "description": "d"},
            "paths": {"/a": {"get": {"summary": text, "description": text}}}}


def test_a_docstring_is_text_and_its_names_are_code():
    page = docs_page(a_document(NASTY))
    first = ("<p>One <code>&lt;b&gt;x&lt;/b&gt;</code> &amp; &lt;script&gt;window.hit = 1&lt;/script&gt;\n"
             "of two <code>lines</code>.</p>")
    second = "<p><code>&lt;/code&gt;</code> ends; a ` stays, &#34;quoted&#34;.</p>"
    assert page.count(f"{first}\n{second}") == 2                     # the summary and the whole


def test_every_name_in_a_docstring_is_code_and_no_backtick_is_left(site):
    page = site.get("/docs").body.decode()
    assert "`" not in page
    for call in calls.CALLS.values():
        for name in re.findall("`([a-z_]+)`", f"{call.body.__doc__} {call.function.__doc__}"):
            assert f"<code>{name}</code>" in page


def test_what_the_explorer_rounds_stands_there(site):
    page = site.get("/docs").body.decode()
    for line in ("What is stored is rounded to half precision", "below 0.001", "half of <code>measured</code> times the"):
        assert line in page
    assert "at most 100<" in page                                    # and no limit is a fraction
    assert "100.0" not in page


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_fits_and_breaks_no_name_of_a_field(browser, site, width, scheme):
    with chromium.opened(browser, f"{site.address}docs", width=width, scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        names = page.locator("td:first-child code").evaluate_all("all => all.map(one => one.getClientRects().length)")
        assert len(names) > 50
        assert set(names) == {1}
        ink = page.evaluate("getComputedStyle(document.body).color")
        assert ink == {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}[scheme]
