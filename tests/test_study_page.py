"""The study as a folder and as a page of a report: what was found stands there, whole, offline, at any width."""

import re
from html.parser import HTMLParser

import pandas as pd
import pytest

import inspector
from inspector.findings.study import study
from inspector.pages.study import save_study
from inspector.pages.study_words import circuit_sentences, sentences, told, verdict_sentences

from .browser import opened
from .helpers import tiny

SMALL = {"period": 20, "n_sequences": 4, "n_controls": 2}


@pytest.fixture(scope="module")
def model():
    return inspector.load("demo")


@pytest.fixture(scope="module")
def found(model):
    return study(model, "the cat sat on the mat. the cat sat", **SMALL)


@pytest.fixture(scope="module")
def folder(model, found, tmp_path_factory):
    return save_study(model, found, tmp_path_factory.mktemp("study") / "out")


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory):
    model = tiny(tmp_path_factory.mktemp("tiny"), n_positions=64)
    return save_study(model, study(model, **SMALL), tmp_path_factory.mktemp("study") / "empty")


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.words, self.links, self.images, self.rows = [], [], [], 0
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [attrs["href"]] if tag == "a" else []
        self.images += [attrs["src"]] if tag == "img" else []
        self.rows += tag == "tr"

    def handle_data(self, data):
        self.words.append(data)


def page(folder):
    return Page((folder / "study.html").read_text(encoding="utf-8"))


def test_the_page_says_what_was_found(folder, found):
    text = page(folder).text
    for sentence in sentences(found):
        assert " ".join(sentence.split()) in text
    for layer, head in found.found["induction_head"]:
        assert f"{layer}.{head}" in text
    assert f"{len(found.found['induction_head'])} induction head" in text


def test_every_file_of_a_study_is_there_and_named(folder):
    links = {link for link in page(folder).links if not link.startswith(("#", "http"))} - {"study.html"}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert links <= there
    assert there - links == {"study.html"}
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png", ".svg"}


def test_the_page_is_whole_and_offline(folder):
    shown = page(folder)
    assert len(shown.images) == 7
    assert all(image.startswith("data:image/png;base64,") for image in shown.images)
    assert not [link for link in shown.links if link.startswith("http")]


def test_tables_hold_the_study(folder, found):
    heads = pd.read_csv(folder / "tables" / "study_heads.csv", keep_default_na=False)
    assert len(heads) == 24
    assert heads["induction"].tolist() == pytest.approx(found.table["induction"].tolist(), rel=1e-15)
    assert heads["verdict"].tolist() == ["; ".join(words) for words in found.table["verdict"]]
    pairs = pd.read_csv(folder / "tables" / "study_pairs.csv")
    assert len(pairs) == 6 * 6 * (3 + 2 + 1)
    assert (pairs["layer_from"] < pairs["layer"]).all()
    assert len(pd.read_csv(folder / "tables" / "study_loss_by_position.csv")) == 39


def test_a_study_without_findings_says_so(empty_folder):
    text = page(empty_folder).text
    assert "No induction heads in" in text
    assert "None: no head has a verdict." in text
    assert "No pair could be tested" in text
    assert "What was left out" in text
    assert "prefix matching" in text


def test_words_are_not_said_twice():
    assert told(["induction", "copies", "induction_head"]) == ["induction_head"]
    assert told(["induction", "suppresses", "anti_induction_head"]) == ["anti_induction_head"]
    assert told(["previous_token", "copies"]) == ["previous_token", "copies"]
    assert told(["induction"]) == ["induction"]


def test_sentences_follow_the_findings(found):
    one = found.circuit.copy()
    one["agrees"] = False
    changed = type(found)(**{**found.__dict__, "circuit": one})
    assert "none agrees" in circuit_sentences(changed)[0]
    none = type(found)(**{**found.__dict__, "found": {"induction": ((1, 1),)}})
    assert "copying is not shown" in " ".join(verdict_sentences(none))


def test_a_report_with_a_study_has_its_page_and_links(model, tmp_path):
    out = inspector.report(model, ids=list(range(40, 52)) * 2, out=tmp_path / "r", check=False, study=True, period=12)
    for name in ("index.html", "layer_00.html", "study.html"):
        assert 'href="study.html"' in (out / name).read_text(encoding="utf-8")
    text = (out / "study.html").read_text(encoding="utf-8")
    assert 'href="layer_01.html#L1H1"' in text
    assert not re.search(r'href="study.html"', (inspector.report(
        model, ids=[40, 41, 40], out=tmp_path / "plain", check=False, period=12) / "index.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_is_quiet(browser, folder, empty_folder, width, scheme):
    for place in (folder, empty_folder):
        with opened(browser, place / "study.html", width=width, scheme=scheme) as shown:
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
            sizes = shown.evaluate("[...document.images].map(i => [i.naturalWidth, i.getBoundingClientRect().width])")
            assert all(natural > 600 and drawn >= 300 for natural, drawn in sizes)
