"""Composition of pairs of heads: against whole matrices, matrices built to compose one way only, and random heads."""

import numpy as np
import pytest
import torch

from inspector.findings.circuits.composition import (
    KINDS,
    baseline,
    between,
    compositions,
    ends,
    matching_through,
    meetings,
    moved,
)
from inspector.findings.circuits.eigen import product
from inspector.findings.circuits.folding import effective_embedding, folded
from inspector.findings.circuits.table import circuits
from inspector.findings.prompts import generator_of

from .helpers import random, tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"), tie_word_embeddings=False)


@pytest.fixture(scope="module")
def found(model):
    return circuits(model, previous=[[1.0] * 4] * 3, samples=50)


def whole(w, layer, head):
    """(W_QK, W_OV) of a head, [d_model, d_model] each, as numpy."""
    return ((w.W_Q[layer, head] @ w.W_K[layer, head].T).numpy(), (w.W_V[layer, head] @ w.W_O[layer, head]).numpy())


def heads(W_Q, W_K, W_V, W_O):
    """The Ends of heads from their factors."""
    return ends(product(W_V, W_O), product(W_Q, W_K.mT))


def composed(earlier, later):
    return compositions(meetings(earlier.out, later), earlier.out, later)


def through(W_V, W_O, join, W_Q, W_K):
    """The matching of later heads through earlier ones."""
    ov, later = product(W_V, W_O), heads(W_Q, W_K, W_Q, W_Q.mT)                      # the later head's OV has no part in it
    return matching_through(meetings(ov.right, later)["k"], moved(ov, join), later)


def test_every_composition_is_that_of_the_whole_matrices(model, found):
    w, norm = folded(model), np.linalg.norm
    for row in found.pairs.itertuples():
        _, OV1 = whole(w, row.layer_from, row.head_from)
        QK2, OV2 = whole(w, row.layer, row.head)
        for kind, both, own in (("q", OV1 @ QK2, QK2), ("k", OV1 @ QK2.T, QK2), ("v", OV1 @ OV2, OV2)):
            value = norm(both) / norm(OV1) / norm(own)
            assert getattr(row, f"{kind}_composition") == pytest.approx(value, abs=1e-12)


def test_every_pair_s_matching_is_that_of_the_whole_vocabulary_matrix(model, found):
    w, E, F = folded(model), folded(model).W_E.numpy(), effective_embedding(model).numpy()
    for row in found.pairs.itertuples():
        (_, OV1), (QK2, _) = whole(w, row.layer_from, row.head_from), whole(w, row.layer, row.head)
        for ours, query, key in ((row.matching, E, E), (row.matching_effective, F, F if row.layer_from else E)):
            values = np.linalg.eigvals(query @ QK2 @ (key @ OV1).T)
            assert ours == pytest.approx(values.real.sum() / np.abs(values).sum(), abs=1e-9)


def test_heads_that_meet_in_one_way_only():
    """The first writes channel 1; the second reads it with its queries, its keys or its values, and nothing else of it."""
    one = torch.eye(6, dtype=torch.float64)

    def head(q, k, v, o):
        return heads(*(one[i].view(1, 6, 1) for i in (q, k, v)), one[o].view(1, 1, 6))

    first = head(5, 5, 0, 1)
    for kind, second in (("q", head(1, 2, 3, 4)), ("k", head(2, 1, 3, 4)), ("v", head(2, 3, 1, 4))):
        found = composed(first, second)
        assert {name: float(value) for name, value in found.items()} == {name: float(name == kind) for name in KINDS}
    # Order matters: the second's output is not what the first reads.
    assert float(composed(head(2, 1, 3, 4), first)["k"]) == 0


def test_half_of_what_is_written_being_read():
    """Writes channels 0 and 1 alike, the other reads 1 and 2 alike: ||AB|| / (||A|| ||B||) = 1 / 2."""
    one = torch.eye(6, dtype=torch.float64)
    W_V, W_O = one[:, 4:6][None], one[0:2][None]                                     # two channels
    second = heads(one[:, 4:6][None], one[:, 1:3][None], one[:, 4:6][None], one[2:4][None])
    found = composed(heads(W_V, W_V, W_V, W_O), second)
    assert float(found["k"]) == pytest.approx(0.5, abs=1e-15)
    assert float(found["q"]) == 0


def test_between_is_every_product():
    out, reading = random(3, 2, 7), random(4, 7, 5, seed=1)
    found = between(out, reading)
    assert found.shape == (3, 4, 2, 5)
    for f in range(3):
        for t in range(4):
            assert torch.allclose(found[f, t], out[f] @ reading[t], atol=1e-14)


def test_matching_through_a_head_that_moves_tokens():
    """W_OV carries 3 tokens to 3 other channels, W_QK compares queries' tokens with these: 1; with the wrong ones: 0."""
    one = torch.eye(7, dtype=torch.float64)
    tokens, places = one[:, :3], one[:, 3:6]
    gram = torch.diag(torch.tensor([1.0, 1, 1, 0, 0, 0, 0], dtype=torch.float64))    # of W_E = the first three channels
    shifted = places.roll(1, dims=1)                                                 # token 0 is sought where 1 was put
    W_K = torch.stack([places, shifted, -places])
    found = through(tokens[None], places.T[None], gram, tokens.expand(3, 7, 3), W_K)
    assert found.tolist() == [pytest.approx([1, 0, -1], abs=1e-12)]
    assert through(tokens[None], places.T[None], gram, tokens[None], tokens[None]).isnan().all()


# -- against random heads --------------------------------------------------------------------------------------------

def test_random_heads_of_gpt2_small_s_shapes():
    """Published: 0.0361, spread 0.0004; 1 / sqrt(768) = 0.0361."""
    table = baseline(768, 64, 200, generator_of(0))
    assert table["kind"].tolist() == list(KINDS)
    assert table["samples"].tolist() == [200] * 3
    for row in table.itertuples():
        assert row.mean == pytest.approx(768**-0.5, abs=0.0001)
        assert row.spread == pytest.approx(0.0004, abs=0.0001)
        assert row.mean + 1.5 * row.spread < row.p99 < row.mean + 4 * row.spread


def test_pairs_that_share_heads_are_as_good_as_pairs_that_do_not():
    """The baseline's few heads against whole matrices of new heads for each pair."""
    d, e, n = 24, 4, 400
    shared = baseline(d, e, n, generator_of(0))
    rng = np.random.default_rng(0)
    apart = []
    for _ in range(n):
        first, second = rng.standard_normal((2, 2, d, e))
        OV, QK = first[0] @ first[1].T, second[0] @ second[1].T
        apart.append(np.linalg.norm(OV @ QK.T) / np.linalg.norm(OV) / np.linalg.norm(QK))
    for row in shared.itertuples():
        assert row.mean == pytest.approx(np.mean(apart), abs=4 * np.std(apart) * (2 / n) ** 0.5)
        assert row.spread == pytest.approx(np.std(apart), rel=0.25)
        assert row.p99 == pytest.approx(np.quantile(apart, 0.99), abs=np.std(apart))


def test_excess_and_high_are_against_the_baseline(found):
    level = found.baseline.set_index("kind")
    for kind in KINDS:
        value = found.pairs[f"{kind}_composition"]
        assert np.allclose(found.pairs[f"{kind}_composition_excess"], value - level["mean"][kind], rtol=0, atol=1e-15)
        assert (found.pairs[f"{kind}_composition_high"] == (value > level["p99"][kind])).all()


def test_a_random_model_composes_like_random_heads(tmp_path):
    """216 pairs of a random model, as it stands: about 1 % pass the 99th percentile, and the mean excess is 0."""
    model = tiny(tmp_path, n_layer=4, n_embd=48, n_head=6)
    pairs = circuits(model, fold=False, previous=[[1.0] * 6] * 4, samples=2000).pairs
    high = pairs[[f"{kind}_composition_high" for kind in KINDS]].to_numpy()
    assert high.size == 3 * 216
    assert high.mean() < 0.04
    for kind in KINDS:
        excess = pairs[f"{kind}_composition_excess"]
        assert abs(excess.mean()) < 4 * excess.std() / len(excess) ** 0.5 + 1e-4
