"""What a notebook shows: results as their tables, everything escaped, and explorers that do not get in each other's way."""

from dataclasses import dataclass, fields, replace
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

import inspector
from inspector.findings.study import Study
from inspector.showing import ROWS, Shown, shown

from . import browser
from .helpers import some_ids, tiny

NASTY = ["</td></table><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--", "&lt;", "'\"", "ابجد", "·the"]
VOID = {"img", "br", "meta", "link", "input"}


class Tree(HTMLParser):
    """A piece of HTML: every element must be closed in its turn. `tables` holds the text of each cell."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.tables = [], [], "", []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag not in VOID
        assert not any(name.startswith("on") for name, _ in attrs)
        self.open.append(tag)
        self.tags.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_comment(self, data):
        pytest.fail(f"a comment was opened: {data}")

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("notebook") / "model", dtype="float32")


def test_a_trace_shows_tokens_losses_and_what_it_holds(model):
    trace = inspector.trace(model, ids=some_ids(model, 5))
    tree = Tree(trace._repr_html_())
    tokens, tensors = tree.tables
    assert tokens[0] == ["position", "id", "label", "loss"]
    assert [row[:3] for row in tokens[1:]] == [[str(i), str(n), trace.labels[i]] for i, n in enumerate(trace.ids.tolist())]
    assert [row[3] for row in tokens[1:]] == ["–", *(f"{loss:.6f}" for loss in trace.losses.tolist())]
    assert tensors[0] == ["name", "shape", "dtype"]
    assert tensors[1:3] == [["q", "[3, 4, 5, 6]", "float32"], ["k", "[3, 4, 5, 6]", "float32"]]
    assert tensors[-1] == ["logits", "[5, 97]", "float32"]
    assert "Trace of 5 tokens" in tree.text
    assert "inspector.explore(trace)" in tree.text


def test_a_trace_of_less_shows_that_and_does_not_promise_an_explorer(model):
    tree = Tree(inspector.trace(model, ids=[1], keep="pattern")._repr_html_())
    assert tree.tables[0][0] == ["position", "id", "label"]
    assert [row[0] for row in tree.tables[1]] == ["name", "pattern"]
    assert "Trace of 1 token" in tree.text
    assert "explore" not in tree.text


def test_tokens_are_escaped_in_a_trace(model):
    trace = replace(inspector.trace(model, ids=some_ids(model, len(NASTY))), labels=NASTY)
    tree = Tree(trace._repr_html_())
    assert [row[2] for row in tree.tables[0][1:]] == NASTY
    assert set(tree.tags) == {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}


def test_names_cells_and_words_are_escaped():
    tree = Tree(shown(NASTY[0], {NASTY[1]: pd.DataFrame({NASTY[2]: [NASTY[0]], "list": [[NASTY[1]]]})}, NASTY[3]))
    assert tree.tables == [[[NASTY[2], "list"], [NASTY[0], f"[{NASTY[1]}]"]]]
    assert tree.text.startswith(NASTY[0])
    assert tree.text.endswith(NASTY[3])
    assert f"{NASTY[1]}, 1 row" in tree.text
    assert "script" not in tree.tags


def test_a_long_table_shows_its_beginning_and_its_end_and_says_how_long_it_is():
    table = pd.DataFrame({"n": range(1000)})
    tree = Tree(shown("numbers", {"all": table}))
    rows = [row[0] for row in tree.tables[0][1:]]
    half = ROWS // 2
    assert rows == [*map(str, range(half)), "...", *map(str, range(1000 - half, 1000))]
    assert "all, 1,000 rows" in tree.text


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """Two tables and a number."""

    first_table: Any
    n: int
    second: Any

    def __repr__(self):
        return "Result(<2>)"


def test_a_result_shows_its_tables_in_their_order_under_their_names():
    tree = Tree(Result(pd.DataFrame({"a": [1]}), 7, pd.DataFrame({"b": [0.5, 0.25]}))._repr_html_())
    assert tree.tables == [[["a"], ["1"]], [["b"], ["0.50"], ["0.25"]]]
    assert [tree.text.index(part) for part in ("Result(<2>)", "first table, 1 row", "second, 2 rows")] == sorted(
        tree.text.index(part) for part in ("Result(<2>)", "first table, 1 row", "second, 2 rows"))


@pytest.mark.parametrize("verb", ["attribute", "induction", "circuits", "intervene"])
def test_every_result_with_tables_shows_all_of_them(model, verb):
    given = {"circuits": {"samples": 2}, "intervene": {"ids": [1, 2, 1, 2], "edits": {"1.1": "zero"}}}
    result = getattr(inspector, verb)(model, **given.get(verb, {"ids": [1, 2, 1, 2, 1]}))
    frames = [each.name for each in fields(result) if isinstance(getattr(result, each.name), pd.DataFrame)]
    tree = Tree(result._repr_html_())
    assert len(tree.tables) == len(frames) > 1
    for name, table in zip(frames, tree.tables, strict=True):
        assert table[0] == list(getattr(result, name).columns)


def test_a_study_is_shown_the_same_way():
    assert Study._repr_html_ is Shown._repr_html_


# -- the explorer in a notebook --------------------------------------------------------------------------------------

def test_the_frame_holds_the_whole_page_and_nothing_of_it_is_outside(model):
    trace = inspector.trace(model, ids=some_ids(model, len(NASTY)))
    explorer = inspector.explore(replace(trace, labels=NASTY, texts=NASTY))

    class Frame(HTMLParser):
        found = ()

        def handle_starttag(self, tag, attrs):
            self.found = (*self.found, (tag, dict(attrs)))

    frame = Frame()
    frame.feed(explorer._repr_html_())
    (tag, attributes), = frame.found
    assert tag == "iframe"
    assert attributes["srcdoc"] == explorer.html
    assert attributes["title"] == explorer.title
    assert len(repr(explorer)) < 500


def test_explorers_in_one_notebook_do_not_touch_each_other_or_the_page_around_them(model, tmp_path):
    explorers = [inspector.explore(inspector.trace(model, ids=some_ids(model, n))) for n in (5, 9)]
    notebook = tmp_path / "notebook.html"
    notebook.write_text('<!doctype html><meta charset="utf-8"><title>n</title><script>window.mine = 1;</script>'
                        + "".join(f"<div>{each._repr_html_()}</div>" for each in explorers), encoding="utf-8")
    with browser.chromium() as chromium, browser.opened(chromium, notebook) as page:
        frames = []
        for place, n in enumerate((5, 9)):
            element = page.locator("iframe").nth(place)
            element.scroll_into_view_if_needed()
            frames.append(element.element_handle().content_frame())
            frames[-1].wait_for_selector("#explorer[data-ready]")
            assert frames[-1].evaluate("window.explorer.view.grid.n") == n
        frames[1].locator(".x-text button").nth(3).click()
        frames[1].wait_for_function("window.explorer.view.query === 3")
        assert [frame.evaluate("window.explorer.view.query") for frame in frames] == [4, 3]
        assert page.evaluate("[window.mine, window.explorer, location.hash, history.length]") == [1, None, "", 2]
        assert page.evaluate("document.title") == "n"
