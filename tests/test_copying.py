"""Copying and suppressing: the full logits by another route, levels worked out by hand, heads planted to copy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import inspector
from inspector.demo.planted import PLANTED, keys_shifted, write
from inspector.errors import ArgumentError
from inspector.findings.copying import attended_z, copying, copying_ratio, copying_verdicts, ratios
from inspector.findings.direct import direct_unembedding, final_scale
from inspector.findings.prompts import draw

from . import models
from .helpers import random, tiny

INDUCTION = PLANTED["induction"]


@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted")


def row(table, head):
    return table[(table["layer"] == head[0]) & (table["head"] == head[1])].iloc[0]


def with_block(model, layer, **changes):
    blocks = tuple(replace(block, **changes) if n == layer else block for n, block in enumerate(model.weights.blocks))
    return replace(model, weights=replace(model.weights, blocks=blocks))


def with_W_O(model, layer, change):
    """The model with one layer's W_O changed: change([head, d_head, d_model]) -> the same shape."""
    return with_block(model, layer, W_O=change(model.weights.blocks[layer].W_O.clone()))


# -- by brute force: one query at a time, all logits of the vocabulary ------------------------------------------------

def full_logits(model, trace, layer, head, query, scale=1.0):
    """What one head adds to every logit at one position, minus the mean of them all: [vocab]."""
    w = model.weights
    said = trace.z[layer, head, query] @ w.blocks[layer].W_O[head]
    logits = ((said - said.mean()) / scale * w.ln_f_weight) @ w.W_U
    return logits - logits.mean()


def by_hand(model, prompts, single, layer, head):
    """(ratio, z, second) of one head, means over the sequences, from loops over queries and keys."""
    ratio, z, second = [], [], []
    for ids in single:
        trace, part, whole = inspector.trace(model, ids=ids.tolist()), 0.0, 0.0
        for query in range(len(ids)):
            raised = full_logits(model, trace, layer, head, query).clamp(min=0)[ids]
            part += float(trace.pattern[layer, head, query] @ raised)
            whole += float(raised.sum())
        ratio.append(2 * part / whole - 1)
    for ids in prompts.ids:
        trace, first = inspector.trace(model, ids=ids.tolist()), prompts.bos + prompts.period
        zs, seconds = [], []
        for query in range(first, len(ids)):
            logits = full_logits(model, trace, layer, head, query)
            zs.append(float(trace.pattern[layer, head, query] @ logits[ids] / logits.std(correction=0)))
            if query + 1 < len(ids):
                scale = torch.sqrt(trace.resid_post[-1, query].var(correction=0) + model.config.layer_norm_epsilon)
                seconds.append(float(full_logits(model, trace, layer, head, query, scale)[ids[query + 1]]))
        z.append(sum(zs) / len(zs))
        second.append(sum(seconds) / len(seconds))
    return [(np.mean(x), np.std(x, ddof=1) / len(x) ** 0.5) for x in (ratio, z, second)]


@pytest.mark.parametrize(("period", "repeats", "bos", "changes"), [
    (10, 2, False, {}), (7, 3, True, {"tie_word_embeddings": False}), (5, 2, True, {"n_head": 1, "n_layer": 1})])
def test_the_three_numbers_are_those_of_the_full_logits(period, repeats, bos, changes, tmp_path):
    """The d_head x d_head route against all logits of the vocabulary, float64."""
    from inspector.findings.prompts import distinct_rows, drawable_ids, generator_of
    model = tiny(tmp_path, **changes)
    prompts = draw(model, period=period, repeats=repeats, n_sequences=3, bos=bos, seed=4)
    table = copying(model, prompts=prompts, seed=9)
    single = distinct_rows(drawable_ids(model), 25, 3, generator_of(9))
    for layer in range(model.config.n_layer):
        for head in range(model.config.n_head):
            found = row(table, (layer, head))
            for name, (mean, se) in zip(("copying_ratio", "copying_z", "copying_second"),
                                        by_hand(model, prompts, single, layer, head), strict=True):
                assert found[name] == pytest.approx(mean, abs=1e-10), name
                assert found[name + "_se"] == pytest.approx(se, abs=1e-10), name


def test_the_unembedding_gives_the_change_of_real_logits(tmp_path):
    """Adding a vector to the last residual stream with the LayerNorm's scale held: the logits move by what we say."""
    model = tiny(tmp_path)
    w, resid, added = model.weights, random(24, seed=1), random(24, seed=2)
    scale = torch.sqrt(resid.var(correction=0) + model.config.layer_norm_epsilon)

    def logits(x):
        return (x - x.mean()) / scale * w.ln_f_weight @ w.W_U

    moved = logits(resid + added) - logits(resid)
    torch.testing.assert_close(added @ direct_unembedding(model) / scale, moved - moved.mean(), rtol=0, atol=1e-12)


def test_the_direct_path_is_the_one_of_circuits_and_of_attribution(tmp_path):
    """One idea, three users: the folded W_U of the weights, and a part's contribution to one token's logit."""
    from inspector.findings.circuits.folding import folded
    from inspector.findings.direct import frozen_norm, mean_unembedding, unembedding
    model = tiny(tmp_path)
    U, written, resid = direct_unembedding(model), random(5, 24, seed=1), random(5, 24, seed=2)
    torch.testing.assert_close(U, folded(model).W_U, rtol=0, atol=1e-13)
    ids = torch.tensor([3, 96, 0, 3, 50])
    want = (written * U[:, ids].T).sum(-1) / final_scale(model, resid)
    columns = unembedding(model, ids) - mean_unembedding(model)
    found = (frozen_norm(model, written, resid) * columns).sum(-1)
    torch.testing.assert_close(found, want, rtol=0, atol=1e-12)


def test_float32_reads_as_float64_does(tmp_path):
    wide = copying(tiny(tmp_path / "a"))
    narrow = copying(tiny(tmp_path / "b", dtype="float32"))
    for name in ("copying_ratio", "copying_z", "copying_second"):
        np.testing.assert_allclose(narrow[name], wide[name], rtol=0, atol=2e-5)


# -- levels and limits ---------------------------------------------------------------------------------------------------

def test_a_head_that_ignores_its_input_reads_the_level_exactly(tmp_path):
    """Its q, k and v are biases. Over all rotations of a sequence each token stands everywhere once: 2/T - 1, not 0."""
    model = tiny(tmp_path)
    deaf = with_block(model, 1, W_QKV=torch.zeros_like(model.weights.blocks[1].W_QKV))
    T, U = 25, direct_unembedding(deaf)
    ids = torch.arange(30, 30 + T)
    turned = torch.stack([ids.roll(n) for n in range(T)])
    read = ratios(deaf, turned, U, U @ U.T / U.shape[1]).mean(0)                             # [layer, head]
    torch.testing.assert_close(read[1], torch.full((4,), 2 / T - 1, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (read[2] - (2 / T - 1)).abs().max() > 1e-3          # heads that hear something do not
    assert (copying(deaf)["copying_ratio_level"] == 2 / 25 - 1).all()


def test_the_ratio_of_patterns_by_hand():
    pattern = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])[None]
    alike = torch.ones(1, 3, 3)
    assert float(copying_ratio(pattern, alike)) == pytest.approx(2 / 3 - 1)
    looked_at = torch.eye(3)[None]
    assert float(copying_ratio(looked_at, 7 * looked_at - 3)) == 1                           # what falls counts as nothing
    assert float(copying_ratio(looked_at, 1 - looked_at)) == -1
    # Raise 2 on the first token and 1 on the second, looked at 1 + 1/2 + 1/4 and 1/2 + 1/4: (3.5 + 0.75) / 9
    logits = torch.tensor([2.0, 1.0, -5.0]).expand(1, 3, 3)
    assert float(copying_ratio(pattern, logits)) == pytest.approx(2 * 4.25 / 9 - 1)
    assert torch.isnan(copying_ratio(pattern, -alike)).all()


def test_z_of_patterns_by_hand():
    pattern = torch.tensor([[1.0, 0], [0.5, 0.5]])[None]
    logits = torch.tensor([[6.0, 9.0], [-2.0, 4.0]])[None]
    assert float(attended_z(pattern, logits, torch.tensor([[3.0, 0.5]]))) == pytest.approx((2 + 2) / 2)
    assert float(attended_z(pattern, logits, torch.tensor([[3.0, 0.0]]))) == pytest.approx((2 + 0) / 2)


# -- heads that are known ------------------------------------------------------------------------------------------------

def test_a_perfect_copier_reads_one(tmp_path):
    """The planted head that says what it sees, made to look one token back: it raises that token and no other."""
    write(tmp_path, noise=0)
    found = row(copying(keys_shifted(inspector.load(tmp_path))), INDUCTION)
    assert found["copying_ratio"] == pytest.approx(1, abs=1e-3)
    # One token of V raised, in spreads over all V: (1 - 1/V) / sqrt(1/V - 1/V^2) = sqrt(V - 1).
    assert found["copying_z"] == pytest.approx(127**0.5, abs=1e-3)


def test_the_planted_induction_head_copies_and_no_other_head_does(planted):
    table = copying(planted)
    assert {(r.layer, r.head): r.verdict for r in table.itertuples() if r.verdict} == {INDUCTION: ["copies"]}
    assert row(table, INDUCTION)["copying_second"] > 9


def test_the_same_head_with_its_sign_turned_suppresses(planted):
    def turned(W_O):
        W_O[INDUCTION[1]] *= -1
        return W_O

    table, plain = copying(with_W_O(planted, INDUCTION[0], turned)), copying(planted)
    assert {(r.layer, r.head): r.verdict for r in table.itertuples() if r.verdict} == {INDUCTION: ["suppresses"]}
    for name in ("copying_z", "copying_second"):
        assert row(table, INDUCTION)[name] == pytest.approx(-row(plain, INDUCTION)[name], rel=0.05)


def test_a_head_that_the_unembedding_cannot_read_counts_as_nothing(planted):
    """The planted previous-token head writes where W_U reads nothing: rounding is not taken for speech."""
    found = row(copying(planted), PLANTED["previous_token"])
    assert np.isnan(found["copying_ratio"])
    assert (found["copying_z"], found["copying_z_se"], found["copying_second"], found["copying_second_se"]) == (0, 0, 0, 0)
    assert found["verdict"] == []


def test_no_random_head_is_called(tmp_path):
    """320 heads of 10 random models; and their copying on the second copy spreads about 0 as chance has it.

    Holm at 1 % lets one random model in a hundred say a word: 2 of 100 did, so 10 are to say none.
    """
    t, called = [], 0
    for seed in range(10):
        model = tiny(tmp_path / str(seed), dtype="float32", seed=seed, n_embd=64, n_head=8, n_layer=4, n_positions=128,
                     vocab_size=307)
        table = copying(model, seed=seed)
        called += sum(map(bool, table["verdict"]))
        t.extend(table["copying_second"] / table["copying_second_se"])
    assert len(t) == 320
    assert called == 0
    assert abs(np.mean(t)) < 0.2
    assert np.std(t) == pytest.approx((15 / 13) ** 0.5, abs=0.15)                            # t with 15 degrees of freedom


# -- verdicts and arguments ----------------------------------------------------------------------------------------------

def test_verdicts_need_both_numbers_and_correct_for_the_number_of_heads():
    import pandas as pd
    table = pd.DataFrame({"copying_z": [5.0, 5.0, -5.0, 5.0, 0.0], "copying_z_se": [1.0] * 4 + [0.0],
                          "copying_second": [5.0, 0.5, -5.0, -5.0, 0.0], "copying_second_se": [1.0] * 4 + [0.0]})
    assert copying_verdicts(table, 16) == [["copies"], [], ["suppresses"], ["suppresses"], []]
    assert copying_verdicts(table, 16, least_z=5.1) == [[]] * 5           # what is shown must also be large enough
    # t = 5 with 15 degrees of freedom: p = 8e-5, enough for one head of 100, not of 200.
    many = pd.concat([table[:1], pd.DataFrame([dict.fromkeys(table, 0.0) | {c: 1.0 for c in table if "_se" in c}] * 199)])
    assert copying_verdicts(many[:100], 16)[0] == ["copies"]
    assert copying_verdicts(many, 16)[0] == []
    assert copying_verdicts(table, 1) == [[]] * 5


def test_a_model_smaller_than_25_tokens_says_its_own_level(tmp_path):
    model = inspector.load(models.save(models.tiny_model(n_positions=12), tmp_path), dtype="float64")
    table = copying(model, n_sequences=4)
    assert (table["copying_ratio_level"] == 2 / 12 - 1).all()
    assert table.attrs["run"]["arguments"]["ratio_tokens"] == 12


def test_prompts_and_what_draws_them_exclude_each_other(planted):
    prompts = draw(planted, period=20, n_sequences=2)
    assert len(copying(planted, prompts=prompts)) == 8
    with pytest.raises(ArgumentError, match="prompts are given"):
        copying(planted, prompts=prompts, period=20)


def test_the_weights_are_not_changed(tmp_path):
    model = tiny(tmp_path)
    before = [t.clone() for t in (model.weights.W_U, model.weights.W_E, model.weights.blocks[0].W_O)]
    copying(model, n_sequences=2)
    for old, new in zip(before, (model.weights.W_U, model.weights.W_E, model.weights.blocks[0].W_O), strict=True):
        assert torch.equal(old, new)


# -- the real weights ----------------------------------------------------------------------------------------------------

@pytest.mark.gpt2
def test_gpt2s_negative_heads_suppress_and_its_induction_heads_copy(gpt2_folder):
    """McDougall et al. 2023: 10.7 and 11.10 suppress. Wang et al. 2022, appendix H: 5.5 and 6.9 are among the 20 heads that
    contribute most to the next token of repeated random tokens.
    """
    table = copying(inspector.load(gpt2_folder))
    for head in ((10, 7), (11, 10)):
        assert row(table, head)["verdict"] == ["suppresses"]
    best = table.sort_values("copying_second", ascending=False)[:20]
    assert {(5, 5), (6, 9)} <= set(zip(best["layer"], best["head"], strict=True))
