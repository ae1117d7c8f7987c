"""The address of a view, in Chromium: a link opens the same view, whatever a fragment says the page stands."""

import math

import pytest

from . import exploring
from .exploring import explorer, numbers, settle, state, wait

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return exploring.two_texts(tmp_path_factory.mktemp("page"))


STATES = [{}, {"heads": ["2.3"], "query": 7, "key": 3, "locked": True},
          {"heads": ["0.1", "3.5"], "merge": "max", "shown": "values", "scale": "log", "beta": 2.75, "query": 12},
          {"way": "to", "shown": "scores", "scale": "linear", "first": False, "self": False, "query": 0, "key": 9},
          {"text": 1, "other": "t0", "twin": 33, "order": "repeats:induction", "query": 17, "beta": 0},
          {"other": "1.4", "order": "text:first_token", "beta": 100, "query": 39}]


@pytest.mark.parametrize("wanted", STATES)
def test_a_link_opens_the_same_view_again(browser, made, wanted):
    """Every field of the state, and the numbers that it shows; from the address bar and from the link alike."""
    with explorer(browser, made.path) as page:
        settle(page, **wanted)
        found, shown = state(page), numbers(page, "explorer.view.values")
        assert {name: found[name] for name in wanted} == wanted
        link = page.get_by_text("Link to this view").get_attribute("href")
        page.wait_for_function("link => location.href === link", arg=link)
        page.get_by_text("Link to this view").click()
        page.get_by_role("status").filter(has_text=".").wait_for()
        assert page.get_by_role("status").inner_text() in ("Copied.", "The address bar holds it.")
    with explorer(browser, made.path, fragment="#" + link.partition("#")[2]) as page:
        assert state(page) == found
        assert (numbers(page, "explorer.view.values") == shown)[~shown.isnan()].all()


NASTY = ["", "#", "#nonsense", "#heads=9.9+x&query=NaN&beta=NaN", "#query=-5&key=1e9&beta=-1",
         "#beta=1e9&query=1e9&text=1e9", "#__proto__=1&constructor=2&toString=3", "#text=0&other=t0", "#other=t99&twin=-7",
         "#other=t0001", "#heads=%E0%A4%A&%%%=%zz", "#shown=nothing&scale=&way=x&merge=1", "#order=text:nothing",
         "#order=nothing:induction", "#order=text:__proto__", "#heads=__proto__", "#heads=constructor&other=toString",
         "#locked=maybe&first=&self=1", "#beta=Infinity", "#query=3.7&key=2.2", "#beta=0x10", "#query=&key=&beta=",
         "#heads=" + "+".join(["1.1"] * 500), "#" + "a" * 5000, "#twin=NaN&other=t1&text=1"]


# What the page makes of fragments, one after another: its state, and what it shows of that.
FOLLOWED = """async fragments => { const found = [];
  const labels = [...document.querySelectorAll("label")];
  const list = name => labels.find(label => label.textContent.startsWith(name)).control.value;
  for (const fragment of fragments) {
    const before = location.href;
    location.hash = fragment;
    if (location.href !== before) await new Promise(done => addEventListener("hashchange", done, { once: true }));
    await explorer.update({});
    found.push([explorer.state, list("Beside it"), list("Order"), document.querySelector(".x-explorer").innerText,
                ({}).polluted === undefined && !Object.prototype.hasOwnProperty.call({}, "a")]);
  }
  return found; }"""


def test_no_fragment_breaks_the_page(browser, made):
    """Whatever it says: no error, and a state within bounds whose parts are all shown."""
    with explorer(browser, made.path) as page:
        fields = set(state(page))
        for fragment, (found, beside, order, text, clean) in zip(NASTY, page.evaluate(FOLLOWED, NASTY), strict=True):
            assert set(found) == fields, fragment
            n = [40, 18][found["text"]]
            assert found["text"] in (0, 1)
            assert 0 <= found["query"] < n
            assert found["query"] == int(found["query"])
            low, high = (0, found["query"]) if found["way"] == "from" else (found["query"], n - 1)
            assert found["key"] == -1 or low <= found["key"] <= high
            assert 0 <= found["beta"] <= 100
            assert found["heads"]
            assert all(head in {f"{a}.{b}" for a in range(4) for b in range(6)} for head in found["heads"])
            assert all(isinstance(found[name], bool) for name in ("locked", "first", "self"))
            assert found["other"] in ("", "t0", "t1")
            assert found["other"] != f"t{found['text']}"
            assert (beside, order) == (found["other"], found["order"])
            assert "NaN" not in text, fragment
            assert clean
        for fragment in NASTY[3:12]:
            page.evaluate("fragment => history.replaceState(null, '', fragment)", fragment)
            page.reload()
            page.wait_for_selector("[data-ready]")
            assert page.locator(".x-text button").count() in (40, 18)


@pytest.mark.parametrize(("said", "first"),
                         [("no", False), ("yes", True), ("1", True), ("0", True), ("", True), ("NO", True)])
def test_a_yes_or_no_said_otherwise_changes_nothing(browser, made, said, first):
    with explorer(browser, made.path, fragment=f"#first={said}") as page:
        assert state(page)["first"] is first


def test_a_changed_address_and_the_way_back_are_followed(browser, made):
    with explorer(browser, made.path, fragment="#heads=1.1&query=12") as page:
        page.evaluate("location.hash = '#heads=2.2&query=5&locked=yes'")
        wait(page, "explorer.view.state.heads[0] === '2.2' && explorer.view.query === 5")
        page.go_back()
        wait(page, "explorer.view.state.heads[0] === '1.1' && explorer.view.query === 12")
        page.go_forward()
        wait(page, "explorer.view.state.locked && explorer.view.query === 5")


def test_the_address_follows_however_fast_the_slider_moves(browser, made):
    """A browser refuses to change its address more than 200 times in ten seconds; a slider moves more often than that."""
    with explorer(browser, made.path) as page:
        page.evaluate("for (let i = 0; i <= 500; i++) explorer.update({ beta: i / 10 })")
        wait(page, "location.hash.includes('beta=50')")
        assert math.isclose(state(page)["beta"], 50)
