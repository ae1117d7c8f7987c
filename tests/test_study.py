"""The study: verdicts from several measures, known answers on models whose heads are known, one table, honest gaps."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import inspector
from inspector.cli import main
from inspector.demo.planted import PLANTED
from inspector.errors import ArgumentError
from inspector.findings import study as studies
from inspector.findings.copying import copying
from inspector.findings.study import as_json, found_in, joined, roles, study, threshold_table
from inspector.pages.study_words import circuit_sentences, sentences, verdict_sentences

from . import models
from .helpers import tiny

SMALL = {"period": 20, "n_sequences": 6, "n_controls": 3}


@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted", dtype="float64")


@pytest.fixture(scope="module")
def known(planted):
    return study(planted, **SMALL)


@pytest.fixture(scope="module")
def demo():
    return study(inspector.load("demo"), "the cat sat on the mat. the cat sat", **SMALL)


def with_output(model, head, change):
    """The model with one head's W_O changed by a function."""
    layer, index = head
    block = model.weights.blocks[layer]
    W_O = block.W_O.clone()
    W_O[index] = change(W_O[index])
    blocks = list(model.weights.blocks)
    blocks[layer] = replace(block, W_O=W_O)
    return replace(model, weights=replace(model.weights, blocks=tuple(blocks)))


# -- the verdict -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("matching", "speaking", "word"), [
    (["induction"], ["copies"], "induction_head"), (["induction"], ["suppresses"], "anti_induction_head"),
    (["induction"], [], None), ([], ["copies"], None), (["previous_token"], ["copies"], None)])
def test_an_induction_head_matches_and_copies(matching, speaking, word):
    named = set(roles(matching, speaking)) - {*matching, *speaking}
    assert named == ({word} if word else set())


def test_on_the_planted_model_each_head_is_what_was_planted(known):
    assert {role: heads for role, heads in known.found.items() if role in PLANTED} == {
        role: (head,) for role, head in PLANTED.items()}
    assert known.found["induction_head"] == (PLANTED["induction"],)
    assert set(known.found) == {*PLANTED, "copies", "induction_head"}


def test_a_head_that_matches_and_lowers_what_it_sees_has_its_own_name(planted):
    # The last layer's W_O turned round: where it looks stays, what it says is the opposite.
    turned = study(with_output(planted, PLANTED["induction"], torch.neg), **SMALL)
    assert turned.found["anti_induction_head"] == (PLANTED["induction"],)
    assert "induction_head" not in turned.found
    assert "anti-induction" in " ".join(verdict_sentences(turned))
    assert turned.sets.set_index("role").loc["anti_induction_head", "change"].max() < 0       # cut, the model does better


def test_a_head_that_matches_and_says_nothing_is_no_induction_head(planted):
    silent = with_output(planted, PLANTED["induction"], torch.zeros_like)
    stripe, speaking = inspector.heads(silent, period=20, n_sequences=6), copying(silent, period=20, n_sequences=6)
    words = [roles(a, b) for a, b in zip(stripe["verdict"], speaking["verdict"], strict=True)]
    found = found_in(stripe.assign(verdict=words))
    assert found["induction"] == (PLANTED["induction"],)
    assert not {"induction_head", "anti_induction_head"} & set(found)
    assert "copying is not shown" in " ".join(verdict_sentences(
        SimpleNamespace(found=found, table=stripe, run={"arguments": {"n_sequences": 6}})))


def test_a_head_is_never_called_on_one_prompt():
    one = study(inspector.load("demo"), period=20, n_sequences=1, n_controls=2)
    assert one.found == {}
    assert verdict_sentences(one) == ["One sequence has no spread, so that no head can get a verdict: take more."]
    assert not any(one.table["verdict"].map(len))
    assert (one.thresholds.drop(columns="threshold") == "").all(axis=None)


def test_of_a_hundred_random_models_at_most_five_give_any_verdict(tmp_path):
    """Matching, positions, copying and suppressing; the control is the null: 90 to 98 % lie within 2 standard errors."""
    from transformers import GPT2Config, GPT2LMHeadModel
    called, inside, total = 0, 0, 0
    for seed in range(100):
        torch.manual_seed(seed)
        config = GPT2Config(vocab_size=120, n_positions=64, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                            initializer_range=(0.02, 0.1, 0.3)[seed % 3])
        model = inspector.load(models.save(GPT2LMHeadModel(config), tmp_path / str(seed)))
        stripe = inspector.heads(model, period=30)
        speaking = copying(model, period=30)
        words = [roles(a, b) for a, b in zip(stripe["verdict"], speaking["verdict"], strict=True)]
        called += any(words)
        difference = (stripe["induction"] - stripe["induction_control"]).abs()
        inside += int((difference <= 2 * np.hypot(stripe["induction_se"], stripe["induction_control_se"])).sum())
        total += len(stripe)
    assert called <= 5
    assert 0.90 <= inside / total <= 0.98


# -- thresholds --------------------------------------------------------------------------------------------------------

def test_the_lists_change_with_the_threshold_as_the_scores_say():
    scores = [0.35, 0.45, 0.55, 0.85]
    stripe = pd.DataFrame({"layer": 0, "head": range(4)})
    for name in ("previous_token", "current_token", "first_token", "duplicate_token", "induction"):
        stripe[name], stripe[name + "_se"], stripe[name + "_uniform"] = 0.0, 1e-3, 0.04
        stripe[name + "_control"], stripe[name + "_control_se"] = 0.01, 1e-3
    stripe["induction"] = scores
    speaking = [["copies"], ["suppresses"], ["copies"], ["copies"]]
    lists = threshold_table(stripe, speaking, 16).set_index("threshold")
    assert lists["matching"].tolist() == ["0.0 0.1 0.2 0.3", "0.1 0.2 0.3", "0.2 0.3", "0.3", "0.3", "0.3"]
    assert lists["induction_heads"].tolist() == ["0.0 0.2 0.3", "0.2 0.3", "0.2 0.3", "0.3", "0.3", "0.3"]
    assert lists["anti_induction_heads"].tolist() == ["0.1", "0.1", "", "", "", ""]


def test_every_threshold_is_an_argument_with_its_source():
    defaults = {name: value for name, value, source in studies.SOURCES if source}
    import inspect
    signature = inspect.signature(study).parameters
    for name in ("threshold", "copying_threshold", "k_below", "qv_above"):
        assert signature[name].default == defaults[name]
    assert {"level", "percentile"} <= set(defaults)


# -- the circuit -------------------------------------------------------------------------------------------------------

def test_the_planted_circuit_is_found_and_nothing_else(known):
    agreeing = known.circuit[known.circuit["agrees"]]
    assert agreeing[["layer_from", "head_from", "layer", "head"]].to_numpy().tolist() == [[0, 1, 2, 0]]
    row = agreeing.iloc[0]
    assert row["k"] < 0.5 * row["clean"]
    assert row["q"] > 0.9 * row["clean"]
    assert row["k_composition_high"] is True or row["k_composition_high"] == 1
    assert row["route"] == "direct"
    assert row["k_composition_rank"] == 1
    said = " ".join(circuit_sentences(known))
    assert "0.1 feeds 2.0 through its keys" in said
    assert "The direct path carries it" in said


def test_a_pair_agrees_only_if_cuts_and_weights_both_say_so(planted, known, monkeypatch):
    weights = replace(known.circuits, pairs=known.circuits.pairs.assign(k_composition_high=False))
    how = {"period": 20, "n_sequences": 6, "bos": False, "seed": 0}
    table = studies.circuit_table(planted, known.found, weights, k_below=0.5, qv_above=0.9, **how)
    assert table["causal"].all()
    assert not table["agrees"].any()
    strict = studies.circuit_table(planted, known.found, known.circuits, k_below=1e-9, qv_above=0.9, **how)
    assert not strict["agrees"].any()


def test_the_circuit_is_tested_on_the_study_s_own_sequences(planted, known, monkeypatch):
    monkeypatch.setattr(studies, "circuits", lambda *_, **__: known.circuits)    # what the weights say: no sequences in it
    found = study(planted, period=20, repeats=3, n_sequences=3, n_controls=0, bos=True, seed=4)
    measured = found.circuit.attrs["run"]["arguments"]
    assert {name: measured[name] for name in ("period", "repeats", "n_sequences", "bos", "seed")} == {
        "period": 20, "repeats": 3, "n_sequences": 3, "bos": True, "seed": 4}
    assert found.loss.attrs["run"]["arguments"]["repeats"] == 3
    assert found.circuit["clean"].iloc[0] == pytest.approx(found.table.set_index(["layer", "head"]).loc[(2, 0), "induction"])


def test_a_head_that_says_something_random_is_no_induction_head():
    """Random W_V and W_O in the place of the demo's: with enough sequences some difference from 0 always shows."""
    model = inspector.load("demo")
    block, generator = model.weights.blocks[1], torch.Generator().manual_seed(3)
    width = model.config.n_head * model.config.d_head
    W_QKV, W_O = block.W_QKV.clone(), block.W_O.clone()
    noise = torch.randn(W_QKV[:, 2 * width:].shape, generator=generator)
    W_QKV[:, 2 * width:] = noise * W_QKV[:, 2 * width:].norm() / noise.norm()
    noise = torch.randn(W_O.shape, generator=generator)
    W_O.copy_(noise * W_O.norm() / noise.norm())
    blocks = list(model.weights.blocks)
    blocks[1] = replace(block, W_QKV=W_QKV, W_O=W_O)
    mute = replace(model, weights=replace(model.weights, blocks=tuple(blocks)))
    stripe, speaking = inspector.heads(mute, n_sequences=64), copying(mute, n_sequences=64)
    words = [roles(a, b) for a, b in zip(stripe["verdict"], speaking["verdict"], strict=True)]
    found = found_in(stripe.assign(verdict=words))
    assert len(found["induction"]) == 4                         # where they look did not change
    assert not {"induction_head", "anti_induction_head"} & set(found)
    loose = copying(mute, n_sequences=64, least_z=0)["verdict"]
    assert any(loose[6:12].map(len))                            # without a least size they would be called


def test_no_pair_is_tested_where_no_head_is_found(tmp_path):
    nothing = study(tiny(tmp_path, n_positions=64), **SMALL)
    assert len(nothing.circuit) == 0
    assert {"layer_from", "k", "agrees"} <= set(nothing.circuit)
    assert len(nothing.sets) == 0
    assert "No pair could be tested" in circuit_sentences(nothing)[0]
    assert "None of the 12 heads is an induction head" in sentences(nothing)[0]


# -- sets --------------------------------------------------------------------------------------------------------------

def test_roles_are_cut_together_beside_random_sets(demo):
    rows = demo.sets.set_index(["role", "patterns"])
    together, previous = rows.loc[("induction_head", "free")], rows.loc[("previous_token", "free")]
    assert together["n_heads"] == len(demo.found["induction_head"]) > 1
    assert together["change"] > together["control_high"] + 1
    assert previous["change"] > 5
    assert rows.loc[("previous_token", "frozen"), "change"] < 0.5       # what it does, it does through later patterns
    assert (demo.sets["n_controls"] > 0).all()
    # The demo's layer 1 has 6 heads: every other set of as many shares heads with this one, so the others alone stand too.
    n = len(demo.found["induction_head"])
    assert together["control_shared"] == max(0, 2 * n - 6)
    assert (together["rest"] is not None) == (2 * n > 6)
    if 2 * n > 6:
        assert len(together["rest"].split()) == 6 - n
        assert abs(together["rest_change"]) < 0.1


def test_the_route_of_the_demo_s_circuit_is_not_the_direct_path(demo):
    """0.3 reaches the keys of layer 1 by way of layer 0's MLP; q_left and k_left are shares of the clean stripe."""
    agreeing = demo.circuit[demo.circuit["agrees"]]
    assert len(agreeing) > 0
    assert set(agreeing["route"]) == {"indirect"}
    np.testing.assert_allclose(agreeing["k_left"], agreeing["k"] / agreeing["clean"], rtol=1e-12)
    np.testing.assert_allclose(agreeing["v_left"], agreeing["logit_v"] / agreeing["logit"], rtol=1e-12)
    assert "Not by the direct path" in " ".join(circuit_sentences(demo))


# -- one table ---------------------------------------------------------------------------------------------------------

def test_one_row_a_head_and_every_measure_once(demo):
    table = demo.table
    assert len(table) == 24
    assert not table.columns.duplicated().any()
    for name in ("previous_token", "induction", "duplicate_token", "prefix_matching"):
        assert {name, name + "_se", name + "_uniform"} <= set(table)
    for name in ("induction", "duplicate_token", "prefix_matching"):
        assert {name + "_control", name + "_control_se"} <= set(table)
    for name in ("copying_ratio", "copying_z", "copying_second", "cut_free", "cut_frozen"):
        assert {name, name + "_se"} <= set(table)
    assert {"copying_ratio_level", "ov_copying", "qk_matching", "qk_matching_composed", "cut_free_text"} <= set(table)
    assert table["prefix_matching"].max() <= 0.5


def test_the_table_holds_what_each_measure_gives_alone(demo):
    model = inspector.load("demo")
    alone = inspector.heads(model, period=20, n_sequences=6)
    np.testing.assert_array_equal(demo.table["induction"], alone["induction"])
    cut = inspector.ablate(model, period=20, n_sequences=6, patterns="frozen")
    np.testing.assert_array_equal(demo.table["cut_frozen"], cut["change"])
    weights = inspector.circuits(model, previous=torch.tensor(alone["previous_token"].to_numpy()).reshape(4, 6)).heads
    np.testing.assert_array_equal(demo.table["ov_copying"], weights["ov_copying"])
    np.testing.assert_array_equal(demo.table["qk_matching_composed"], weights["qk_matching_composed"])


def test_joined_refuses_a_head_twice():
    one = pd.DataFrame({"layer": [0], "head": [0], "a": [1.0]})
    with pytest.raises(pd.errors.MergeError):
        joined(one, pd.DataFrame({"layer": [0, 0], "head": [0, 0], "b": [1.0, 2.0]}))


def test_found_in_lists_heads_in_order():
    table = pd.DataFrame({"layer": [0, 0, 1], "head": [0, 1, 0], "verdict": [["a"], [], ["b", "a"]]})
    assert found_in(table) == {"a": ((0, 0), (1, 0)), "b": ((1, 0),)}


# -- gaps, text, output ------------------------------------------------------------------------------------------------

def test_what_a_small_model_cannot_do_is_said(tmp_path):
    nothing = study(tiny(tmp_path, n_positions=64), **SMALL)          # 4 x 25 ids and BOS do not fit
    assert "prefix_matching" not in nothing.table
    assert "do not fit" in nothing.left_out["prefix matching"]
    assert "nothing is published on" in nothing.left_out["published"]
    assert nothing.learning is None


def test_a_long_text_is_cut_and_said_so():
    model = inspector.load("demo")
    found = study(model, ids=list(range(300)) * 3, **SMALL)
    assert "256 of 900 tokens" in found.left_out["cuts on the whole text"]
    assert found.table["cut_free_text"].notna().all()
    assert found.learning.n_windows == 3


def test_json_csv_and_frame_have_the_same_numbers(demo, tmp_path, capsys):
    plain = as_json(demo)
    assert [row["induction"] for row in plain["rows"]] == demo.table["induction"].tolist()
    out = tmp_path / "study.csv"
    code = main(["study", "--model", "demo", "--period", "12", "--n-sequences", "3", "--n-controls", "1", "--json",
                 "--csv", str(out), "--quiet"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0
    table = pd.read_csv(out, keep_default_na=False)
    assert list(table) == list(shown["rows"][0])
    assert table["induction"].tolist() == [row["induction"] for row in shown["rows"]]
    assert shown["run"]["arguments"]["seed"] == 0


@pytest.mark.parametrize("wrong", [{"threshold": 2}, {"n_sequences": 0}, {"period": 1}, {"seed": -1}, {"n_controls": -1},
                                   {"k_below": -1.0}, {"qv_above": 3.0}, {"k_below": "x"}, {"copying_threshold": -0.1}])
def test_bad_arguments_are_one_error(planted, wrong):
    with pytest.raises(ArgumentError):
        study(planted, **{**SMALL, **wrong})
