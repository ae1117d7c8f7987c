"""What a head's weights say: against whole big matrices on tiny models, matrices built to have the answer, planted heads."""

import json
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import inspector
from inspector import record
from inspector.demo import planted
from inspector.demo.planted import PLANTED
from inspector.errors import ArgumentError
from inspector.findings.circuits import positions
from inspector.findings.circuits.composition import compositions, ends, matching_through, meetings, moved
from inspector.findings.circuits.directions import leading, svd
from inspector.findings.circuits.eigen import (
    core_eigenvalues,
    eigenvalue_ratio,
    eigenvalues,
    least_of,
    product,
    ratio_of,
    symmetric_share,
    triangle,
)
from inspector.findings.circuits.folding import effective_embedding, folded
from inspector.findings.circuits.table import circuits, previous_scores
from inspector.model.forward import embed, layers, unembed

from .helpers import random, some_ids, tiny

PREVIOUS = [[0.9, 0.1, -0.3, 0.0], [0.2, 0.7, 0.05, 1.3], [0.4, 0.5, 0.6, 0.7]]      # any numbers will do
RATIOS = ("ov_copying", "ov_copying_vocab", "ov_copying_effective", "qk_matching", "qk_matching_effective",
          "qk_matching_composed", "qk_matching_composed_effective")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Tiny, adversarial, with an unembedding of its own."""
    return tiny(tmp_path_factory.mktemp("tiny"), tie_word_embeddings=False)


@pytest.fixture(scope="module")
def found(model):
    return circuits(model, previous=PREVIOUS, samples=20)


@pytest.fixture(scope="module")
def known():
    """What the weights of the planted model say."""
    return circuits(inspector.load("planted", dtype="float64"))


@pytest.fixture(scope="module")
def demo():
    return circuits(inspector.load("demo"))


def at(table, head, **more):
    """The one row of a head."""
    wanted = {"layer": head[0], "head": head[1], **more}
    rows = table[(table[list(wanted)] == list(wanted.values())).all(axis=1)]
    assert len(rows) == 1
    return rows.iloc[0]


def grid(table, column, n_head=4):
    return table[column].to_numpy(dtype=np.float64).reshape(-1, n_head)


# -- folding ---------------------------------------------------------------------------------------------------------

def without_layer_norms(model):
    """The model made of its folded weights: no gains, biases moved on. Logits lack the bias of the unembedding."""
    w, weights = folded(model), model.weights
    blocks = []
    for layer, block in enumerate(weights.blocks):
        def joined(parts):
            return parts.transpose(0, 1).flatten(1)

        blocks.append(replace(
            block, ln_1_weight=torch.ones_like(block.ln_1_weight), ln_1_bias=torch.zeros_like(block.ln_1_bias),
            W_QKV=torch.cat([joined(w.W_Q[layer]), joined(w.W_K[layer]), joined(w.W_V[layer])], dim=1),
            b_QKV=block.b_QKV + block.ln_1_bias @ block.W_QKV, W_O=w.W_O[layer]))
    return replace(model, weights=replace(
        weights, W_E=w.W_E, W_pos=w.W_pos, blocks=tuple(blocks), W_U=w.W_U, ln_f_bias=torch.zeros_like(weights.ln_f_bias),
        ln_f_weight=torch.ones_like(weights.ln_f_weight)))


@pytest.mark.parametrize("tied", [True, False])
def test_folded_weights_give_the_model_s_patterns_and_logit_differences(tmp_path, tied):
    model = tiny(tmp_path, tie_word_embeddings=tied)
    bare, ids = without_layer_norms(model), some_ids(model, 29)
    ours, theirs = (list(layers(m, embed(m, ids))) for m in (bare, model))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a.kept.pattern, b.kept.pattern, rtol=0, atol=1e-12)
    bias = model.weights.ln_f_bias @ model.weights.W_U
    logits = unembed(bare, ours[-1].resid_post) + bias
    true = unembed(model, theirs[-1].resid_post)
    assert torch.allclose(logits - logits.mean(-1, keepdim=True), true - true.mean(-1, keepdim=True), rtol=0, atol=1e-11)
    assert not torch.allclose(bare.weights.W_U, model.weights.W_U, atol=0.1)


def test_what_reads_and_what_writes_is_centred(model):
    w = folded(model)
    for name in ("W_Q", "W_K", "W_V", "W_U"):
        assert getattr(w, name).mean(-2).abs().max() < 1e-14, name
    for name in ("W_E", "W_pos", "W_O", "W_U"):
        assert getattr(w, name).mean(-1).abs().max() < 1e-14, name


def test_raw_weights_are_the_checkpoint_s(model):
    w, weights = folded(model, fold=False), model.weights
    for name in ("W_E", "W_pos", "W_U"):
        assert torch.equal(getattr(w, name), getattr(weights, name)), name
    for layer, block in enumerate(weights.blocks):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            assert torch.equal(getattr(w, name)[layer], getattr(block, name)), name


@pytest.mark.parametrize("fold", [True, False])
def test_the_effective_embedding_is_the_stream_after_layer_0_of_a_token_alone(model, fold):
    alone = torch.stack([inspector.trace(model, ids=[i]).resid_post[0, 0] for i in range(model.config.vocab_size)])
    alone = alone - alone.mean(1, keepdim=True) if fold else alone
    assert torch.allclose(effective_embedding(model, fold), alone - alone.mean(0), rtol=0, atol=1e-12)


# -- brute force: the big matrices themselves ------------------------------------------------------------------------

def big_ratio(matrix):
    """Sum Re / sum | | of all eigenvalues of a whole matrix."""
    values = np.linalg.eigvals(matrix.numpy())
    return values.real.sum() / np.abs(values).sum()


@pytest.mark.parametrize("fold", [True, False])
def test_every_ratio_is_that_of_the_whole_matrix(model, fold):
    """[vocab, vocab] and [d_model, d_model] matrices, multiplied out."""
    table = circuits(model, fold=fold, previous=PREVIOUS, samples=2).heads
    w, F = folded(model, fold), effective_embedding(model, fold)
    E, W_U = w.W_E, w.W_U
    OV, QK = w.W_V @ w.W_O, w.W_Q @ w.W_K.mT                                         # [layer, head, d_model, d_model]
    for row in table.itertuples():
        ov, qk = OV[row.layer, row.head], QK[row.layer, row.head]
        close = {"abs": 1e-9}
        assert row.ov_copying == pytest.approx(big_ratio(ov), **close)
        assert row.ov_copying_vocab == pytest.approx(big_ratio(E @ ov @ W_U), **close)
        assert row.qk_matching == pytest.approx(big_ratio(E @ qk @ E.T), **close)
        assert row.ov_norm == pytest.approx(float(ov.norm()), rel=1e-12)
        assert row.qk_norm == pytest.approx(float(qk.norm()), rel=1e-12)
        assert row.qk_symmetric == pytest.approx(float(((qk + qk.T) / 2).norm() ** 2 / qk.norm() ** 2), **close)
        values = np.linalg.eigvals(ov.numpy())
        largest = values[np.argsort(-np.abs(values))[:model.config.d_head]]
        assert row.ov_positive == (largest.real > 0).mean()
        if row.layer:
            assert row.ov_copying_effective == pytest.approx(big_ratio(F @ ov @ W_U), **close)
            assert row.qk_matching_effective == pytest.approx(big_ratio(F @ qk @ F.T), **close)
            moved = sum(PREVIOUS[a][h] * OV[a, h] for a in range(row.layer) for h in range(4))
            assert row.qk_matching_composed == pytest.approx(big_ratio(E @ qk @ (E @ moved).T), **close)
            keys = sum(PREVIOUS[a][h] * (F if a else E) @ OV[a, h] for a in range(row.layer) for h in range(4))
            assert row.qk_matching_composed_effective == pytest.approx(big_ratio(F @ qk @ keys.T), **close)
        else:
            assert np.isnan([row.ov_copying_effective, row.qk_matching_effective, row.qk_matching_composed,
                             row.qk_matching_composed_effective]).all()


def test_every_singular_value_is_that_of_the_whole_matrix(model, found):
    w = folded(model)
    for name, matrix in (("ov", w.W_V @ w.W_O), ("qk", w.W_Q @ w.W_K.mT)):
        ours = found.spectra[found.spectra["circuit"] == name]["singular_value"].to_numpy().reshape(3, 4, 6)
        assert np.allclose(ours, np.linalg.svd(matrix.numpy(), compute_uv=False)[..., :6], rtol=0, atol=1e-12)


def test_nothing_depends_on_how_a_product_is_split_into_factors(model, found):
    """W_Q A and W_K A^-T, W_V B and B^-1 W_O are the same heads."""
    A, B = (random(6, 6, seed=seed) + 3 * torch.eye(6, dtype=torch.float64) for seed in (1, 2))

    def other(block):
        parts = [block.W_Q @ A, block.W_K @ torch.linalg.inv(A).T, block.W_V @ B]
        return replace(block, W_QKV=torch.cat([p.transpose(0, 1).flatten(1) for p in parts], dim=1),
                       W_O=torch.linalg.inv(B) @ block.W_O, b_QKV=torch.cat([
                           block.b_QKV[:48], (block.b_V @ B).flatten()]))

    blocks = tuple(other(block) for block in model.weights.blocks)
    again = circuits(replace(model, weights=replace(model.weights, blocks=blocks)), previous=PREVIOUS, samples=20)
    for field in ("heads", "pairs", "spectra"):
        pd.testing.assert_frame_equal(getattr(again, field), getattr(found, field), rtol=0, atol=1e-8)


# -- ratios and shares by hand ---------------------------------------------------------------------------------------

def test_the_ratio_by_hand():
    assert float(eigenvalue_ratio(torch.tensor([3, 1 + 1j, 1 - 1j]))) == pytest.approx(5 / (3 + 2 * 2**0.5), abs=1e-7)
    rows = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [1.0, -1.0], [0.0, 0.0]])
    assert eigenvalue_ratio(rows)[:3].tolist() == [1, -1, 0]
    assert eigenvalue_ratio(rows)[3].isnan()
    assert eigenvalue_ratio(rows, least=2.5).isnan().tolist() == [False, False, True, True]


def one(matrix):
    """The Product of one head that is this square matrix."""
    return product(matrix[None], torch.eye(len(matrix), dtype=torch.float64)[None])


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_eigenvalues_do_not_depend_on_the_threads_that_share_them(threads):
    matrices, before = random(2, 3, 9, 9), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(eigenvalues(matrices), torch.linalg.eigvals(matrices))
    finally:
        torch.set_num_threads(before)


def test_a_product_s_norms_are_those_of_its_right_factor():
    left, right, X = random(3, 9, 4, seed=1), random(3, 4, 7, seed=2), random(5, 9, seed=3)
    whole = product(left, right)
    assert torch.allclose(whole.left @ whole.right, left @ right, atol=1e-13)
    assert torch.allclose(whole.left.mT @ whole.left, torch.eye(4, dtype=torch.float64), atol=1e-14)
    norms = torch.linalg.matrix_norm
    assert torch.allclose(norms(whole.right), norms(left @ right), rtol=1e-13)
    assert torch.allclose(norms(X @ left @ triangle(right)), norms(X @ left @ right), rtol=1e-13)


class Products(TorchDispatchMode):
    """Counts matrix products by the shapes of their factors."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in ("mm", "bmm", "addmm"):
            left, right = args[-2:]
            self.found[tuple(left.shape), tuple(right.shape)] += 1
        return function(*args, **(kwargs or {}))


def test_two_layers_heads_meet_in_five_products_and_nothing_is_vocab_by_vocab(model):
    """q, k and v of composition and, k being shared, one more for each of the two matchings; 3 pairs of layers."""
    with Products() as products:
        circuits(model, previous=PREVIOUS, samples=2)
    config, square = model.config, (1, 24, 24)                # 4 heads x d_head 6 = d_model 24
    weighted = config.n_layer                                 # the sum over a layer's heads, for composed matching
    assert products.found[square, square] == 3 * 5 + weighted
    assert products.found[(24, config.vocab_size), (config.vocab_size, 24)] == 5              # `Joins`
    assert max(left[-2] * right[-1] for left, right in products.found) == config.vocab_size * 3 * config.d_model


def test_matrices_built_to_have_the_answer():
    identity = torch.eye(5, dtype=torch.float64)
    rotation = torch.tensor([[0.0, -1], [1, 0]], dtype=torch.float64)                # eigenvalues i and -i
    assert float(ratio_of(one(identity), identity)) == 1
    assert float(ratio_of(one(-identity), identity)) == -1
    assert float(ratio_of(one(rotation), torch.eye(2, dtype=torch.float64))) == pytest.approx(0, abs=1e-15)
    shift = torch.diag(torch.ones(4, dtype=torch.float64), 1)                        # nilpotent
    for nothing in (shift, torch.zeros(5, 5, dtype=torch.float64), random(5, 5).triu(1)):
        assert ratio_of(one(nothing), identity).isnan().all()
    assert float(ratio_of(one(shift + 0.1 * identity), identity)) == pytest.approx(1, abs=1e-9)


def test_the_symmetric_share_of_symmetric_antisymmetric_and_random_matrices():
    S = random(7, 7)
    assert float(symmetric_share(one(S + S.T))) == pytest.approx(1, abs=1e-14)
    assert float(symmetric_share(one(S - S.T))) == pytest.approx(0, abs=1e-14)
    shares = symmetric_share(product(random(200, 48, 6, seed=1), random(200, 48, 6, seed=2).mT))
    assert float(shares.mean()) == pytest.approx((1 + 1 / 48) / 2, abs=4 * float(shares.std()) / 200**0.5)
    assert float(shares.std()) < 0.02


def test_random_heads_have_ratios_around_0():
    d, e, n = 64, 16, 300
    ratios = ratio_of(product(random(n, d, e, seed=1), random(n, e, d, seed=2)), torch.eye(d, dtype=torch.float64))
    assert not ratios.isnan().any()
    assert abs(float(ratios.mean())) < 4 * float(ratios.std()) / n**0.5
    assert 0.02 < float(ratios.std()) < 0.15


@pytest.mark.parametrize(("d_head", "share"), [(8, 0.66), (64, 0.6), (256, 0.4)])
def test_random_heads_against_which_eigenvalues_are_called_nothing(d_head, share):
    """`least_sum` is a hundredth of d_head / d_model * norms; random heads have 0.4 to 2/3 of that."""
    head, join = product(random(20, 256, d_head, seed=1), random(20, d_head, 256, seed=2)), random(256, 256, seed=3)
    sums = core_eigenvalues(head, join).abs().sum(-1)
    assert float((sums / least_of(head, join)).mean()) == pytest.approx(100 * share, rel=0.05)


# -- the planted heads -----------------------------------------------------------------------------------------------

LEVEL = 0.5      # a ratio above it is called positive; random heads of the planted model read 0.03 at most


def above(column, level=LEVEL):
    return {(row.layer, row.head) for row in column.itertuples() if row[3] > level}


def named(table, name):
    return above(table[["layer", "head", name]])


def test_direct_matching_is_positive_for_the_duplicate_head_alone(known):
    assert named(known.heads, "qk_matching") == {PLANTED["duplicate_token"]}
    assert at(known.heads, PLANTED["duplicate_token"])["qk_matching"] == pytest.approx(1, abs=1e-6)
    others = known.heads[[(row.layer, row.head) != PLANTED["duplicate_token"] for row in known.heads.itertuples()]]
    assert others["qk_matching"].abs().max() < 0.03


def test_composed_matching_is_positive_for_the_induction_head_alone(known):
    for name in ("qk_matching_composed", "qk_matching_composed_effective"):
        assert named(known.heads, name) == {PLANTED["induction"]}
        assert at(known.heads, PLANTED["induction"])[name] > 0.99
        assert known.heads[name].dropna().sort_values().iloc[-2] < 0.03


def test_composed_matching_is_positive_through_the_previous_token_head_alone(known):
    for name in ("matching", "matching_effective"):
        rows = known.pairs[known.pairs[name] > 0.03]
        assert [tuple(row) for row in rows[["layer_from", "head_from", "layer", "head"]].to_numpy()] == [
            (*PLANTED["previous_token"], *PLANTED["induction"])]
        assert rows[name].iloc[0] > 0.99


def test_the_planted_pair_s_k_composition_is_the_strongest_of_all(known):
    order = known.pairs.sort_values("k_composition", ascending=False)
    best, second = order.iloc[0], order.iloc[1]
    assert (best["layer_from"], best["head_from"]) == PLANTED["previous_token"]
    assert (best["layer"], best["head"]) == PLANTED["induction"]
    assert best["k_composition"] == pytest.approx(128**-0.5, rel=2e-3)     # the 128 directions written are those read
    assert best["k_composition_high"]
    assert best["k_composition"] > 2 * second["k_composition"]
    assert best["k_composition"] > 2 * known.pairs[["q_composition", "v_composition"]].to_numpy().max()
    assert best["q_composition"] < 0.01
    assert best["v_composition"] < 0.01


def test_a_silent_previous_token_head_ends_composed_matching():
    """Its W_O is zero: no composition, no matching, no directions, and none of them a number of rounding."""
    w = folded(planted.previous_token_silent(inspector.load("planted", dtype="float64")))
    gram = w.W_E.mT @ w.W_E
    silent, later = (product(w.W_V[a, h:h + 1], w.W_O[a, h:h + 1]) for a, h in
                     (PLANTED["previous_token"], PLANTED["induction"]))
    later = ends(later, product(w.W_Q[2, :1], w.W_K[2, :1].mT))
    met = meetings(silent.right, later)
    assert matching_through(met["k"], moved(silent, gram), later).isnan().all()
    assert all(value.isnan().all() for value in compositions(met, silent.right, later).values())
    (row, *_) = leading(0, svd(silent), w.W_E, w.W_U, n_directions=1, n_tokens=1, label=str)
    assert (row["singular_value"], row["reads"], row["writes_opposite"]) == (0, [], [])
    assert np.isnan(row["share"])


def test_the_induction_head_copies_through_the_vocabulary_alone(known):
    """TOKEN -> OUTPUT: nothing comes back in the residual basis, all of it does from W_E to W_U."""
    row = at(known.heads, PLANTED["induction"])
    assert row["ov_copying_vocab"] == pytest.approx(1, abs=1e-6)
    assert np.isnan(row["ov_copying"])
    assert named(known.heads, "ov_copying_vocab") == {PLANTED["induction"]}
    assert np.isnan(at(known.heads, PLANTED["previous_token"])["ov_copying_vocab"])


def test_the_weights_alone_name_the_previous_token_head(known):
    row = at(known.heads, PLANTED["previous_token"])
    assert row["positional_offset"] == 1
    assert row["positional_z"] > 1000
    assert row["positional_previous"] == pytest.approx(1, abs=1e-9)
    rest = known.heads[[(r.layer, r.head) != PLANTED["previous_token"] for r in known.heads.itertuples()]]
    assert rest["positional_z"].max() < 4
    assert rest["positional_previous"].max() < 0.05


@pytest.mark.parametrize("by", [1, 3, 50])
def test_any_offset_is_read_off_the_weights(by):
    from inspector.demo import planting
    model = inspector.load("planted", dtype="float64")
    head = planting.looking_back(planting.noise_head(planting.zeros), by, planted.CROWD[2])
    w = folded(planted.with_look(model, PLANTED["induction"], head))
    scores = (w.W_pos @ w.W_Q[2]) @ (w.W_pos @ w.W_K[2]).mT
    offset, z = positions.standing_out(positions.profile(scores))
    assert offset[0] == by
    assert (z[0] > 1000) == (by == 1)


# -- positions -------------------------------------------------------------------------------------------------------

def test_the_profile_by_hand():
    """Rows 3, 4, 5 of 6 positions, offsets 0, 1, 2: the mean of each diagonal over these rows alone."""
    scores = torch.arange(36.0, dtype=torch.float64).view(1, 6, 6)
    by_hand = [[(21 + 28 + 35) / 3, (20 + 27 + 34) / 3, (19 + 26 + 33) / 3]]
    assert positions.profile(scores).tolist() == by_hand
    assert positions.profile(torch.ones(2, 7, 7)).shape == (2, 3)


def test_what_shifts_whole_rows_of_scores_changes_nothing():
    scores, shifts = random(3, 20, 20), random(3, 20, 1, seed=1)
    (offset, z), (again, z_again) = (positions.standing_out(positions.profile(s)) for s in (scores, scores + shifts))
    assert torch.equal(offset, again)
    assert torch.allclose(z, z_again, atol=1e-12)
    q, k, shift = random(3, 20, 5), random(3, 20, 5, seed=1), random(3, 1, 5, seed=2)
    assert torch.allclose(positions.previous_share(q, k, 0.5), positions.previous_share(q, k + shift, 0.5), atol=1e-14)


def test_standing_out_by_hand():
    offset, z = positions.standing_out(torch.tensor([[1.0, 9.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]], dtype=torch.float64))
    assert offset[0] == 1
    assert float(z[0]) == pytest.approx((9 - 2) / 1, abs=1e-12)
    assert offset[1].isnan()
    assert z[1].isnan()
    assert all(part.isnan().all() for part in positions.standing_out(torch.ones(2, 3)))


def test_positions_are_divided_as_layer_0_would_divide_them(model):
    """The std of W_E[t] + W_pos[i], root of the mean square over all tokens."""
    weights, w = model.weights, folded(model)
    streams = weights.W_E[:, None] + weights.W_pos                                   # [token, pos, d_model]
    by_hand = (streams.var(-1, unbiased=False).mean(0) + model.config.layer_norm_epsilon).sqrt()
    assert torch.allclose(positions.layer_norm_scale(w.W_E, w.W_pos, model.config.layer_norm_epsilon), by_hand, atol=1e-12)


def test_positional_previous_is_what_the_forward_pass_attends_to(model):
    """A model with one token, whose embedding is zero, and no biases: layer 0 sees positions alone."""
    def still(block):
        return replace(block, b_QKV=torch.zeros_like(block.b_QKV), ln_1_bias=torch.zeros_like(block.ln_1_bias))

    weights = replace(model.weights, W_E=torch.zeros_like(model.weights.W_E),
                      blocks=tuple(still(block) for block in model.weights.blocks))
    model = replace(model, weights=weights)
    n = model.config.n_positions
    first = next(iter(layers(model, embed(model, torch.zeros(n, dtype=torch.int64)))))
    measured = [sum(float(first.kept.pattern[h, i, i - 1]) for i in range(1, n)) / (n - 1) for h in range(4)]
    table = circuits(model, previous=PREVIOUS, samples=2).heads
    assert table["positional_previous"][:4].tolist() == pytest.approx(measured, abs=1e-12)


# -- directions ------------------------------------------------------------------------------------------------------

def test_directions_by_hand():
    """5 x (reads token 2, writes token 0) + 2 x (reads token 1 or not 3, writes token 4): with the signs that belong."""
    one = torch.eye(6, dtype=torch.float64)
    W_V = torch.stack([5 * one[2], -(2 * one[1] - one[3]) * 2], dim=1)[None]         # columns: read
    W_O = torch.stack([one[0], -one[4]])[None]                                       # rows: written
    rows = leading(7, svd(product(W_V, W_O)), one, one, n_directions=3, n_tokens=1, label=str)
    assert [(r["layer"], r["head"], r["rank"]) for r in rows] == [(7, 0, 0), (7, 0, 1)]
    assert [r["singular_value"] for r in rows] == pytest.approx([5, 20**0.5], abs=1e-12)
    assert [r["share"] for r in rows] == pytest.approx([25 / 45, 20 / 45], abs=1e-12)
    assert (rows[0]["reads"], rows[0]["writes"]) == (["2"], ["0"])
    assert (rows[1]["reads"], rows[1]["writes"], rows[1]["reads_opposite"]) == (["1"], ["4"], ["3"])


def test_the_sign_is_that_of_the_token_read_most_strongly(model, found):
    """Each direction against a whole singular value decomposition and all of the vocabulary."""
    w = folded(model)
    for row in found.directions.itertuples():
        U, S, Vh = np.linalg.svd((w.W_V[row.layer, row.head] @ w.W_O[row.layer, row.head]).numpy())
        read, write = w.W_E.numpy() @ U[:, row.rank], Vh[row.rank] @ w.W_U.numpy()
        sign = np.sign(read[np.abs(read).argmax()])
        assert row.singular_value == pytest.approx(S[row.rank], abs=1e-12)
        assert row.share == pytest.approx(S[row.rank] ** 2 / (S**2).sum(), abs=1e-12)
        for name, scores in (("reads", read), ("writes", write)):
            order = np.argsort(-sign * scores)
            assert getattr(row, name) == [f"[{i}]" for i in order[:8]]
            assert getattr(row, name + "_opposite") == [f"[{i}]" for i in order[::-1][:8]]


def test_tokens_are_named_by_their_labels(demo):
    model = inspector.load("demo")
    known = {model.tokenizer.labels([i])[0] for i in range(model.config.vocab_size)}
    for column in ("reads", "writes", "reads_opposite", "writes_opposite"):
        assert demo.directions[column].map(len).eq(8).all()
        assert {label for labels in demo.directions[column] for label in labels} <= known
    assert any(label.startswith("·") for label in demo.directions["writes"].sum())


# -- the demo model --------------------------------------------------------------------------------------------------

INDUCTION = [(1, 1), (1, 2), (1, 3), (1, 4)]      # 0.81 to 0.96 on repeated ids; 1.5 reads 0.28, all else below 0.03


def test_the_demo_s_weights_name_its_previous_token_head(demo):
    best = demo.heads.sort_values("positional_previous").iloc[-1]
    assert (best["layer"], best["head"], best["positional_offset"]) == (0, 3, 1)
    assert best["positional_previous"] > 0.8
    assert demo.heads["positional_z"].idxmax() == best.name


def test_the_demo_s_induction_heads_match_and_copy_in_the_effective_embedding(demo):
    """In the raw embedding they do not stand out: the lookup and the copying run through what layer 0 makes of a token."""
    layer_1 = demo.heads[demo.heads["layer"] == 1]
    for name, level in (("ov_copying_effective", 0.9), ("qk_matching_composed_effective", 0.95)):
        assert above(layer_1[["layer", "head", name]], level) == set(INDUCTION), name
    for head in INDUCTION:
        assert at(demo.heads, head)["qk_matching_composed"] < 0.5


def test_the_demo_s_induction_heads_compose_with_its_previous_token_head_through_their_keys(demo):
    pairs = demo.pairs[(demo.pairs["layer_from"] == 0) & (demo.pairs["layer"] == 1)]
    best = pairs.sort_values("k_composition").iloc[-5:]
    through = [tuple(row) for row in best[["head_from", "head"]].to_numpy()]
    assert {(3, head) for _, head in INDUCTION} < set(through)
    for _, head in INDUCTION:
        row = at(pairs, (1, head), head_from=3)
        assert row["k_composition_high"]
        assert row["k_composition"] > 1.5 * max(row["q_composition"], row["v_composition"])
        assert row["matching_effective"] > 0.95


# -- the table -------------------------------------------------------------------------------------------------------

def test_tables_have_their_rows_and_order(found):
    assert [tuple(row) for row in found.heads[["layer", "head"]].to_numpy()] == [(a, h) for a in range(3) for h in range(4)]
    assert list(found.heads.columns[:2]) == ["layer", "head"]
    places = [tuple(row) for row in found.pairs[["layer_from", "head_from", "layer", "head"]].to_numpy()]
    assert places == [(a, g, b, h) for a in range(3) for g in range(4) for b in range(a + 1, 3) for h in range(4)]
    assert len(found.directions) == 3 * 4 * 3
    assert len(found.spectra) == 2 * 3 * 4 * 6
    assert found.baseline["kind"].tolist() == ["q", "k", "v"]
    for ratio in RATIOS:
        assert found.heads[ratio].dropna().abs().max() <= 1


def test_the_run_record_and_tables_can_be_written(model, found, tmp_path):
    run = json.loads(record.to_json(found.run))
    assert run["verb"] == "circuits"
    assert run["arguments"] == {"fold": True, "previous": PREVIOUS, "previous_measured": False, "samples": 20,
                                "n_directions": 3, "n_tokens": 8, "seed": 0}
    for name in ("heads", "pairs", "directions", "spectra", "baseline"):
        table = getattr(found, name)
        record.write_csv(table, tmp_path / f"{name}.csv")
        again = pd.read_csv(tmp_path / f"{name}.csv", keep_default_na=False)
        assert again.columns.tolist() == table.columns.tolist()
        assert len(again) == len(table)
        json.loads(record.to_json(record.rows_of(table)))
    assert repr(found) == "Circuits(12 heads, 48 pairs)"


def test_the_same_seed_gives_the_same_tables_and_leaves_the_rest_alone(model, found):
    before = {field.name: getattr(model.weights, field.name) for field in fields(model.weights)}
    copies = [b.W_QKV.clone() for b in model.weights.blocks]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    again = circuits(model, previous=torch.tensor(PREVIOUS), samples=20)
    assert torch.equal(torch.get_rng_state(), state)
    for name in ("heads", "pairs", "directions", "spectra", "baseline"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(found, name), rtol=0, atol=1e-7)
    assert all(getattr(model.weights, name) is value for name, value in before.items())
    assert all(torch.equal(b.W_QKV, c) for b, c in zip(model.weights.blocks, copies, strict=True))
    other = circuits(model, previous=PREVIOUS, samples=20, seed=1)
    assert not other.baseline["mean"].equals(found.baseline["mean"])
    pd.testing.assert_frame_equal(other.heads, found.heads)


def test_previous_is_measured_where_it_is_not_given(model):
    measured = inspector.heads(model, period=15, n_sequences=4)["previous_token"].to_numpy().reshape(3, 4)
    assert np.allclose(previous_scores(model, 0), measured, rtol=0, atol=1e-12)
    ours, given = circuits(model, samples=2), circuits(model, previous=measured, samples=2)
    pd.testing.assert_frame_equal(ours.heads, given.heads)
    assert ours.run["arguments"]["previous_measured"]
    assert np.allclose(ours.run["arguments"]["previous"], measured)


def test_float32_says_the_same_up_to_rounding(tmp_path):
    tables = [circuits(tiny(tmp_path / dtype, dtype=dtype), previous=PREVIOUS, samples=2).heads
              for dtype in ("float64", "float32")]
    pd.testing.assert_frame_equal(*tables, rtol=0, atol=1e-4)


def test_a_scale_by_layer_changes_no_ratio(tmp_path):
    plain, scaled = (circuits(tiny(tmp_path / str(switch), scale_attn_by_inverse_layer_idx=switch), previous=PREVIOUS,
                              samples=2).heads for switch in (False, True))
    effective = [name for name in plain if "effective" in name]                     # layer 0 has the same scale in both
    same = plain.columns.drop("positional_previous")
    assert effective
    pd.testing.assert_frame_equal(plain[same], scaled[same], rtol=0, atol=1e-12)
    assert not np.allclose(plain["positional_previous"][4:], scaled["positional_previous"][4:])
    assert np.allclose(plain["positional_previous"][:4], scaled["positional_previous"][:4])


@pytest.mark.parametrize("changes", [{"n_head": 1}, {"n_head": 24}, {"n_layer": 2, "n_positions": 4}, {"vocab_size": 9},
                                     {"activation_function": "relu"}, {"tie_word_embeddings": False}])
def test_every_shape_of_model(tmp_path, changes):
    model = tiny(tmp_path, **changes)
    result = circuits(model, samples=5)
    n_head, n_layer = model.config.n_head, model.config.n_layer
    assert len(result.heads) == n_layer * n_head
    assert len(result.pairs) == n_head**2 * n_layer * (n_layer - 1) // 2
    assert len(result.directions) == n_layer * n_head * min(3, model.config.d_head)
    assert result.heads["qk_symmetric"].between(0, 1).all()
    assert result.pairs[["q_composition", "k_composition", "v_composition"]].notna().all(axis=None)


def test_a_one_layer_model_has_heads_and_no_pairs(tmp_path):
    result = circuits(tiny(tmp_path, n_layer=1, n_positions=1), samples=5)
    assert len(result.heads) == 4
    assert result.pairs.empty
    assert {"layer_from", "k_composition", "k_composition_high", "matching_effective"} <= set(result.pairs.columns)
    assert result.heads["positional_offset"].isna().all()
    record.write_csv(result.pairs, tmp_path / "pairs.csv")


def test_progress_wraps_the_layers(model):
    seen = []
    circuits(model, previous=PREVIOUS, samples=2, progress=lambda steps: seen.extend(steps) or steps)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(("arguments", "words"), [
    ({"samples": 1}, "samples is 1; expected a whole number of at least 2"), ({"n_directions": 0}, "n_directions is 0"),
    ({"n_tokens": True}, "n_tokens is True"), ({"seed": -1}, "seed is -1"),
    ({"previous": [[1, 2], [3, 4]]}, r"shape \[2, 2\]"), ({"previous": "high"}, "other things than numbers"),
    ({"previous": [[float("nan")] * 4] * 3}, "12 not finite")])
def test_bad_arguments_are_named(model, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        circuits(model, **arguments)


def test_a_model_too_small_to_measure_asks_for_previous(tmp_path):
    model = tiny(tmp_path, n_positions=3)
    with pytest.raises(ArgumentError, match="give previous"):
        circuits(model, samples=2)
    assert len(circuits(model, previous=PREVIOUS, samples=2).heads) == 12
