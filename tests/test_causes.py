"""The causal circuit: against transformers run and read by hand, and on the planted model, whose circuit is known."""

import math

import pandas as pd
import pytest
import torch

import inspector
from inspector.errors import ArgumentError
from inspector.findings import causes as module
from inspector.findings.causes import MEASURES, agrees, causes
from inspector.findings.prompts import draw

from . import models
from .helpers import tiny

PERIOD, N, D = 7, 4, 6                      # d_head of the tiny model is 24 / 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted", dtype="float64")


# -- the independent route: transformers' modules, one sequence and one query at a time --------------------------------

def their_run(ids, replace=None):
    """(hidden states, z by layer) of transformers on [sequence, pos]; replace = (layer, head, z) puts z into c_proj."""
    reference, seen = models.tiny_model().double(), {}

    def hook_of(layer):
        def hook(module, args):
            z = args[0].clone()
            if replace is not None and replace[0] == layer:
                z[..., D * replace[1]:D * replace[1] + D] = replace[2]
            seen[layer] = z
            return (z,)
        return hook

    for layer, block in enumerate(reference.transformer.h):
        block.attn.c_proj.register_forward_pre_hook(hook_of(layer))
    final = []
    reference.transformer.ln_f.register_forward_pre_hook(lambda _, args: final.append(args[0]))
    with torch.no_grad():
        hidden = reference(ids, output_hidden_states=True).hidden_states
    return hidden, seen, final[0]


def their_qkv(layer, head, resid):
    block = models.tiny_model().double().transformer.h[layer]
    with torch.no_grad():
        qkv = block.attn.c_attn(block.ln_1(resid))
    return [qkv[..., part * 24 + D * head:part * 24 + D * head + D] for part in range(3)]


def their_stripe(q, k):
    """Mean over sequences and queries of copy 2 of A[i, i - L + 1], each row's softmax written out: a float."""
    found = []
    for s in range(len(q)):
        for i in range(PERIOD, 2 * PERIOD):
            scores = [float(q[s, i] @ k[s, j]) / math.sqrt(D) for j in range(i + 1)]
            weights = [math.exp(x - max(scores)) for x in scores]
            found.append(weights[i - PERIOD + 1] / sum(weights))
    return sum(found) / len(found)


def their_logit(q, k, v, layer, head, ids, final):
    """Mean of the head's part of the right next token's logit, minus its mean over the vocabulary."""
    reference = models.tiny_model().double()
    W_O = reference.transformer.h[layer].attn.c_proj.weight[D * head:D * head + D]
    gain, W_U = reference.transformer.ln_f.weight, reference.lm_head.weight.T
    found = []
    with torch.no_grad():
        for s in range(len(q)):
            for i in range(PERIOD, 2 * PERIOD - 1):
                weights = torch.softmax(torch.stack([q[s, i] @ k[s, j] for j in range(i + 1)]) / math.sqrt(D), dim=0)
                said = (weights @ v[s, :i + 1]) @ W_O
                sigma = (final[s, i].var(correction=0) + reference.config.layer_norm_epsilon).sqrt()
                logits = (said - said.mean()) / sigma * gain @ W_U
                found.append(float(logits[ids[s, i + 1]] - logits.mean()))
    return sum(found) / len(found)


@pytest.mark.parametrize("fill", ["mean", "zero", "resample"])
@pytest.mark.parametrize(("p", "h"), [((0, 1), (2, 3)), ((1, 3), (2, 0)), ((0, 0), (1, 2))])
def test_every_measure_is_what_transformers_and_a_loop_by_hand_give(model, p, h, fill):
    ids, other = (draw(model, period=PERIOD, n_sequences=N, seed=seed).ids for seed in (2, 3))
    hidden, z, final = their_run(ids)
    own = [z[p[0]][..., D * head:D * head + D] for head in range(4)]
    _, other_z, _ = their_run(other)
    replaced = [{"mean": part.mean(0, keepdim=True).expand_as(part), "zero": torch.zeros_like(part), "resample": part}[fill]
                for part in (other_z[p[0]][..., D * head:D * head + D] for head in range(4))]
    clean = their_qkv(*h, hidden[h[0]])
    cut = [their_qkv(*h, their_run(ids, (p[0], head, replaced[head]))[0][h[0]]) for head in range(4)]
    W_O = models.tiny_model().double().transformer.h[p[0]].attn.c_proj.weight[D * p[1]:D * p[1] + D].detach()
    direct = their_qkv(*h, hidden[h[0]] - (own[p[1]] - replaced[p[1]]) @ W_O)
    q, k, v = clean
    others = [head for head in range(4) if head != p[1]]
    expected = {
        "clean": their_stripe(q, k), "v": their_stripe(q, k),
        "cut": their_stripe(*cut[p[1]][:2]), "q": their_stripe(cut[p[1]][0], k), "k": their_stripe(q, cut[p[1]][1]),
        "direct": their_stripe(*direct[:2]),
        "control_cut": sum(their_stripe(*cut[head][:2]) for head in others) / 3,
        "control_k": sum(their_stripe(q, cut[head][1]) for head in others) / 3,
        "logit": their_logit(q, k, v, *h, ids, final), "logit_v": their_logit(q, k, cut[p[1]][2], *h, ids, final),
    }
    table = causes(model, [p], [h], fill=fill, period=PERIOD, n_sequences=N, seed=2)
    row = table.iloc[0]
    assert {name: row[name] for name in MEASURES} == pytest.approx(expected, abs=1e-10)
    if h[0] - p[0] > 1:                     # with layers between, the direct path alone is another thing than the cut
        assert abs(row["direct"] - row["cut"]) > 1e-4


# -- the planted circuit -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fill", ["mean", "zero", "resample"])
def test_the_planted_pair_agrees_and_no_other_does(planted, fill):
    table = causes(planted, "0.0 0.1", "2.0 2.1", fill=fill, n_sequences=4).set_index(
        ["layer_from", "head_from", "layer", "head"])
    assert table["agrees"].to_dict() == {(0, 0, 2, 0): False, (0, 0, 2, 1): False, (0, 1, 2, 0): True, (0, 1, 2, 1): False}
    pair, other = table.loc[(0, 1, 2, 0)], table.loc[(0, 0, 2, 0)]
    for name in ("clean", "q", "v", "control_cut", "control_k"):
        assert pair[name] == pytest.approx(1, abs=1e-6), name
    assert max(pair["k"], pair["cut"], pair["direct"]) < 0.03
    assert pair["logit_v"] > 0.9 * pair["logit"] > 5
    # Of 0.0 it needs nothing; the one other head of that layer is 0.1, and without that it is lost.
    assert min(other[["clean", "cut", "q", "k", "v", "direct"]]) > 1 - 1e-6
    assert max(other["control_cut"], other["control_k"]) < 0.03


def test_a_silent_previous_token_head_is_no_cause(planted):
    from inspector.demo.planted import previous_token_silent
    row = causes(previous_token_silent(planted), "0.1", "2.0", n_sequences=4).iloc[0]
    assert not row["agrees"]
    for name in ("cut", "q", "k", "direct"):
        assert row[name] == pytest.approx(row["clean"], abs=1e-12), name
    assert row["logit_v"] == pytest.approx(row["logit"], abs=1e-12)


# -- the table ---------------------------------------------------------------------------------------------------------

def test_every_pair_of_an_earlier_and_a_later_head_has_a_row(model):
    table = causes(model, "2.0 0.1 1.2", "1.0 2.3", period=PERIOD, n_sequences=2)
    assert list(zip(table["layer_from"], table["head_from"], table["layer"], table["head"], strict=True)) == [
        (0, 1, 1, 0), (0, 1, 2, 3), (1, 2, 2, 3)]


@pytest.mark.parametrize(("previous", "induction"), [("2.0", "1.0"), ("1.0", "1.2"), ([], "2.0"), ("0.1", [])])
def test_without_a_pair_the_table_is_empty_and_has_its_columns(model, previous, induction):
    table = causes(model, previous, induction, period=PERIOD, n_sequences=2)
    assert len(table) == 0
    assert list(table) == list(causes(model, "0.1", "2.0", period=PERIOD, n_sequences=2))


def test_values_and_errors_are_over_sequences_however_many_are_run_at_once(model, monkeypatch):
    whole = causes(model, "0.1 1.1", "1.0 2.0", period=PERIOD, n_sequences=5, fill="resample")
    monkeypatch.setattr(module, "POSITIONS_AT_ONCE", 1)
    pd.testing.assert_frame_equal(whole, causes(model, "0.1 1.1", "1.0 2.0", period=PERIOD, n_sequences=5, fill="resample"),
                                  rtol=0, atol=1e-10)
    per_sequence = inspector.heads(model, period=PERIOD, n_sequences=5).query("layer == 2 and head == 0")
    row = whole.query("layer == 2").iloc[0]
    assert row["clean"] == pytest.approx(float(per_sequence["induction"].iloc[0]), abs=1e-10)
    assert row["clean_se"] == pytest.approx(float(per_sequence["induction_se"].iloc[0]), abs=1e-10)


def test_one_sequence_has_no_error_and_an_only_head_no_control(tmp_path):
    alone = tiny(tmp_path, n_head=1)
    row = causes(alone, "0.0", "1.0", period=PERIOD, n_sequences=1).iloc[0]
    assert math.isnan(row["clean_se"])
    assert math.isnan(row["control_cut"])
    assert math.isnan(row["control_k"])
    assert row["clean"] > 0


def test_bos_is_no_part_of_the_block(model):
    row = causes(model, "0.1", "2.0", period=PERIOD, n_sequences=3, bos=True).iloc[0]
    expected = inspector.heads(model, period=PERIOD, n_sequences=3, bos=True).query("layer == 2 and head == 0")
    assert row["clean"] == pytest.approx(float(expected["induction"].iloc[0]), abs=1e-10)


ROW = {"clean": 0.8, "q": 0.75, "k": 0.1, "v": 0.8, "logit": 2.0, "logit_v": 1.9}


@pytest.mark.parametrize(("change", "verdict"), [
    ({}, True), ({"k": 0.41}, False), ({"k": 0.39}, True), ({"q": 0.71}, False), ({"q": 0.73}, True),
    ({"logit_v": 1.7}, False), ({"logit_v": 3.0}, True), ({"logit": -2.0, "logit_v": -1.9}, True),
    ({"logit": -2.0, "logit_v": -1.0}, False), ({"logit": 2.0, "logit_v": -2.0}, False),
    ({"logit": 0.0, "logit_v": 0.0}, False),
])
def test_a_pair_agrees_when_k_fails_and_q_and_v_do_not(change, verdict):
    assert agrees({**ROW, **change}) is verdict


def test_the_thresholds_are_arguments(planted):
    how = {"n_sequences": 2, "period": 30}
    assert causes(planted, "0.1", "2.0", **how)["agrees"].tolist() == [True]
    assert causes(planted, "0.1", "2.0", k_below=1e-6, **how)["agrees"].tolist() == [False]
    assert causes(planted, "0.1", "2.0", qv_above=1.01, **how)["agrees"].tolist() == [False]
    assert causes(planted, "0.0", "2.0", k_below=1.01, **how)["agrees"].tolist() == [True]


@pytest.mark.parametrize(("arguments", "words"), [
    ({"fill": "median"}, "fill is 'median'"), ({"previous": "7.0"}, "no head 7.0"), ({"induction": "x"}, "'x' is unclear"),
    ({"period": 99}, "period of at most 15"), ({"n_sequences": 0}, "n_sequences is 0"),
])
def test_what_cannot_be_done_is_said(model, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        causes(model, **{"previous": "0.1", "induction": "2.0", **arguments})
