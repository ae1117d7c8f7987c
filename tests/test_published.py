"""Agreement with the published: an independent truth for the demo, mutants that must fail it, and what the tables hold."""

import math
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import inspector
from inspector.cli import main
from inspector.errors import ArgumentError
from inspector.findings import scoring
from inspector.findings.published import data, readings, table
from inspector.findings.published.data import golden, release_of, statements
from inspector.findings.published.readings import READINGS, Reading

from . import models

DEMO = {"tl-seed0 previous_token": 24, "tl-seed0 duplicate_token": 24, "tl-seed0 induction": 24, "tl-seed0 loss": 199,
        "ov ov_copying": 24, "ov ov_copying_vocab": 24, "attribution heads": 24, "attribution mlps": 4,
        "attribution embeddings": 2, "composition q": 216, "composition k": 216, "composition v": 216,
        "detector previous": 24, "detector duplicate": 24, "detector induction": 24, "detector previous_without": 24}


@pytest.fixture(scope="module")
def demo():
    return inspector.load("demo")


def kinds(found, *verdicts):
    """{kind of number: how many have one of these verdicts}."""
    rows = found[found["verdict"].isin(verdicts)]
    return dict(Counter(rows["quantity"].str.partition(",")[0]))


# -- the demo beside TransformerLens -------------------------------------------------------------------------------------

def test_the_demo_reads_as_transformerlens_reads_it(demo):
    """Scores, losses, OV copying, attribution, composition and the head detector, by a program that shares none of ours."""
    found = inspector.check(demo, against="published")
    assert found.attrs["passed"]
    assert found.attrs["verdict"] == "passed"
    assert kinds(found, "passed") == DEMO
    assert found["bound"].max() <= 1e-4
    scored = found[found["quantity"].str.startswith("tl-seed0") & ~found["quantity"].str.contains("loss")]
    assert scored["difference"].max() < 1e-6
    assert found.attrs["run"]["arguments"]["against"] == "published"


def test_in_float64_they_agree_to_the_digits_that_are_kept():
    found = inspector.check(inspector.load("demo", dtype="float64"), against="published")
    assert found.attrs["verdict"] == "passed"
    assert found["difference"].max() < 1e-6


def test_the_golden_file_is_of_the_shipped_demo_and_names_its_versions(demo):
    assert [golden("demo")["sha256"]] == list(demo.sha256.values())
    assert golden("demo")["versions"]["transformer-lens"] == "4.3.0"
    assert all(golden("demo")["versions"].values())


def swapped(model, layer, first, second):
    """The model with two heads of a layer exchanged: it computes the same, under other names."""
    block = model.weights.blocks[layer]
    order = list(range(model.config.n_head))
    order[first], order[second] = second, first
    width = (3, model.config.n_head, model.config.d_head)
    changed = replace(block, W_QKV=block.W_QKV.unflatten(1, width)[:, :, order].flatten(1),
                      b_QKV=block.b_QKV.unflatten(0, width)[:, order].flatten(), W_O=block.W_O[order])
    blocks = tuple(changed if n == layer else b for n, b in enumerate(model.weights.blocks))
    return replace(model, weights=replace(model.weights, blocks=blocks))


def one_column_off(model, patch):
    straight = scoring.score_cells

    def off(*rows, **how):
        cells = straight(*rows, **how)
        return cells._replace(key=(cells.key - 1).clamp(min=0))

    patch.setattr(scoring, "score_cells", off)


def unfolded(model, patch):
    folded = readings.folded
    patch.setattr(readings, "folded", lambda m: folded(m, fold=False))


def from_the_stripe_alone(model, patch):
    """Induction over 100 entries and not 101: query 99 of the first copy left out."""
    patch.setitem(readings.PROTOCOLS, "tl-seed0", replace(readings.PROTOCOLS["tl-seed0"], diagonal=False))


def exchanged(model, patch):
    straight = readings.compositions
    patch.setattr(readings, "compositions", lambda *a: {"q": straight(*a)["k"], "k": straight(*a)["q"],
                                                        "v": straight(*a)["v"]})


def without_bos(model, patch):
    patch.setattr(readings, "trace", lambda m, text, bos: inspector.trace(m, text))


def other_target(model, patch):
    attribute = readings.attribute
    patch.setattr(readings, "attribute", lambda m, ids, target: attribute(m, ids=ids, target=target, against=target + 1))


MUTANTS = {
    "scores read one column off": (one_column_off, {f"tl-seed0 {name}" for name in (
        "previous_token", "duplicate_token", "induction")}),
    "OV not folded": (unfolded, {"ov ov_copying", "ov ov_copying_vocab", "composition q", "composition k", "composition v"}),
    "100 entries for 101": (from_the_stripe_alone, {"tl-seed0 induction"}),
    "Q and K composition exchanged": (exchanged, {"composition q", "composition k"}),
    "no BOS before the detector's text": (without_bos, {"detector previous", "detector duplicate", "detector induction",
                                                        "detector previous_without"}),
    "against a token and not the mean": (other_target, {"attribution heads", "attribution mlps", "attribution embeddings"}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail_where_they_are_wrong_and_nowhere_else(name, demo, monkeypatch):
    change, wrong = MUTANTS[name]
    change(demo, monkeypatch)
    found = inspector.check(demo, against="published")
    assert not found.attrs["passed"]
    assert found.attrs["verdict"] == "failed"
    assert set(kinds(found, "failed")) == wrong


def test_two_heads_swapped_fail_and_what_names_no_head_does_not(demo):
    found = inspector.check(swapped(demo, 1, 1, 4), against="published")
    assert not found.attrs["passed"]
    failed = kinds(found, "failed")
    assert set(failed) == {q for q in DEMO if q.split()[1] not in ("loss", "mlps", "embeddings")}
    assert failed["tl-seed0 induction"] == failed["attribution heads"] == 2              # these two heads, no other


def test_the_command_compares_the_demo(capsys, tmp_path):
    assert main(["check", "--against", "published", "--model", "demo", "--csv", str(tmp_path / "t.csv")]) == 0
    said = capsys.readouterr().out
    assert "1093 exactly reproducible, 0 failed" in said
    assert said.rstrip().endswith("verdict: passed")
    written = pd.read_csv(tmp_path / "t.csv", keep_default_na=False)
    assert len(written) == 1093
    assert set(written["source"]) == {"scripts/golden_transformerlens.py: TransformerLens (MIT) in float64"}


# -- what is refused -----------------------------------------------------------------------------------------------------

def test_a_model_on_which_nothing_is_published_is_told_what_would_do():
    with pytest.raises(ArgumentError) as error:
        inspector.check(inspector.load("planted"), against="published")
    said = str(error.value)
    assert "nothing is published on 'planted'" in said
    assert "sha256 248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707" in said      # gpt2's model.safetensors
    for name in ("gpt2", "distilgpt2", "gpt2-xl", "demo"):
        assert f"{name}: " in said
    assert "--model gpt2" in said


def test_half_precision_and_texts_are_refused(demo):
    with pytest.raises(ArgumentError, match="float32 or float64; this model is bfloat16"):
        inspector.check(inspector.load("demo", dtype="bfloat16"), against="published")
    for wrong in ({"text": "a"}, {"ids": [1, 2]}, {"bos": True}, {"float64": False}):
        with pytest.raises(ArgumentError, match="a published release is checked on its own prompts"):
            inspector.check(demo, against="published", **wrong)


@pytest.mark.parametrize(("release", "name"), [
    ("openai-community/gpt2 model.safetensors", "gpt2"), ("openai-community/gpt2 pytorch_model.bin", "gpt2"),
    ("distilbert/distilgpt2 model.safetensors", "distilgpt2"), ("openai-community/gpt2-xl model.safetensors", "gpt2-xl")])
def test_a_release_is_known_by_its_hash(release, name):
    assert release_of(SimpleNamespace(release=release, sha256={"model.safetensors": "0"})) == name


def test_a_release_without_published_heads_is_refused():
    medium = SimpleNamespace(release="openai-community/gpt2-medium model.safetensors",
                             files=SimpleNamespace(source="gpt2-medium"),
                             sha256={"model.safetensors": "f" * 64})
    with pytest.raises(ArgumentError, match="nothing is published on 'gpt2-medium'"):
        release_of(medium)


# -- the data ------------------------------------------------------------------------------------------------------------

def test_every_statement_has_a_measure_a_source_and_a_way_to_be_compared():
    every = pd.concat([statements(name) for name in data.NAMES])
    assert len(every) == 457                       # 425 rows of the collection, some of which hold several numbers
    assert dict(Counter(every["release"])) == {"gpt2": 399, "gpt2-xl": 48, "distilgpt2": 10}
    assert (every["source"] != "").all()
    assert (every["definition"] != "").all()
    assert set(every["compare"]) == {"exact", "band", "rank", "below 0", "shown", "not measured"}
    for row in every.itertuples():
        if row.compare == "not measured":
            assert row.why
            assert not row.ours
        else:
            assert row.ours.split(" ")[0] in READINGS
            assert row.layer
            assert row.head
        if row.compare in ("exact", "band", "rank"):
            assert math.isfinite(float(row.value))
        if row.compare == "exact":
            assert float(row.bound) < 0.01
        if row.compare == "band":
            assert row.bound or int(row.sequences) >= 1


def test_statements_and_arrays_of_one_measure_say_the_same():
    """Two copies of the same published numbers: the arrays with all digits, the statements as printed."""
    compared = 0
    for name in ("gpt2", "distilgpt2", "gpt2-xl"):
        arrays = golden(name)["arrays"]
        for row in statements(name).itertuples():
            if row.ours in arrays and row.measure.split()[0] not in ("lieberum", "interp-prep", "detector-repo"):
                held = arrays[row.ours][int(row.layer)][int(row.head)]
                assert held == pytest.approx(float(row.value), abs=5.1e-5), (row.claim, row.measure)
                compared += 1
    assert compared > 250


def test_sources_that_disagree_both_stand():
    rows = statements("gpt2")
    induction = rows[(rows["layer"] == "10") & (rows["head"] == "7") & rows["measure"].str.contains("induction|prefix")]
    values = {row.measure: row.value for row in induction.itertuples() if row.value}
    assert values["tl-seed0 induction"] == "0.3897"
    assert values["song2024 induction"] == "0.8818"
    assert len(values) >= 4
    second = rows[(rows["layer"] == "2") & (rows["head"] == "2") & (rows["measure"] == "ioi previous_token")]
    assert second["claim"].str.contains("other measurements rank it 4th-7th").all()


@pytest.mark.parametrize("name", data.NAMES)
def test_every_array_says_how_it_compares(name):
    found = golden(name)
    assert set(found["arrays"]) == set(found["exact"]) | set(found["sequences"])
    assert not set(found["exact"]) & set(found["sequences"])
    assert found["source"]
    for key in found["arrays"]:
        assert key.split(" ")[0] in READINGS
        # By its measure an array names its source; the loss curve is of the same run as its scores, in the file's own words.
        assert key in set(statements(name)["measure"]) or name == "demo" or key == "tl-main loss"


def test_the_golden_ids_are_those_of_the_seed():
    """torch.manual_seed(0); randint(100, 20000, (2, 100)), as the notebook draws them."""
    drawn = torch.randint(100, 20000, (2, 100), generator=torch.Generator().manual_seed(0))
    assert drawn.tolist() == golden("gpt2")["inputs"]["ids"]


def test_no_file_is_large():
    assert max(path.stat().st_size for path in data.FOLDER.iterdir() if path.is_file()) < 40_000


# -- one row -------------------------------------------------------------------------------------------------------------

def one(read, **row):
    """The row that a statement on head 1.0 gives, as a dict."""
    blank = dict.fromkeys(("role", "claim", "value", "measure", "source", "where", "ours", "compare", "bound", "sequences",
                           "why"), "")
    made = table.statement_row(SimpleNamespace(**{**blank, "layer": "1", "head": "0", "ours": "f c", **row}), {"f c": read})
    return dict(zip(table.COLUMNS, made, strict=True))


GRID = torch.tensor([[0.1, 0.9], [0.5, 0.7]], dtype=torch.float64)


def test_an_exact_statement_passes_within_its_bound_and_fails_beyond():
    read = Reading(GRID)
    found = one(read, compare="exact", value="0.5004", bound="0.0005")
    assert (found["ours"], found["theirs"], found["verdict"]) == (0.5, 0.5004, "passed")
    assert one(read, compare="exact", value="0.5006", bound="0.0005")["verdict"] == "failed"
    assert one(Reading(GRID * math.nan), compare="exact", value="0.5", bound="0.0005")["verdict"] == "failed"


def test_a_band_is_four_standard_deviations_of_the_difference_and_the_rounding():
    """Spread 0.08 over 16 of ours and 4 of theirs: 4 x 0.08 x sqrt(1/16 + 1/4) = 0.1789, and 0.005 for two digits."""
    read = Reading(GRID, torch.full((2, 2), 0.08, dtype=torch.float64), 16)
    found = one(read, compare="band", value="0.68", sequences="4")
    assert found["bound"] == pytest.approx(0.32 * math.sqrt(5 / 16) + 0.005)
    assert found["verdict"] == "within band"
    assert one(read, compare="band", value="0.69", sequences="4")["verdict"] == "outside band"
    assert one(Reading(GRID), compare="band", value="0.501", bound="0.002")["verdict"] == "within band"


def test_ranks_signs_and_what_is_not_measured():
    third = one(Reading(GRID), compare="rank", value="3")                                    # behind 0.9 and 0.7
    assert (third["ours"], third["theirs"], third["verdict"]) == (3, 3, "agrees")
    assert one(Reading(GRID), compare="rank", value="2")["verdict"] == "disagrees"
    below = Reading(GRID - 0.6, torch.full((2, 2), 0.16, dtype=torch.float64), 16)           # -0.1, standard error 0.04
    assert one(below, compare="below 0")["verdict"] == "agrees"
    assert one(replace(below, spread=below.spread * 2), compare="below 0")["verdict"] == "disagrees"
    absent = one(Reading(GRID), ours="", compare="not measured", why="no prompts", role="mover", claim="2.26 vs 2.62")
    assert math.isnan(absent["ours"])
    assert (absent["verdict"], absent["note"], absent["statement"]) == ("not measured", "no prompts", "mover: 2.26 vs 2.62")


# -- the machinery on a model of GPT-2's shape -----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def shaped(tmp_path_factory):
    """12 layers x 12 heads with GPT-2's tokenizer, but random and narrow: everything exact must fail on it."""
    folder = tmp_path_factory.mktemp("shaped")
    changes = {"n_layer": 12, "n_head": 12, "n_embd": 24, "n_inner": 8, "vocab_size": 50257, "n_positions": 200,
               "bos_token_id": 50256, "eos_token_id": 50256}
    return inspector.load(models.true_tokenizer(models.save(models.tiny_model(**changes), folder)))


def test_a_random_model_in_gpt2s_place_fails(shaped, monkeypatch):
    """Every statement and every array is set beside what it measures; of what can fail by far the most does."""
    monkeypatch.setattr(table, "release_of", lambda model: "gpt2")
    few = {"tl-seed0": READINGS["tl-seed0"], "ov": READINGS["ov"], "detector": READINGS["detector"],
           "composition": READINGS["composition"]}
    read = {f"{name} {column}": reading for name, family in few.items()
            for column, reading in family(shaped, golden("gpt2")["inputs"]).items()}
    rows = [table.statement_row(row, read) for row in statements("gpt2").itertuples()
            if not row.ours or row.ours.split()[0] in few]
    verdicts = Counter(row[table.COLUMNS.index("verdict")] for row in rows)
    assert verdicts["not measured"] == 110
    assert verdicts["failed"] > 100
    assert verdicts["passed"] <= 10


def test_a_release_with_no_exact_number_says_bands_only(tmp_path, monkeypatch):
    """distilgpt2: one unseeded array. Nothing can fail, and the verdict says why."""
    model = inspector.load(models.save(models.tiny_model(n_layer=6, n_head=12, n_embd=24, vocab_size=10050, n_positions=128),
                                       tmp_path))
    monkeypatch.setattr(table, "release_of", lambda model: "distilgpt2")
    found = inspector.check(model, against="published")
    assert found.attrs["passed"]
    assert found.attrs["verdict"] == "bands only"
    assert len(found) == 72 + 10
    assert re.fullmatch(r"82 published numbers: 82 of unseeded runs, \d+ outside their band", found.attrs["summary"])
    assert kinds(found, "outside band")["tl-main induction"] > 20


def test_an_array_of_what_is_no_number_fails_and_each_row_names_its_source(monkeypatch):
    arrays = {"f c": [[1.0, 2.0]], "f d": [[1.0, 2.0]]}
    monkeypatch.setattr(table, "golden", lambda name: {"arrays": arrays, "exact": {"f c": 0.1}, "sequences": {"f d": 3},
                                                       "source": "a file"})
    cited = pd.DataFrame([{"measure": "f d", "source": "a paper", "where": "figure 1"}])
    monkeypatch.setattr(table, "statements", lambda name: cited)
    read = Reading(torch.tensor([[math.nan, 2.05]], dtype=torch.float64), torch.full((1, 2), 0.01), 3)
    rows = pd.DataFrame(table.array_rows("x", {"f c": read, "f d": read}), columns=table.COLUMNS)
    assert rows["verdict"].tolist() == ["failed", "passed", "outside band", "outside band"]
    assert rows["bound"].tolist() == pytest.approx([0.1, 0.1, *[0.04 * math.sqrt(2 / 3) + 5e-5] * 2])
    assert rows["source"].tolist() == ["a file", "a file", "a paper", "a paper"]
    assert rows["where"].tolist() == ["", "", "figure 1", "figure 1"]


def test_an_array_of_another_shape_is_refused(demo, monkeypatch):
    broken = {**golden("demo"), "arrays": {"ov ov_copying": golden("demo")["arrays"]["ov ov_copying"][:3]}}
    monkeypatch.setattr(table, "golden", lambda name: broken)
    with pytest.raises(ArgumentError, match=re.escape("ov ov_copying has the shape [3, 6]; this model gives [4, 6]")):
        inspector.check(demo, against="published")


# -- our measurements by another route -----------------------------------------------------------------------------------

def test_the_detector_is_the_share_of_all_attention_on_the_marked_cells():
    """Three tokens a b a: previous cells (1,0) (2,1), duplicate (2,0), induction (2,1); three rows sum to 3."""
    from inspector.findings.cells import copy_masks
    pattern = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.3, 0.2]])[None, None]
    earlier, follower = copy_masks(torch.tensor([7, 8, 7]))
    assert float(readings._detected(pattern, earlier)) == pytest.approx(0.5 / 3)
    assert float(readings._detected(pattern, follower)) == pytest.approx(0.3 / 3)


def test_the_uncentred_ratio_is_that_of_the_big_matrix(tmp_path):
    """diag(gain) W_V W_O in full, [d_model, d_model], float64."""
    model = inspector.load(models.save(models.tiny_model(), tmp_path), dtype="float64")
    found = readings.ov(model, {})["ov_copying_uncentred"].mean
    for layer, block in enumerate(model.weights.blocks):
        for head in range(4):
            big = torch.linalg.eigvals(torch.diag(block.ln_1_weight) @ block.W_V[head] @ block.W_O[head])
            assert float(found[layer, head]) == pytest.approx(float(big.real.sum() / big.abs().sum()), abs=1e-8)


def test_composition_is_named_by_pair_and_stands_beside_random_matrices(tmp_path):
    model = inspector.load(models.save(models.tiny_model(), tmp_path), dtype="float64")
    found = readings.composition(model, {})
    assert found["k"].names[0] == "0.0 -> 1.0"
    assert found["k"].names[-1] == "1.3 -> 2.3"
    assert len(found["k"].names) == len(found["k"].mean) == 3 * 16
    one_pair = float(found["k"].mean[found["k"].names.index("0.2 -> 1.3")])
    assert float(found["k 1.3"].mean[0, 2]) == pytest.approx(one_pair * math.sqrt(24))
    assert torch.isnan(found["k 1.3"].mean[1:]).all()


def test_explainer_means_weigh_rows_by_their_queries(demo):
    rows = [[5, 6, 7], [9, 8, 7, 6, 5]]
    found = readings.explainer(demo, {"explainer": rows})["previous_token"].mean
    total = sum(inspector.trace(demo, ids=row).pattern.double().diagonal(-1, -2, -1).sum(-1) for row in rows)
    torch.testing.assert_close(found, total / 6, rtol=0, atol=1e-6)


def test_losses_are_those_of_the_trace(demo):
    ids = torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    found = readings.loss_by_position(demo, ids)
    each = torch.stack([inspector.trace(demo, ids=row).losses for row in ids.tolist()]).double()
    np.testing.assert_allclose(found.mean, each.mean(0), rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.spread, each.std(0), rtol=0, atol=1e-5)
    assert found.names == ["token 1", "token 2", "token 3"]


# -- the real weights ----------------------------------------------------------------------------------------------------

@pytest.mark.gpt2
def test_gpt2_agrees_with_the_published(gpt2_folder):
    """All 144 heads x 3 scores within 2e-4, OV copying within 1e-3, the head detector within 2e-4; few outside a band."""
    found = inspector.check(inspector.load(gpt2_folder), against="published")
    assert found.attrs["verdict"] == "passed", found.attrs["summary"]
    banded = found[found["verdict"].isin(["within band", "outside band"])]
    assert (banded["verdict"] == "outside band").mean() < 0.05
