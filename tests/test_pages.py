"""Pages without a browser: colours, pictures, tables, words, figures and the written folder, against known answers."""

import base64
import filecmp
import html.parser
import io
import json
import math
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import inspector
from inspector.errors import ArgumentError, OutputError
from inspector.findings.in_text import BY_HEAD, PLACES, TextInduction
from inspector.model.tracing import attention_table
from inspector.pages import (
    cells,
    figures,
    index,
    induction,
    layer,
    layer_figures,
    painting,
    palette,
    presets,
    report,
    score_figures,
    tables,
    words,
)
from inspector.pages import html as pages

from . import models

NAN = float("nan")


def random_pattern(*shape, seed=0, sharpness=3.0):
    """A causal pattern [*shape, n, n] of random scores."""
    n = shape[-1]
    scores = torch.randn(*shape, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharpness
    return scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)


# -- the ramp --------------------------------------------------------------------------------------------------------

def luminance(colour):
    """Relative luminance (WCAG 2.1) of sRGB 0..1: a second route, not through OKLCH."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# Machado, Oliveira, Fernandes 2009, table 1, severity 1.0; applied to linear RGB.
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def seen(colour, kind):
    """The luminance of a colour to someone with a colour blindness."""
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour])
    return float(np.array([0.2126, 0.7152, 0.0722]) @ np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_ramp_is_ordered_for_every_eye(theme):
    """Luminance falls (light) or rises (dark) at every one of 100 steps, also to the colour-blind."""
    ramp = [palette.colour(theme, i / 100) for i in range(101)]
    sign = -1 if theme == "light" else 1
    assert all(0 <= c <= 1 for colour in ramp for c in colour)
    assert min(sign * np.diff([luminance(c) for c in ramp])) > 0
    for kind in BLINDNESS:
        values = [seen(c, kind) for c in ramp]
        assert min(sign * np.diff(values)) > 0, kind
        assert (max(values) + 0.05) / (min(values) + 0.05) > 10


@pytest.mark.parametrize(("theme", "ink", "paper"), [("light", "1f1b2b", "ffffff"), ("dark", "ece9f1", "15141b")])
def test_numbers_in_cells_stand_out(theme, ink, paper):
    """Below HIGH the page's ink, above it the page's own colour: contrast at least 3.5 everywhere."""
    text = [[int(c[i:i + 2], 16) / 255 for i in (0, 2, 4)] for c in (ink, paper)]
    for i in range(101):
        low, high = sorted([luminance(palette.colour(theme, i / 100)), luminance(text[i / 100 > pages.HIGH])])
        assert (high + 0.05) / (low + 0.05) > 3.5, i


def test_filter_tables_hold_the_ramp():
    """Stored level s = sqrt(w): the square-root scale shows colour(s), the linear one colour(s^2)."""
    for theme in ("light", "dark"):
        root, linear = (palette.filter_tables(theme, scale) for scale in ("sqrt", "linear"))
        for i in (0, 5, 16, 32):
            level = i / 32
            for tables_, at in ((root, level), (linear, level ** 2)):
                found = [float(tables_[channel].split()[i]) for channel in "RGB"]
                assert found == pytest.approx(palette.colour(theme, at), abs=6e-5)


# -- grids as PNG ----------------------------------------------------------------------------------------------------

def decoded(data):
    """(weights, there) of a grid's PNG, by Pillow: levels back to weights, and which cells are opaque."""
    image = Image.open(io.BytesIO(data))
    assert image.mode == "LA"
    levels, alpha = np.moveaxis(np.asarray(image).astype(np.float64), -1, 0)
    assert set(np.unique(alpha)) <= {0, 255}
    return (levels / 255) ** 2, alpha == 255


def test_a_picture_reads_back_within_its_quantisation():
    """|w' - w| <= sqrt(w) / 255 + (1/510)^2 in every cell; 0 and 1 exactly."""
    pattern = random_pattern(1, 61)[0]
    pattern[40] = torch.nn.functional.one_hot(torch.tensor(7), 61)
    weights, there = decoded(cells.encode(cells.mask(pattern)))
    want = pattern.numpy()
    assert (there == np.tril(np.ones((61, 61), dtype=bool))).all()
    assert (np.abs(weights - want) <= np.sqrt(want) / 255 + 3.85e-6)[there].all()
    assert weights[40, 7] == 1
    assert weights[40, 8] == 0


def test_small_weights_survive():
    """8 linear bits turn 0.0019 into 0; these do not, and even 1e-5 is no blank cell."""
    weights, _ = decoded(cells.encode(torch.tensor([[0.0019, 1e-5, 0.0]], dtype=torch.float64)))
    assert weights[0, 0] == pytest.approx(0.0019, abs=1.8e-4)
    assert weights[0, 1] > 0
    assert weights[0, 2] == 0


def test_mask_leaves_the_pattern_alone():
    pattern = random_pattern(2, 5)
    before = pattern.clone()
    masked = cells.mask(pattern)
    assert torch.equal(pattern, before)
    assert masked[0].isnan().tolist() == torch.ones(5, 5).triu(1).bool().tolist()


def test_long_texts_are_pooled_by_the_largest_weight():
    assert [cells.block_size(n) for n in (1, 256, 257, 512, 513, 1024)] == [1, 1, 2, 2, 3, 4]
    grid = torch.tensor([[0.9, NAN, NAN], [0.2, 0.3, NAN], [0.1, 0.4, 0.5]])
    pooled = cells.pool(grid, 2)
    assert pooled.shape == (2, 2)
    assert pooled.nan_to_num(-1).tolist() == torch.tensor([[0.9, -1.0], [0.4, 0.5]]).tolist()
    assert cells.pool(grid, 1) is grid


def test_a_strip_sets_heads_side_by_side():
    pattern = random_pattern(3, 4)
    strip = cells.strip(pattern)
    assert strip.shape == (4, 3 * 4 + 2)
    for head in range(3):
        torch.testing.assert_close(strip[:, 5 * head:5 * head + 4].nan_to_num(0), pattern[head])
    assert strip[:, 4].isnan().all()


# -- links, tokens, weights ------------------------------------------------------------------------------------------

HAND = torch.tensor([[[1.0, 0.0, 0.0, 0.0, 0.0],
                      [0.6, 0.4, 0.0, 0.0, 0.0],
                      [0.2, 0.5, 0.3, 0.0, 0.0],
                      [0.1, 0.25, 0.25, 0.4, 0.0],
                      [0.05, 0.05, 0.5, 0.15, 0.25]]], dtype=torch.float64)
LABELS = ["The", "·animal", "·was", "·because", "·it"]


def links_of(pattern, labels, layer=0, count=10):
    """The links of a pattern whose values are all of one length."""
    return tables.link_table(pattern, labels, layer, pattern, pattern, count)


def test_links_by_hand():
    """First token and self left out; equal weights in reading order: (2,1) before (4,2), (3,1) before (3,2)."""
    found = links_of(HAND, LABELS, layer=7, count=4)
    assert found[["layer", "head", "rank", "query", "key", "weight"]].values.tolist() == [
        [7, 0, 1, 2, 1, 0.5], [7, 0, 2, 4, 2, 0.5], [7, 0, 3, 3, 1, 0.25], [7, 0, 4, 3, 2, 0.25]]
    assert found["words"].tolist() == ['"was" -> "animal" 0.50', '"it" -> "was" 0.50', '"because" -> "animal" 0.25',
                                       '"because" -> "was" 0.25']


def test_links_are_all_there_are():
    """5 tokens have 3 + 2 + 1 links; weight 0 is none; one or two tokens have none; ten of each head at most."""
    assert len(links_of(HAND, LABELS)) == 6
    zeroed = HAND.clone()
    zeroed[0, 4, 3] = 0
    assert len(links_of(zeroed, LABELS)) == 5
    assert len(links_of(HAND[:, :2, :2], LABELS[:2])) == 0
    assert len(links_of(HAND[:, :1, :1], LABELS[:1])) == 0
    many = links_of(random_pattern(3, 20), [str(i) for i in range(20)])
    assert many.groupby("head").size().tolist() == [10, 10, 10]
    assert (many["key"] > 0).all()
    assert (many["key"] < many["query"]).all()


def test_first_token_shares():
    assert float(tables.first_token_shares(HAND)) == pytest.approx((0.6 + 0.2 + 0.1 + 0.05) / 4, abs=1e-15)
    assert tables.first_token_shares(HAND[:, :1, :1]).isnan().all()


def test_token_table_by_hand():
    """Two tokens of a vocabulary of 6: loss -ln p of the second; five most likely, equal ones by id."""
    logits = torch.log(torch.tensor([[1.0, 2, 3, 4, 5, 5], [1, 1, 1, 1, 1, 1]], dtype=torch.float64))
    found = tables.token_table(torch.tensor([3, 1]), ["c", "b"], ["c", "b"], logits, lambda i: f"<{i}>")
    assert math.isnan(found["loss"][0])
    assert found["loss"][1] == pytest.approx(-math.log(2 / 20), abs=1e-14)
    assert [found[f"next_{n}_id"][0] for n in range(1, 6)] == [4, 5, 3, 2, 1]
    assert [found[f"next_{n}_p"][0] for n in range(1, 6)] == pytest.approx([0.25, 0.25, 0.2, 0.15, 0.1], abs=1e-15)
    assert [found[f"next_{n}"][1] for n in range(1, 6)] == ["<0>", "<1>", "<2>", "<3>", "<4>"]


def test_largest_is_a_stable_sort():
    values = torch.randint(0, 9, (50, 40), generator=torch.Generator().manual_seed(0)).double()
    want = values.sort(dim=-1, descending=True, stable=True).indices[:, :7].tolist()
    assert tables.largest(values, 7) == want


def test_numbers_that_are_none_come_last():
    """As tables do where a logit has overflowed: the pages' part is to show it, not to fall over it."""
    values = torch.tensor([[1, NAN, 3, 2], [NAN] * 4, [float("inf"), NAN, 0, float("-inf")]], dtype=torch.float64)
    assert tables.largest(values, 3) == [[2, 3, 0], [0, 1, 2], [0, 2, 1]]
    found = tables.token_table(torch.tensor([1, 0]), ["b", "a"], ["b", "a"], torch.full((2, 6), NAN), str)
    assert math.isnan(found["next_1_p"][0])
    assert [words.number(v) for v in found["loss"]] == ["–", "–"]


def test_attention_table_is_exact_and_short():
    """Every surviving weight once, read back as the very float32, in its shortest decimals."""
    pattern = random_pattern(2, 9).float()
    file = io.StringIO()
    inspector.record.to_csv(attention_table(pattern[None]), file)
    back = pd.read_csv(io.StringIO(file.getvalue()))
    assert len(back) == 2 * 45
    assert back["layer"].unique().tolist() == [0]
    picked = pattern.numpy()[tuple(back[c].to_numpy() for c in ("head", "query", "key"))]
    assert (back["weight"].to_numpy().astype(np.float32) == picked).all()
    assert max(len(line) for line in file.getvalue().splitlines()[1:]) < 24
    wide = attention_table(random_pattern(1, 9)[None])
    assert wide["weight"].tolist() == random_pattern(1, 9)[0][*torch.tril_indices(9, 9)].tolist()


def test_labels_of_a_side_are_made_once_and_the_widest_gives_the_gutter():
    drawn = pages.picture(torch.zeros(2, 3), ["a", "b"], ["c", "<i>", "longest"], "g", "said", rows="r", columns="c")
    assert drawn["gutter"] == f"{7 * 6.6 + 10:.0f}px"
    assert re.findall(r'class="label t(\d+)" style="--i:(\d)" title="([^"]+)">', drawn["columns"]) == [
        ("30", "0", "c"), ("0", "1", "&lt;i&gt;"), ("1", "2", "longest")]
    again = pages.picture(torch.ones(2, 3), ["a", "b"], ["c", "<i>", "longest"], "h", "said", rows="r", columns="c")
    assert again["columns"] is drawn["columns"]


def test_weight_table_by_hand():
    weights = {"ln_1_weight": torch.tensor([3.0, 4.0]), "W_Q": torch.tensor([[[1.0, -1.0]], [[2.0, 2.0]]])}
    found = tables.weight_table(weights, 5)
    assert found["weight"].tolist() == ["ln_1_weight", "W_Q", "W_Q", "W_Q"]
    assert found["shape"].tolist() == ["2", "2 x 1 x 2", "1 x 2", "1 x 2"]
    assert found["norm"].tolist() == pytest.approx([5, 10 ** 0.5, 2 ** 0.5, 8 ** 0.5])
    assert found["mean"].tolist() == [3.5, 1, 0, 2]
    assert found["std"].tolist() == pytest.approx([0.5, 1.5 ** 0.5, 1, 0])
    assert found["head"].isna().tolist() == [True, True, False, False]


def test_histogram_counts_every_value_between_symmetric_ends():
    assert tables.histogram(torch.tensor([-2.0, -2.0, 0.1, 1.9]), 2.0, bins=4) == [2, 0, 1, 1]
    assert tables.histogram(torch.zeros(3), 1.0) == [0] * 20 + [3] + [0] * 19


def test_statistics_of_parts_are_those_of_the_whole(monkeypatch):
    """Against torch's own over all numbers at once; 1,000 far from 0 in parts of 64, and equal ones spread by exactly 0."""
    monkeypatch.setattr(tables, "IN_CACHE", 64)
    values = torch.randn(10, 100, generator=torch.Generator().manual_seed(1)) + 1e4
    wide = values.double()
    assert tables.statistics(tables.sums_of(values)) == pytest.approx(
        [float(wide.norm()), float(wide.mean()), float(wide.std(correction=0)), float(wide.min()), float(wide.max())],
        rel=1e-12)
    assert tables.statistics(tables.sums_of(torch.full((3, 71), 0.5)))[1:] == [0.5, 0, 0.5, 0.5]


@pytest.mark.parametrize(("texts", "word", "last", "want"), [
    (["The", " animal", " saw", " it"], "animal", False, [1]),
    (["The", " an", "im", "al", " saw"], "animal", False, [1, 2, 3]),
    (["with", " item", " it", " bit", " it", "!"], "it", False, [2]),
    (["with", " item", " it", " bit", " it", "!"], "it", True, [4]),
    (["with", " item"], "it", True, []),
    (["it"], "it", True, [0]),
    (["", "it", ""], "it", False, [1]),
])
def test_words_are_found_whole(texts, word, last, want):
    assert tables.find_word(texts, word, last) == want


def test_the_question_reads_the_last_piece_and_adds_the_pieces_looked_at():
    texts, question = ["The", " an", "imal", " i", "t"], presets.Question("it", ("animal",))
    pattern = random_pattern(2, 3, 5)
    table, query, keys = tables.question_table(pattern, texts, question)
    assert (query, keys) == (4, {"animal": [1, 2]})
    want = (pattern[..., 4, 1] + pattern[..., 4, 2]).flatten()
    assert table["animal"].to_numpy() == pytest.approx(want.numpy(), abs=1e-15)
    assert table[["layer", "head"]].values.tolist() == [[a, b] for a in range(2) for b in range(3)]
    assert tables.question_table(pattern, [" i", "t", " an", "im", "al"], question) is None       # the animal comes later
    assert tables.question_table(pattern, ["The", " cat", " sat", " i", "t"], question) is None


def test_the_question_in_words():
    table = pd.DataFrame({"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "animal": [0.3, 0.1, 0.5, 0.3]})
    said = words.question_words(presets.Question("it", ("animal",)), table, 0.125)
    assert said == ("Most in 1.0 (0.50), 0.0 (0.30) and 1.1 (0.30). Even attention would give 0.12; of 4 heads, 3 give more "
                    "than twice that.")


def proof(rows, **attrs):
    table = pd.DataFrame(rows, columns=["part", "quantity", "layer", "head", "ours", "theirs", "difference", "bound",
                                        "verdict"])
    table.attrs = {"passed": True, "verdict": "passed", "summary": "All is well.", **attrs}
    return table


def test_the_proof_shows_the_place_nearest_its_bound():
    """0.5e-12 of 1e-12 is nearer than 2e-12 of 1e-10; a NaN difference is the worst of all, and never passes."""
    check = proof([("formula", "q", 0, 0, 1, 1, 2e-12, 1e-10, "passed"),
                   ("formula", "q", 0, 1, 1, 1, 5e-13, 1e-12, "passed"),
                   ("rounding", "q", 0, 0, 1, 1, 1e-7, 1e-6, "passed"),
                   ("rounding", "q", 0, 1, 1, 1, NAN, 1e-6, "failed")])
    found = tables.proof_table(check)
    assert found["places"].tolist() == [2, 2]
    assert found["difference"][0] == 5e-13
    assert found["share"][0] == pytest.approx(0.5)
    assert math.isnan(found["difference"][1])
    assert found["verdict"].tolist() == ["passed", "failed"]


# -- words -----------------------------------------------------------------------------------------------------------

def test_numbers_as_words():
    assert [words.number(v) for v in (0.414, 0, 0.005, 1, 1.004, -0.25, NAN, None, float("inf"))] == [
        "0.41", "0.00", "0.01", "1.00", "1.00", "−0.25", "–", "–", "–"]
    assert [words.percent(v) for v in (0, 0.38, 1, NAN)] == ["0 %", "38 %", "100 %", "–"]
    assert [words.scientific(v) for v in (0, 3.14e-14, NAN)] == ["0", "3.1e-14", "–"]
    assert [words.short(v) for v in (0, 0.05, 0.93, 1)] == ["0", ".05", ".93", "1"]
    assert [words.plural(n, "head") for n in (0, 1, 1234)] == ["no head", "1 head", "1,234 heads"]
    assert [words.listing(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_nothing_is_rounded_to_none_or_to_all():
    """0 and 1 are said of no number that only rounds to them: in tables, cells, percents and what the script reads."""
    almost, hardly = (0.995, 0.9951, 0.996, 1 - 2 ** -24), (1e-30, 0.001, 0.004)
    assert [words.number(v) for v in almost] == ["0.99" if f"{v:.2f}" == "0.99" else ">0.99" for v in almost]
    assert words.number(0.9996, 3) == ">0.999"
    assert {words.number(v) for v in hardly} == {"<0.01"}
    assert words.number(-0.001) == ">−0.01"
    assert [words.short(v) for v in (0.004, 0.996)] == ["<.01", ">.99"]
    assert [words.percent(v) for v in (0.004, 0.996)] == ["<1 %", ">99 %"]
    assert words.link("·it", "·animal", 0.996) == '"it" -> "animal" >0.99'
    assert index.plain(torch.tensor([[0, 1e-9, 0.12344, 1 - 1e-9, 1, NAN]], dtype=torch.float64)) == [
        [0, 0.0001, 0.1234, 0.9999, 1, None]]


def test_links_in_words():
    assert words.link("·it", "·animal", 0.414) == '"it" -> "animal" 0.41'
    assert words.link("·", "⏎", 0.001) == '"·" -> "⏎" <0.01'
    assert words.bare("··") == "·"


def test_part_marks_stay_right_of_right_to_left_letters():
    assert words.directed("م[1/2]") == "م\u200e[1/2]"
    assert words.directed("cat") == "cat"


def test_headlines_name_what_cannot_be_seen():
    assert words.headline("a\x00b\u202ec") == "a⟨U+0000⟩b⟨U+202E⟩c"
    assert words.headline("x" * 300) == "x" * 280 + " …"
    assert words.headline("é👩‍👧") == "é👩‍👧"


def test_presets():
    assert presets.preset("cat") == "The cat sat on the"
    assert presets.question_of(presets.PRESETS["animal"]).keys[0] == "animal"
    assert presets.question_of("The cat sat on the") is None
    assert presets.PRESETS["dursley"].count("Dursley") > 2
    with pytest.raises(ArgumentError, match="animal, cat, dursley"):
        presets.preset("dog")


# -- labels: which ones stay -----------------------------------------------------------------------------------------

def shown_at(rules, name, side, n):
    """Indices of the labels that the style rules leave in an axis of `side` pixels."""
    hidden = {int(level) for limit, level in re.findall(rf"max-width:([\d.]+px)\)\{{\.{name} \.t(\d+)", rules)
              if side <= float(limit.removesuffix("px"))}
    return [i for i in range(n) if pages.level(i) not in hidden]


@pytest.mark.parametrize("n", [1, 2, 5, 30, 31, 200, 256, 1000])
def test_labels_keep_their_distance_and_no_more(n):
    """At every size the labels left are a power of two apart, at least PITCH pixels, and half as far would be too near."""
    rules = pages.thinning("axis", n)
    for side in (100, 263.5, 311, 640, 900):
        shown = shown_at(rules, "axis", side, n)
        step = next(2 ** k for k in range(12) if side / n * 2 ** k >= pages.PITCH)
        assert shown == list(range(0, n, step))


def test_an_axis_holds_every_label_that_the_largest_grid_shows():
    for n in (5, 75, 76, 200, 1024):
        kept = [a["index"] for a in pages.axis([str(i) for i in range(n)])]
        assert kept == list(range(0, n, next(2 ** k for k in range(12) if pages.WIDE / n * 2 ** k >= pages.PITCH)))


# -- whole pages -----------------------------------------------------------------------------------------------------

NASTY = ["</script>", "<script>alert(1)</script>", "<b>", "&lt;", "$$", '"', "'", "<!--", "⏎", "·", "م[1/2]", "{{ 7*7 }}"]


def frame(n_layer, n_head, verdicts=None, on_text=False):
    """A table of heads with made-up numbers: score = (layer * n_head + head) / 100."""
    rows = []
    for at, (a, b) in enumerate((a, b) for a in range(n_layer) for b in range(n_head)):
        row = {"layer": a, "head": b}
        for name in ("previous_token", "current_token", "first_token", "duplicate_token", "induction", "entropy"):
            row |= {name: at / 100, name + "_se": NAN if on_text else 0.001, name + "_uniform": 0.04}
        row |= {"entropy_relative": 0.5, "entropy_relative_se": 0.01, "verdict": (verdicts or {}).get((a, b), [])}
        if not on_text:
            row |= {f"{name}_control{se}": 0.02 for name in ("induction", "duplicate_token") for se in ("", "_se")}
        rows.append(row)
    table = pd.DataFrame(rows)
    table.attrs = {"threshold": 0.4, "period": None if on_text else 50, "n_queries": {"induction": 3}, "run": {}}
    return table


def some_facts(n_tokens, **changes):
    return {"model": "<i>m</i>", "source": "<i>m</i>", "half": False, "release": None,
            "n_layer": 2, "n_head": 3, "dtype": "float32", "device": "cpu", "version": "0", "n_tokens": n_tokens,
            "bos": False, "mean_loss": 1.5, "blind_loss": 4.0, "shown_text": "".join(NASTY), "full_attention": True,
            "most_tokens": 200, "pages": True, "study": False, "explorer": True, **changes}


def no_repeats():
    """What `findings.in_text` finds in a text without a repeat."""
    return TextInduction(pd.DataFrame(columns=list(PLACES)), pd.DataFrame(columns=list(BY_HEAD)), (),
                         {"arguments": {"fill": "mean"}})


def overview(check=None, verdicts=None, question=None, **changes):
    n = len(NASTY)
    logits = torch.randn(n, 20, generator=torch.Generator().manual_seed(0))
    table = tables.token_table(torch.arange(n), NASTY, NASTY, logits, lambda i: NASTY[i % n])
    in_text = induction.section(no_repeats(), random_pattern(2, 3, n), NASTY)
    strips = index.layer_strips([(grid, 5 * grid) for grid in random_pattern(2, 3, n)])
    return index.index_page(table, strips, frame(2, 3, verdicts), frame(2, 3, on_text=True), in_text, check,
                            some_facts(n, **changes), [("tables/x.csv", "a table")], question)


def layer_of(labels=NASTY, verdicts=None, **changes):
    repeats, on_text = frame(2, 3, verdicts), frame(2, 3, on_text=True)
    weights = {"W_Q": torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0)), "b_O": torch.zeros(4)}
    pattern = random_pattern(3, len(labels))
    made = layer.layer_tables(1, pattern, 5 * pattern, pattern, labels, weights)
    return layer.layer_page(1, pattern, 5 * pattern, pattern, labels, repeats[repeats["layer"] == 1],
                            on_text[on_text["layer"] == 1], weights, made, some_facts(len(labels), **changes), [])


class Reader(html.parser.HTMLParser):
    """Collects elements, attributes and the text outside scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes, self.text, self._inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._inside = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside is None:
            self.text.append(data.strip())


@pytest.mark.parametrize("make", [overview, layer_of])
def test_tokens_are_text_and_nothing_else(make):
    """Each nasty token arrives as text; the elements are those of a page of harmless tokens."""
    page = Reader(make())
    for token in NASTY:
        assert any(token.replace("[", "\u200e[") in text for text in page.text), token
    assert page.elements.count("script") == 2
    assert not {"b", "i"} & {tag for tag, name, _ in page.attributes if name.startswith("on")}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "49" not in page.text


def test_the_elements_do_not_depend_on_the_tokens():
    assert Reader(layer_of(NASTY)).elements == Reader(layer_of([f"tok{i}" for i in range(len(NASTY))])).elements


@pytest.mark.parametrize("make", [overview, layer_of])
def test_no_address_leads_outside(make):
    page = make()
    for tag, name, value in Reader(page).attributes:
        if name in ("href", "src", "srcset", "action", "xlink:href"):
            assert value.startswith(("#", "data:")) or not re.match(r"[a-z]+:|//", value), (tag, name, value)
    outside = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "", page)
    assert "http:" not in outside
    assert "https:" not in outside
    assert "@import" not in outside


def test_json_inside_a_script_cannot_close_it():
    made = str(pages.script_json({"labels": NASTY}))
    assert "<" not in made
    assert json.loads(made) == {"labels": NASTY}


def text_of(page):
    return " ".join(" ".join(Reader(page).text).split())


def test_the_overview_says_what_was_proved():
    row = ("formula", "pattern", 0, 0, 1, 1, 1e-13, 1e-10, "passed")
    assert "not checked" in text_of(overview())
    assert "tables/check.csv" not in overview()
    passed = text_of(overview(proof([row])))
    assert "passed All is well." in passed
    assert "1.0e-13 1.0e-10 <1 % passed" in passed
    failed = overview(proof([(*row[:-1], "failed")], passed=False, verdict="failed", summary="It failed."))
    assert 'class="badge proof-failed">failed' in failed
    assert "proof-passed" not in re.sub(r"<style>.*?</style>", "", failed, flags=re.DOTALL)


@pytest.mark.parametrize("verdict", ["passed in float32 and float64", "rounding only", "float32 only"])
def test_a_verdict_that_says_less_is_shown_as_it_stands_and_not_green(verdict):
    row = ("rounding", "pattern", 0, 0, 1, 1, 1e-8, 1e-6, "passed")
    page = re.sub(r"<style>.*?</style>", "", overview(proof([row], verdict=verdict)), flags=re.DOTALL)
    assert re.search(rf'<dd class="proof-partly[^"]*">{verdict}</dd>', page)
    assert f'<span class="badge proof-partly">{verdict}</span>' in page
    assert "proof-passed" not in page
    assert '<dd class="proof-passed">passed</dd>' in overview(proof([row]))


def test_a_half_precision_says_so():
    said = text_of(overview(half=True, dtype="bfloat16"))
    assert "The numbers on these pages are in bfloat16, a half precision." in said
    assert "against Hugging Face ; shown: bfloat16" in said
    assert "half precision" not in text_of(overview())


def test_the_overview_names_the_heads_found_best_first():
    verdicts = {(0, 2): ["induction"], (1, 1): ["induction"], (1, 0): ["previous_token", "induction"]}
    page = overview(verdicts=verdicts)
    said = text_of(page)
    assert "induction weight on what followed earlier copies of the same token 1.1 0.04" in said
    assert said.index("1.1 0.04") < said.index("1.0 0.03", said.index("1.1 0.04")) < said.index("0.2 0.02")
    assert "On unrepeated tokens, the same cells: at most 0.02." in said
    assert page.count('class="mark"') == 4
    assert "None: no head is above 0.40" in text_of(overview())


def test_the_layer_page_marks_the_heads_found():
    page = layer_of(verdicts={(1, 2): ["induction"], (0, 0): ["first_token"]})
    assert page.count('class="tag"') == 1
    assert "Found here: induction in 1.2." in text_of(page)
    assert layer.summary([("1.0", ["induction"]), ("1.1", []), ("1.2", ["first_token", "induction"])]) == (
        "Found here: induction in 1.0 and 1.2; first token in 1.2.")
    assert "No head of this layer got a verdict." in text_of(layer_of())


def test_the_layer_page_says_what_a_grid_does_not_show():
    said = text_of(layer_of())
    assert "It does not show what the values there held" in said
    assert "Jain" in said
    assert "Wiegreffe" in said


def test_a_left_out_table_is_named():
    assert "left out of reports on more than 200 tokens" in text_of(overview(full_attention=False))
    assert "left out of reports" not in text_of(overview())


def test_one_token_makes_a_page():
    said = text_of(layer_of(["<b>"]))
    assert "which can only look at itself" in said
    assert "None: the text is too short." in said


# -- figures ---------------------------------------------------------------------------------------------------------

HARD = ["$$", "$x_1$", "日本[1/2]", "😀[1/4]", "مرحبا", "שלום", "⟨U+0000⟩", "</text>", "&lt;",
        "internationalization" * 2, "\U0010fffd", "%s", "\\frac", "␍"]


def drawn_layer(labels=HARD, heads=5, pattern=None, weighted=False):
    """{"png": bytes, "svg": bytes} of one layer's figure."""
    pattern = random_pattern(heads, len(labels)) if pattern is None else pattern
    asked = ("l", (pattern, "m $y$ </title>", 3, weighted))
    return {kind: data for _, kind, data in layer_figures.files([asked], labels, len(pattern))}


def test_figures_are_the_same_bytes_whatever_was_set_before():
    first = drawn_layer()
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"svg.hashsalt": "other", "font.size": 20, "svg.fonttype": "path", "axes.linewidth": 5,
                                "text.parse_math": True, "image.cmap": "jet", "savefig.dpi": 30}):
        drawn_layer(["a", "b"])
        second = drawn_layer()
    assert first == second
    assert dict(matplotlib.rcParams) == before
    assert b"<dc:date>" not in first["svg"]


@pytest.mark.filterwarnings("error")
def test_figures_draw_every_token_without_a_warning():
    made = drawn_layer()
    svg = made["svg"].decode()
    assert ">$$<" in svg
    assert ">&lt;/text&gt;<" in svg
    assert ">&amp;lt;<" in svg
    assert "U+10FFFD" in svg
    assert Image.open(io.BytesIO(made["png"])).size[0] > 800


def test_a_figure_in_svg_holds_text_and_lossless_grids():
    """One image a head, cell for cell the ramp at the square root of the weight, masked cells transparent; and the bar."""
    pattern = random_pattern(5, len(HARD))
    svg = drawn_layer()["svg"].decode()
    images = [np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"))
              for data in re.findall(r'base64,\s*([A-Za-z0-9+/=\s]+)"', svg)]
    assert len(images) == 6
    n = len(HARD)
    for head in range(5):
        grid = images[head]
        assert grid.shape == (n, n, 4)
        for query in range(n):
            for key in range(n):
                if key > query:
                    assert grid[query, key, 3] == 0
                else:
                    want = palette.colour("light", min(255, int(float(pattern[head, query, key]) ** 0.5 * 256)) / 255)
                    assert grid[query, key, :3] / 255 == pytest.approx(np.array(want), abs=0.004)
    assert svg.count("<text") >= 2 * n + 5


def test_a_figure_has_one_axes():
    with figures.style():
        assert len(layer_figures.layer_figure(random_pattern(5, len(HARD)), HARD, "t", 3).axes) == 1
        maps = [("a", torch.rand(3, 4)), ("b", torch.full((3, 4), NAN))]
        assert len(score_figures.score_figure(maps, "t").axes) == 1


def pixels_of(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def apart(data, figure, sheet):
    """(painted pixels, share of pixels that matplotlib draws otherwise): none of them outside the grids."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    with figures.style():
        figure.set_dpi(150)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        whole = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    painted, outside = pixels_of(data), np.ones(whole.shape[:2], bool)
    for box in [*sheet.boxes, sheet.bar]:
        exact = [150 * length for length in (box[0], box[1], box[0] + box[2], box[1] + box[3])]
        left, top, right, bottom = (round(length) for length in exact)
        assert exact == pytest.approx([left, top, right, bottom], abs=1e-6)
        outside[top - 2:bottom + 2, left - 2:right + 2] = False
        down, across = slice(top + 1, bottom), slice(left + 1, right)
        for line in ((down, left), (down, right), (top, across), (bottom, across)):
            assert (painted[line] == (0x8a, 0x85, 0x97)).all()        # the frame is whole: no grid, no hatching over it
    assert painted.shape == whole.shape
    assert (painted == whole)[outside].all()
    return painted, ((painted - whole) != 0).any(-1).mean()


def test_a_painted_layer_is_the_figure_that_matplotlib_draws():
    """Words, frames and hatching pixel for pixel; of the grids only the edges of cells lie a pixel apart."""
    pattern = random_pattern(5, len(HARD))
    made = drawn_layer(pattern=pattern, weighted=True)
    with figures.style():
        figure = layer_figures.layer_figure(pattern, HARD, "m $y$ </title>", 3, weighted=True)
        boxes = layer_figures.sheet(HARD, 5)
    painted, share = apart(made["png"], figure, boxes)
    assert share < 0.06
    (left, top, side, _), n = boxes.boxes[3], len(HARD)
    for query, key in ((n - 1, 0), (5, 5), (9, 2)):
        want = palette.colour("light", min(255, int(float((pattern[3, query, key] / pattern.max()) ** 0.5) * 256)) / 255)
        seen = painted[round(150 * (top + (query + 0.5) / n * side)), round(150 * (left + (key + 0.5) / n * side))]
        assert seen / 255 == pytest.approx(np.array(want), abs=0.008)


def test_painted_scores_are_the_figure_that_matplotlib_draws():
    """Two figures on one sheet, the second as if alone: each map in its place, a score without values hatched."""
    names, title, how = ["a", "b", "c", "$d$"], "m $y$ </title>", "2 sequences"
    maps = torch.rand(4, 3, 5, generator=torch.Generator().manual_seed(0))
    maps[2] = NAN
    made = list(score_figures.files([("first", (1 - maps, "other")), ("second", (maps, title, how))], names, 3, 5))
    assert [(stem, kind) for stem, kind, _ in made] == [("first", "svg"), ("first", "png"), ("second", "svg"),
                                                        ("second", "png")]
    with figures.style():
        figure = score_figures.score_figure(list(zip(names, maps, strict=True)), title, how=how)
        sheet = score_figures.sheet(names, 3, 5)
    painted, share = apart(made[3][2], figure, sheet)
    assert share < 0.06
    for n, (left, top, width, height) in enumerate(sheet.boxes):
        for layer_, head in ((0, 0), (2, 3)):
            want = palette.colour("light", min(255, int(float(maps[n, layer_, head]) * 256)) / 255) if n != 2 else (1, 1, 1)
            seen = painted[round(150 * (top + (layer_ + 0.4) / 3 * height)), round(150 * (left + (head + 0.4) / 5 * width))]
            assert n == 2 or seen / 255 == pytest.approx(np.array(want), abs=0.008)
    assert f">{html.escape(title)}<" in made[2][2].decode().replace("&#x27;", "'")
    assert "hatched: no value; 2 sequences" in made[2][2].decode()


def test_grids_at_another_size_by_hand():
    """Three pixels a cell or more: its own colour. Fewer: averages, to which a masked cell lends no colour."""
    black, white, none = (0, 0, 0, 255), (255, 255, 255, 255), (9, 9, 9, 0)
    cells_ = np.array([[black, white], [none, none]], np.uint8)
    large = painting.resized(cells_, 6, 7)
    assert (large[:3, :3] == black).all()
    assert (large[:3, 4:] == white).all()
    assert (large[3:, :, 3] == 0).all()
    one = painting.resized(cells_, 1, 1)[0, 0]
    assert one.tolist() == [128, 128, 128, 128]
    assert painting.averaging(3, 2) == pytest.approx(np.array([[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]]))


def test_a_picture_for_print_says_its_size_and_reads_back():
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 4), dtype=np.uint8)
    back = Image.open(io.BytesIO(cells.png(pixels, dpi=150)))
    assert (np.asarray(back) == pixels).all()
    assert back.info["dpi"] == pytest.approx((150, 150), abs=0.1)


def test_long_texts_name_some_tokens():
    with figures.style():
        figure = layer_figures.layer_figure(random_pattern(1, 60), [f"t{i}" for i in range(60)], "m", 3)
    texts = [text.get_text() for text in figure.texts]
    assert [t for t in texts if t.startswith("t")] == [t for i in range(0, 60, 3) for t in (f"t{i}", f"t{i}")]
    assert any("one token in 3 is named" in t for t in texts)


def test_figures_need_no_global_state():
    """pyplot, which keeps figures alive and picks a backend, is never imported."""
    code = ("import sys, torch; from inspector.pages import layer_figures;"
            "list(layer_figures.files([('l', (torch.ones(1, 1, 1), 't', 0))], ['a'], 1));"
            "sys.exit('matplotlib.pyplot' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- the folder ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return inspector.load(models.tiny_folder(tmp_path_factory.mktemp("model"), n_positions=240))


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    """The report of the animal, with its proof."""
    return inspector.report(model, presets.PRESETS["animal"], out=tmp_path_factory.mktemp("out") / "animal", period=9)


@pytest.fixture
def no_figures(monkeypatch):
    """Empty figures, for tests that look at other things."""
    monkeypatch.setattr(painting, "files", lambda sheet, marks, wanted: [
        (stem, kind, b"") for stem, _ in wanted for kind in ("png", "svg")])


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_folder_holds_what_it_should(written):
    layers = [f"layer_{n:02d}" for n in range(3)]
    assert files_of(written) == sorted(
        ["index.html", "explorer.html", "run.json", *(f"{n}.html" for n in layers)]
        + [f"figures/{n}.{kind}" for n in [*layers, *(f"{n}_values" for n in layers), "scores_repeats", "scores_text"]
           for kind in ("png", "svg")]
        + [f"tables/{n}.csv" for n in ("attention", "check", "heads_repeats", "heads_text", "induction", "induction_heads",
                                        "links", "links_values",
                                        "tokens", "value_weighted", "weights")])


def test_the_same_command_gives_the_same_bytes(model, written, tmp_path):
    again = inspector.report(model, presets.PRESETS["animal"], out=tmp_path / "again", period=9)
    same, different, odd = filecmp.cmpfiles(written, again, files_of(written), shallow=False)
    assert (different, odd) == ([], [])
    assert files_of(again) == sorted(same)


def test_the_run_record_is_enough_to_do_it_again(model, written):
    run = json.loads((written / "run.json").read_text(encoding="utf-8"))
    assert run["verb"] == "report"
    asked = run["arguments"]
    assert asked["text"] == presets.PRESETS["animal"]
    assert asked["ids"] == model.tokenizer.encode(asked["text"])
    assert (asked["period"], asked["seed"], asked["bos"], asked["check"], asked["kernel"]) == (9, 0, False, True, "grid")
    assert run["model"]["sha256"] == model.sha256
    assert run["proof"] == "passed"


def test_the_tables_hold_the_numbers_of_the_functions(model, written):
    def read(name):
        return pd.read_csv(written / "tables" / f"{name}.csv", keep_default_na=False)

    trace = inspector.trace(model, presets.PRESETS["animal"])
    tokens = read("tokens")
    assert tokens["label"].tolist() == trace.labels
    assert pd.to_numeric(tokens["loss"][1:]).tolist() == pytest.approx(trace.losses.tolist(), abs=5e-6)
    attention, n = read("attention"), len(trace.ids)
    assert len(attention) == 3 * 4 * n * (n + 1) // 2
    picked = trace.pattern.numpy()[tuple(attention[c].to_numpy() for c in ("layer", "head", "query", "key"))]
    assert (attention["weight"].to_numpy().astype(np.float32) == picked).all()
    heads = inspector.heads(model, period=9)
    assert read("heads_repeats")["induction"].to_numpy() == pytest.approx(heads["induction"].to_numpy(), abs=1e-12)
    links = read("links")
    best = links[(links["layer"] == 1) & (links["head"] == 2)].iloc[0]
    masked = trace.pattern[1, 2].tril(-1)
    masked[:, 0] = 0
    assert best["weight"] == pytest.approx(float(masked.max()), abs=1e-7)
    assert masked[best["query"], best["key"]] == masked.max()


def test_the_animal_is_asked_about(model, written):
    said = text_of((written / "index.html").read_text(encoding="utf-8"))
    assert "When the model reads “it”, how much does it look at “animal”?" in said
    trace = inspector.trace(model, presets.PRESETS["animal"])
    table, query, keys = tables.question_table(trace.pattern, trace.texts, presets.QUESTIONS["animal"])
    assert "".join(trace.texts[i] for i in keys["animal"]).strip() == "animal"
    assert trace.texts[query].strip() in ("it", "t")
    row = table.sort_values("animal").iloc[-1]
    assert f"Most in {int(row['layer'])}.{int(row['head'])} ({row['animal']:.2f})" in said


@pytest.mark.usefixtures("no_figures")
def test_long_texts_leave_the_great_table_out(model, tmp_path):
    ids = torch.randint(0, 200, (201,), generator=torch.Generator().manual_seed(0))
    folder = inspector.report(model, ids=ids, out=tmp_path / "long", check=False, period=5)
    assert "tables/attention.csv" not in files_of(folder)
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert 'href="tables/attention.csv"' not in page
    assert "left out of reports on more than 200 tokens" in text_of(page)
    assert "not checked" in text_of(page)


@pytest.mark.usefixtures("no_figures")
def test_bos_and_one_token(model, tmp_path):
    folder = inspector.report(model, ids=[7], out=tmp_path / "one", check=False, period=5)
    assert "no BOS" in text_of((folder / "index.html").read_text(encoding="utf-8"))
    again = inspector.report(model, ids=[7], bos=True, out=tmp_path / "one", check=False, period=5)
    assert "BOS put first" in text_of((again / "index.html").read_text(encoding="utf-8"))


def test_a_small_model_gets_a_period_that_fits(tmp_path):
    """31 positions: 15, and 15 with BOS; a vocabulary of 12 ids, two of them special: 5."""
    assert report.longest_period(inspector.load(models.tiny_folder(tmp_path / "a")), bos=True) == 15
    tiny = inspector.load(models.save(models.tiny_model(vocab_size=12), tmp_path / "b"))
    assert report.longest_period(tiny, bos=False) == 5
    assert report.longest_period(inspector.load(models.tiny_folder(tmp_path / "c", n_positions=240)), bos=False) == 50


def test_a_foreign_folder_is_refused_before_any_work(model, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(report, "trace", lambda *_, **__: pytest.fail("worked before looking"))
    with pytest.raises(OutputError, match="did not write"):
        inspector.report(model, "The cat", out=tmp_path / "mine")
    assert files_of(tmp_path / "mine") == ["thesis.txt"]


def test_a_failure_leaves_nothing_behind(model, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no more ink")

    monkeypatch.setattr(painting, "files", fail)
    with pytest.raises(RuntimeError, match="no more ink"):
        inspector.report(model, "The cat", out=tmp_path / "half", check=False, period=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_figures")
def test_a_model_without_tokenizer_and_a_coarse_one(tmp_path):
    folder = models.save(models.tiny_model(), tmp_path / "m")
    model = inspector.load(folder, dtype="bfloat16")
    page = inspector.report(model, ids=[5, 6, 7, 6], out=tmp_path / "out", check=False, period=5) / "index.html"
    said = text_of(page.read_text(encoding="utf-8"))
    assert "[6]" in said
    assert "m in bfloat16" in said
    assert "are in bfloat16, a half precision" in said


@pytest.mark.usefixtures("no_figures")
def test_the_pages_name_the_model_and_not_where_it_lay(tmp_path):
    folder = models.save(models.tiny_model(), tmp_path / "somewhere" / "mine")
    out = inspector.report(inspector.load(folder), ids=[5, 6], out=tmp_path / "out", check=False, period=5)
    for file in out.glob("*.html"):
        page = file.read_text(encoding="utf-8")
        assert "somewhere" not in page
        assert "mine, 3 layers of 4 heads" in text_of(page)


@pytest.mark.usefixtures("no_figures")
def test_a_report_hands_on_what_it_was_asked_for(model, tmp_path):
    """Every table holds the values of its function called directly: with BOS, a seed and a period that are no defaults."""
    text = "The cat sat on the cat"
    folder = inspector.report(model, text, out=tmp_path / "out", bos=True, seed=3, period=6)
    traced = inspector.trace(model, text, bos=True)
    ids = traced.ids.tolist()
    assert ids[0] == model.config.bos_token_id
    for name, want in (("heads_repeats", inspector.heads(model, period=6, bos=True, seed=3)),
                       ("heads_text", inspector.heads(model, ids=ids)), ("check", inspector.check(model, ids=ids))):
        expected = io.StringIO()
        inspector.record.to_csv(want, expected)
        assert (folder / "tables" / f"{name}.csv").read_text(encoding="utf-8") == expected.getvalue(), name
    tokens = pd.read_csv(folder / "tables" / "tokens.csv", keep_default_na=False)
    assert tokens["id"].tolist() == ids
    assert tokens["loss"][0] == ""
    assert pd.to_numeric(tokens["loss"][1:]).tolist() == pytest.approx(traced.losses.tolist(), abs=5e-6)
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))["arguments"]
    assert (run["bos"], run["seed"], run["period"], run["ids"]) == (True, 3, 6, ids)


def test_a_bar_is_full_at_the_blind_guess():
    """A loss of it fills the bar exactly, half of it half; more than full there is not."""
    table = pd.DataFrame({"position": range(5), "id": range(5), "label": list("abcde"), "loss": [NAN, 3.7, 1.85, 0.0, 9.0]})
    assert [row["share"] for row in index.token_rows(table, 3.7)] == [0, 1, 0.5, 0, 1]


@pytest.mark.usefixtures("no_figures")
def test_a_model_that_guesses_blindly_fills_its_bars(tmp_path):
    """Embeddings of 0 give every id the same chance: each loss is ln(vocabulary), as the report's blind guess."""
    blind = models.tiny_model()
    with torch.no_grad():
        blind.transformer.wte.weight.zero_()
    model = inspector.load(models.save(blind, tmp_path / "blind"), dtype="float64")
    page = (inspector.report(model, ids=[5, 6, 9, 6], out=tmp_path / "out", check=False, period=5) / "index.html").read_text(
        encoding="utf-8")
    assert re.findall(r"--share:([\d.]+)", page) == ["0.000", "1.000", "1.000", "1.000"]
    assert "4.57 nats; a blind guess 4.57" in text_of(page)
