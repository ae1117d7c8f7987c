"""Induction in a text on the overview: which arcs, their ends and order, the table, the sentences; by hand and planted."""

import re
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import inspector
from inspector.findings import in_text
from inspector.pages import figures, html, induction, words

from . import models
from .test_pages import NASTY, Reader, text_of

NAN = float("nan")
# a b c a b d a: the last `a` was followed by b twice; `b` at 4 by c.
LABELS = list("abcabda")
PLACES = pd.DataFrame([(3, 0, "a", [0], [1], 1, "b", True, 0.5, 1.0, 0.6, 0.5),
                       (4, 1, "b", [1], [2], 2, "c", False, 0.04, 0.5, 0.2, 0.3),
                       (6, 0, "a", [0, 3], [1, 4], 1, "b", None, 0.7, 2.0, 0.9, 0.1)], columns=list(in_text.PLACES))
HEADS = ((0, 1), (1, 0))


@pytest.fixture
def pattern():
    """[layer, head, query, key]: two heads whose cells are known, and others that must not be read."""
    grids = torch.full((2, 2, 7, 7), 9.0)
    for head, weights in zip(HEADS, [(0.6, 0.02, 0.5, 0.3), (0.4, 0.06, 0.4, 0.2)], strict=True):
        for cell, weight in zip([(3, 1), (4, 2), (6, 1), (6, 4)], weights, strict=True):
            grids[*head, *cell] = weight
    return grids


def found(places=PLACES, heads=HEADS):
    return SimpleNamespace(places=places, heads=heads, run={"arguments": {"fill": "mean over 16 sequences"}})


def test_an_arc_has_the_mean_attention_of_the_heads_to_its_own_place(pattern):
    arcs = induction.arcs_of(PLACES, pattern, HEADS)
    assert arcs[["position", "key", "follower_id"]].values.tolist() == [[3, 1, 1], [4, 2, 2], [6, 1, 1], [6, 4, 1]]
    assert arcs["attention"].tolist() == pytest.approx([0.5, 0.04, 0.45, 0.25], abs=1e-7)


def test_weak_arcs_are_not_drawn_and_of_many_the_strongest(pattern):
    arcs = induction.arcs_of(PLACES, pattern, HEADS)
    assert induction.drawn_arcs(arcs)["position"].tolist() == [3, 6, 6]
    assert induction.drawn_arcs(arcs, most=2)[["position", "key"]].values.tolist() == [[3, 1], [6, 1]]
    assert len(induction.drawn_arcs(arcs, floor=0.6)) == 0


def test_tokens_without_an_arc_are_folded_together():
    assert induction.lines_of(7, {1, 3}) == [[0], [1], [2], [3], [4, 5, 6]]
    assert induction.lines_of(3, set()) == [[0, 1, 2]]
    assert induction.lines_of(2, {0, 1}) == [[0], [1]]


def test_the_picture_by_hand(pattern):
    """Lines under the headings: a(2) b(3) c(4) a(5) b(6) d(7) a(8); arcs 5 -> 3, 8 -> 3, 8 -> 6; width sqrt(reach / 5)."""
    shown = induction.section(found(), pattern, LABELS)
    lines = shown["lines"]
    assert [[t["label"] for t in line["tokens"]] for line in lines] == [list(x) for x in "abcabda"]
    assert [line["involved"] for line in lines] == [False, True, False, True, True, False, True]
    ends = [(a["line"], a["to"], round(a["width"], 4), round(a["attention"], 6)) for line in lines for a in line["arcs"]]
    assert ends == [(5, 3, 0.6325, 0.5), (8, 3, 1.0, 0.45), (8, 6, 0.6325, 0.25)]
    assert [line["guess"] and (line["guess"]["follower"], line["guess"]["p"], line["guess"]["p_cut"]) for line in lines] == [
        None, None, None, ("b", 0.6, 0.5), None, None, ("b", 0.9, 0.1)]
    assert shown["hidden"] == 1


def test_the_guess_is_what_gets_most_attention():
    places = PLACES.assign(position=6, attention=[0.1, 0.6, 0.3])
    guess = induction.guess_of(places, 6, {(6, 2)})
    assert (guess["follower"], guess["others"], guess["listed"]) == ("c", 2, True)
    assert not induction.guess_of(places, 6, {(6, 1)})["listed"]


def test_the_table_begins_with_the_deepest_fall():
    rows = induction.place_rows(PLACES)
    assert [row["position"] for row in rows] == [6, 3, 4]
    assert [row["came"] for row in rows] == ["text ends", "yes", "no"]
    assert [row["position"] for row in induction.place_rows(PLACES.assign(p_cut=[0.5, NAN, NAN]))] == [3, 4, 6]
    assert rows[0]["earlier"] == "0, 3"
    assert words.positions(list(range(9)), 5) == "0, 1, 2, 3, 4 and 4 more"
    assert words.positions([7], 5) == "7"


def test_what_is_said():
    assert induction.said(PLACES, HEADS, 7) == (
        "3 tokens of 7 occurred before. 1 time the text goes on as it did before: there the model gives the token that "
        "follows 0.60 on average, and 0.50 with its induction heads cut.")
    assert induction.said(PLACES[1:2], HEADS, 7) == "1 token of 7 occurred before. The text never goes on as it did there."
    assert induction.said(PLACES[:0], HEADS, 7) == ("No token of this text occurs again, so there is nothing here for an "
                                                    "induction head to find.")
    assert induction.said(PLACES, (), 7).startswith("3 tokens of 7 occurred before. But no head of this model got an "
                                                    "induction verdict")


def page_of(content):
    """The section alone, as its template makes it."""
    source = '{% from "induction.html" import induction with context %}{{ induction(c, 2) }}'
    return html.environment().from_string(source).render(c=content)


@pytest.mark.parametrize(("places", "heads"), [(PLACES[:0], HEADS), (PLACES[:0], ()), (PLACES, ())])
def test_without_repeats_or_heads_there_is_one_sentence(pattern, places, heads):
    page = page_of(induction.section(found(places, heads), pattern, LABELS))
    assert page.count("<p") == 1
    assert "<ol" not in page
    assert "<table" not in page


def test_without_a_strong_arc_the_table_stands_alone(pattern):
    page = page_of(induction.section(found(), 0.01 * pattern, LABELS))
    assert "No arc is drawn: these heads pay no follower an attention of 0.05." in page
    assert "<ol" not in page
    assert page.count("<tr id=") == 3


def test_long_tables_are_folded_and_cut():
    n = 400
    places = pd.DataFrame([(i, i % 7, "x", [0], [1], i, "y", False, 0.5, 1.0, 0.5, i / n) for i in range(2, n)],
                          columns=list(in_text.PLACES))
    shown = induction.section(found(places), torch.full((2, 2, n, n), 0.5), ["x"] * n)
    assert (len(shown["rows"]), len(shown["rest"]), shown["left_out"]) == (30, 270, 98)
    assert sum(len(line["arcs"]) for line in shown["lines"]) == 300
    page = page_of(shown)
    assert "<summary>270 more</summary>" in page
    assert "98 further rows" in page
    targets = set(re.findall(r'href="#(repeat-[\d-]+)"', page))
    assert targets <= set(re.findall(r'<tr id="(repeat-[\d-]+)"', page))
    assert len(targets) == 300


def test_tokens_are_text_in_the_arcs_and_in_the_table(pattern):
    places = PLACES.assign(label=NASTY[1], follower=NASTY[0])
    page = page_of(induction.section(found(places), pattern, NASTY[:7]))
    harmless = page_of(induction.section(found(), pattern, LABELS))
    assert Reader(page).elements == Reader(harmless).elements
    assert NASTY[1] in Reader(page).text


# -- whole reports ---------------------------------------------------------------------------------------------------

@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(figures, "files", lambda draw: {"png": b"", "svg": b""})


@pytest.mark.usefixtures("no_figures")
def test_the_planted_head_is_seen_at_work(tmp_path):
    """abcdef, then abc: 2.0 finds each follower, and with it cut the model no longer knows it; tables as of the function."""
    model = inspector.load("planted")
    folder = inspector.report(model, "abcdefghabc", out=tmp_path / "out", check=False, period=20)
    whole = (folder / "index.html").read_text(encoding="utf-8")
    page = whole[whole.index('<section id="induction">'):whole.index('<section id="layers">')]
    want = in_text.induction(model, "abcdefghabc", heads=[(2, 0)])
    ends = re.findall(r'class="arc([^"]*)" data-to="(\d+)" style="grid-row:\d+/(\d+);[^"]*--strength:([\d.]+)"', page)
    # The lines: a | b c d | e f g h | a | b | c, of which b, c, d each have their own.
    assert page.count("data-line=") == 8
    assert [(int(to), int(end) - 1) for _, to, end, _ in ends] == [(3, 7), (4, 8), (5, 9)]
    assert all(float(strength) > 0.99 for *_, strength in ends)
    assert "Heads with an induction verdict: 2.0 ." in text_of(page)
    tables = {name: pd.read_csv(folder / "tables" / f"{name}.csv", keep_default_na=False)
              for name in ("induction", "induction_heads")}
    assert tables["induction"]["p"].to_numpy() == pytest.approx(want.places["p"].to_numpy(), abs=1e-9)
    assert tables["induction"]["p_cut"].to_numpy() == pytest.approx(want.places["p_cut"].to_numpy(), abs=1e-9)
    assert tables["induction"]["follower"].tolist() == ["b", "c", "d"]
    assert tables["induction"]["p"].min() > 0.9
    assert tables["induction"]["p_cut"].max() < 0.1
    assert tables["induction_heads"][["position", "layer", "head"]].values.tolist() == [[8, 2, 0], [9, 2, 0], [10, 2, 0]]


@pytest.mark.usefixtures("no_figures")
def test_a_random_model_and_texts_without_repeats(tmp_path):
    model = inspector.load(models.tiny_folder(tmp_path / "m"))
    for ids, sentence in (([7, 8, 9, 8], "no head of this model got an induction verdict"),
                          ([7], "No token of this text occurs again")):
        page = inspector.report(model, ids=ids, out=tmp_path / "out", check=False, period=5) / "index.html"
        assert sentence in text_of(page.read_text(encoding="utf-8"))
    table = pd.read_csv(tmp_path / "out" / "tables" / "induction.csv")
    assert list(table) == list(in_text.PLACES)
    assert len(table) == 0
