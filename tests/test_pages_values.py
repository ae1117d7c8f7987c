"""Value-weighted patterns on the pages: the switch's second grids, their scale, the links with shares, files and figures."""

import io
import re
from base64 import b64decode

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import inspector
from inspector.model.tracing import attention_table
from inspector.pages import cells, html, index, layer_figures, palette, tables, words

from . import models

NAN = float("nan")
TEXT = "The cat sat on the cat"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return inspector.load(models.tiny_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    return inspector.report(model, TEXT, out=tmp_path_factory.mktemp("out") / "cat", check=False, period=5)


@pytest.fixture(scope="module")
def brute(model):
    """(pattern, value-weighted, shares), [layer, head, query, key] in float64: every head's vector for every cell, kept."""
    trace = inspector.trace(model, TEXT)
    W_O = torch.stack([block.W_O for block in model.weights.blocks]).double()
    vectors = torch.einsum("lhij,lhjd,lhdm->lhijm", trace.pattern.double(), trace.v.double(), W_O)
    written = vectors.sum(-2)                                            # [layer, head, query, d_model]
    shares = torch.einsum("lhijm,lhim->lhij", vectors, written) / written.square().sum(-1)[..., None]
    return trace.pattern, vectors.norm(dim=-1), shares


def at(grids, table):
    return grids.numpy()[tuple(table[c].to_numpy() for c in ("layer", "head", "query", "key"))]


# -- words and scales ------------------------------------------------------------------------------------------------

def test_lengths_fit_a_cell():
    """Two digits in at most four characters, whatever the size; 0 is said of 0 alone."""
    assert [words.compact(v) for v in (0, 2e-5, 0.004, 0.0123, 0.12, 0.994, 0.996, 1.24, 9.94, 9.96, 12.3, 123, 999.4, 999.6,
                                       1234, 12345, 123456, 2.5e6, NAN)] == [
        "0", "2e-5", "4e-3", ".01", ".12", ".99", "1.0", "1.2", "9.9", "10", "12", "123", "999", "1.0k", "1.2k", "12k",
        "123k", "2e6", "–"]
    assert max(len(words.compact(10 ** (n / 7))) for n in range(-63, 63)) <= 4
    assert [words.decimals(v) for v in (0.02, 1, 5.6, 12, 123, 1e9, 0)] == [4, 2, 2, 1, 0, 0, 2]


def test_shares_and_logits_keep_their_sign():
    assert [words.percent(v) for v in (-0.034, -0.001, 1.25, -0.0)] == ["−3 %", ">−1 %", "125 %", "0 %"]
    assert [words.signed(v) for v in (0.414, -2.3, NAN)] == ["+0.41", "−2.30", "–"]


def test_a_scale_ends_at_the_largest():
    parts, largest = cells.scaled(torch.tensor([[[2.0, 0], [3, 8]]]))
    assert largest == 8
    assert parts.tolist() == [[[0.25, 0], [0.375, 1]]]
    assert cells.scaled(torch.zeros(1, 2, 2))[1] == 0
    assert not cells.scaled(torch.zeros(1, 2, 2))[0].isnan().any()


def test_the_bar_s_ticks_stand_where_their_numbers_are():
    """On a bar to 5: 0.5 is at sqrt(0.1) of the length, 1.2 at half; on the linear one 2.5 is at half."""
    made = html.value_scale(5.0, "the largest")
    assert made["ticks"]["sqrt"] == [(0, "0"), (pytest.approx(31.62, abs=0.01), ".50"), (50, "1.2"),
                                     (pytest.approx(70.71, abs=0.01), "2.5"), (100, "5.0")]
    assert made["ticks"]["linear"][2] == (50, "2.5")


# -- links -----------------------------------------------------------------------------------------------------------

def test_links_by_value_by_hand():
    """The weaker link brings more: key 2's values are four times as long. Shares stand beside, negative ones too."""
    pattern = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.5, 0.3, 0], [0.1, 0.4, 0.2, 0.3]]])
    weighted = pattern * torch.tensor([1.0, 1, 4, 1])
    shares = torch.zeros(1, 4, 4)
    shares[0, 3] = torch.tensor([0.5, -0.25, 0.75, 0])
    found = {by: tables.link_table(pattern, list("abcd"), 0, weighted, shares, by_value=by) for by in (False, True)}
    assert found[False][["query", "key"]].values.tolist() == [[2, 1], [3, 1], [3, 2]]
    assert found[True][["query", "key"]].values.tolist() == [[3, 2], [2, 1], [3, 1]]
    assert found[True]["weight"].tolist() == pytest.approx([0.2, 0.5, 0.4])
    assert found[True]["value_weighted"].tolist() == pytest.approx([0.8, 0.5, 0.4])
    assert found[True]["share"].tolist() == [0.75, 0, -0.25]
    assert found[True]["words"][0] == '"d" -> "c" 0.80'
    nothing = tables.link_table(pattern, list("abcd"), 0, 0 * weighted, shares, by_value=True)
    assert len(nothing) == 0


# -- what a report writes --------------------------------------------------------------------------------------------

def test_the_table_holds_weight_length_and_share(written, brute):
    pattern, weighted, shares = brute
    table = pd.read_csv(written / "tables" / "value_weighted.csv")
    n = pattern.shape[-1]
    assert list(table) == ["layer", "head", "query", "key", "weight", "value_weighted", "share"]
    assert len(table) == 3 * 4 * n * (n + 1) // 2
    assert table["value_weighted"].to_numpy() == pytest.approx(at(weighted, table), rel=2e-6)
    assert table["share"].to_numpy() == pytest.approx(at(shares, table), abs=2e-6)
    sums = table.groupby(["layer", "head", "query"])["share"].sum()
    assert sums.to_numpy() == pytest.approx(np.ones(len(sums)), abs=1e-5)


def test_the_table_of_weights_is_what_it_was(written, model):
    expected = io.StringIO()
    inspector.record.to_csv(attention_table(inspector.trace(model, TEXT).pattern), expected)
    assert (written / "tables" / "attention.csv").read_text(encoding="utf-8") == expected.getvalue()


def test_the_links_of_a_report_are_the_strongest_by_value(written, brute):
    _, weighted, shares = brute
    links = pd.read_csv(written / "tables" / "links_values.csv", keep_default_na=False)
    best = links[links["rank"] == 1]
    assert len(best) == 12
    for row in best.itertuples():
        open_cells = weighted[row.layer, row.head].tril(-1)
        open_cells[:, 0] = 0
        assert row.value_weighted == pytest.approx(float(open_cells.max()), rel=2e-6)
        assert row.share == pytest.approx(float(shares[row.layer, row.head, row.query, row.key]), abs=2e-6)


def value_grids(page):
    """[(numbers, there)] of the second grids of a page: the picture read back by Pillow, times the plot's largest."""
    found = []
    for largest, data in re.findall(r'data-largest="([^"]+)".*?class="for-values" src="data:image/png;base64,([^"]+)"', page,
                                    re.DOTALL):
        levels, alpha = np.moveaxis(np.asarray(Image.open(io.BytesIO(b64decode(data)))).astype(float), -1, 0)
        found.append(((levels / 255) ** 2 * float(largest), alpha == 255))
    return found


def test_every_head_s_second_grid_is_value_weighted(written, brute):
    """All heads of a layer on one scale, up to its largest; masked cells stay masked; each within its quantisation."""
    weighted = brute[1].numpy()
    n = weighted.shape[-1]
    for layer in range(3):
        page = (written / f"layer_{layer:02d}.html").read_text(encoding="utf-8")
        grids = value_grids(page)
        largest = weighted[layer].max()
        assert len(grids) == 4
        for head, (numbers, there) in enumerate(grids):
            assert (there == np.tril(np.ones((n, n), dtype=bool))).all()
            want = weighted[layer, head]
            assert (np.abs(numbers - want) <= np.sqrt(want * largest) / 255 + 5e-6 * largest)[there].all()
        assert max(numbers.max() for numbers, _ in grids) == pytest.approx(largest, rel=1e-5)
        assert f"{words.compact(largest)}: the layer's largest" in page.replace("&#39;", "'")


def test_the_overview_has_a_value_strip_of_each_layer_with_its_largest(written, brute):
    page = (written / "index.html").read_text(encoding="utf-8")
    assert page.count('class="for-values" src="data:') == 3
    for layer in range(3):
        assert f"up to {words.compact(float(brute[1][layer].max()))}</small>" in page
    made = index.layer_strips([(brute[0][0], 7 * brute[0][0])])[0]
    assert made["uri"] == made["weighted"]
    assert made["largest"] == pytest.approx(7.0)


def test_one_line_says_what_a_length_is(written):
    for name in ("index.html", "layer_00.html"):
        page = (written / name).read_text(encoding="utf-8")
        assert "A weight says where a head looks; value-weighted, a cell says what it brings from there" in page
        assert "Lengths do not add up; the signed shares in the lists do." in page
        assert "Kobayashi" in page


def test_the_value_figure_ends_at_the_layer_s_largest(written, brute):
    """The first head's picture in the SVG: each cell the ramp at sqrt(length / largest of the layer); the bar says so."""
    weighted, n = brute[1][1], brute[1].shape[-1]
    svg = (written / "figures" / "layer_01_values.svg").read_text(encoding="utf-8")
    data = re.search(r'base64,\s*([A-Za-z0-9+/=\s]+)"', svg)[1]
    grid = np.asarray(Image.open(io.BytesIO(b64decode(data))).convert("RGBA"))
    for query in range(n):
        for key in range(query + 1):
            part = float((weighted[0, query, key] / weighted.max()) ** 0.5)
            want = palette.colour("light", min(255, int(part * 256)) / 255)
            assert grid[query, key, :3] / 255 == pytest.approx(np.array(want), abs=0.02)
    assert f">{float(weighted.max()):.3g}<" in svg
    assert "the scale ends at the layer's largest" in svg.replace("&#39;", "'").replace("&apos;", "'")


def test_a_layer_that_brings_nothing_is_drawn():
    made = list(layer_figures.files([("l", (torch.zeros(2, 3, 3), "t", 0, True))], list("abc"), 2))
    assert [(stem, kind) for stem, kind, _ in made] == [("l", "svg"), ("l", "png")]
    assert len(made[0][2]) > 1000
