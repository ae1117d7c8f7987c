"""What a weight brings: norms and shares by hand, by the full tensor, on planted heads, and in the table."""

import pytest
import torch

import inspector
from inspector.demo.planted import PLANTED
from inspector.errors import ArgumentError
from inspector.findings.values import additive_shares, value_table, value_weighted
from inspector.model.tracing import attention_table, trace

from .helpers import random, some_ids, tiny


def written(pattern, v, W_O):
    """The long way: what every key adds to every query, [head, query, key, d_model]."""
    return torch.einsum("...hij,...hje,hed->...hijd", pattern, v, W_O)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def traced(model):
    return trace(model, ids=some_ids(model, 13))


@pytest.fixture(scope="module")
def W_O(model):
    return [block.W_O for block in model.weights.blocks]


HALVES = torch.tensor([[[1, 0], [0.5, 0.5]]], dtype=torch.float64)


def test_norms_by_hand():
    v = torch.tensor([[[3, 4], [0, 2]]], dtype=torch.float64)
    W_O = torch.tensor([[[1, 0, 0], [0, 0, 2]]], dtype=torch.float64)      # (3, 4) writes (3, 0, 8), (0, 2) (0, 0, 4)
    assert value_weighted(HALVES, v, W_O)[0, 1].tolist() == pytest.approx([73**0.5 / 2, 2], abs=1e-15)
    assert value_weighted(HALVES, v, W_O, values=True)[0].tolist() == [[5, 0], [2.5, 1]]


def test_shares_by_hand():
    """Keys that write 3 and -1 along one line have shares 3/2 and -1/2, whatever their norms add up to."""
    v = torch.tensor([[[3], [-1]]], dtype=torch.float64)
    W_O = torch.tensor([[[0, 5, 0]]], dtype=torch.float64)
    assert additive_shares(HALVES, v, W_O)[0].tolist() == [[1, 0], [1.5, -0.5]]


def test_norms_and_shares_are_those_of_the_full_tensor(traced, W_O):
    for pattern, v, out in zip(traced.pattern, traced.v, W_O, strict=True):
        each = written(pattern, v, out)
        together = each.sum(-2)                                                # o_i
        shares = (each * together[..., None, :]).sum(-1) / together.square().sum(-1)[..., None]
        torch.testing.assert_close(value_weighted(pattern, v, out), each.norm(dim=-1), rtol=0, atol=1e-12)
        torch.testing.assert_close(additive_shares(pattern, v, out), shares, rtol=0, atol=1e-11)
        torch.testing.assert_close(value_weighted(pattern, v, out, values=True),
                                   (pattern[..., None] * v[:, None]).norm(dim=-1), rtol=0, atol=1e-12)


def test_shares_sum_to_one_and_nothing_stands_above_the_diagonal(traced, W_O):
    for pattern, v, out in zip(traced.pattern, traced.v, W_O, strict=True):
        shares, weighted = additive_shares(pattern, v, out), value_weighted(pattern, v, out)
        torch.testing.assert_close(shares.sum(-1), torch.ones(shares.shape[:2], dtype=torch.float64), rtol=0, atol=1e-12)
        assert (shares < 0).any()                                              # some key pulls the other way
        assert bool((shares.triu(1) == 0).all())
        assert bool((weighted.triu(1) == 0).all())


def test_norms_do_not_add(traced, W_O):
    """Why the shares exist: a row's norms sum to more than the norm of what the head writes."""
    written_norm = (traced.z[1] @ W_O[1]).norm(dim=-1)
    assert bool((value_weighted(traced.pattern[1], traced.v[1], W_O[1]).sum(-1)[:, 1:] > written_norm[:, 1:]).all())


def test_the_value_s_bias_counts(model, traced, W_O):
    without = value_weighted(traced.pattern[0], traced.v[0] - model.weights.blocks[0].b_V[:, None], W_O[0])
    assert (without - value_weighted(traced.pattern[0], traced.v[0], W_O[0])).abs().max() > 0.1


def test_a_head_that_writes_nothing_has_no_shares():
    pattern, v = HALVES, random(1, 2, 3)
    silent = additive_shares(pattern, v, torch.zeros(1, 3, 4, dtype=torch.float64))
    assert silent[0, 0, 0].isnan()
    assert silent[0, 1].isnan().all()
    assert silent[0, 0, 1] == 0                                                # no weight, so no share


def test_batches_and_patterns_of_other_models(traced, W_O):
    """Leading axes, and a pattern that looks both ways: as each alone."""
    both_ways = torch.softmax(random(2, 4, 13, 13, seed=3), -1)
    v = random(2, 4, 13, 6, seed=4)
    for measure in (value_weighted, additive_shares):
        batch = measure(both_ways, v, W_O[0])
        for n in range(2):
            torch.testing.assert_close(batch[n], measure(both_ways[n], v[n], W_O[0]), rtol=0, atol=1e-13)
    assert bool((additive_shares(both_ways, v, W_O[0]).sum(-1) - 1).abs().max() < 1e-12)
    assert additive_shares(both_ways, v, W_O[0])[..., 0, 5].abs().min() > 0


def test_the_dtype_is_the_pattern_s_and_shares_stay_exact(traced, W_O):
    pattern, v, out = traced.pattern[0].float(), traced.v[0].bfloat16(), W_O[0].bfloat16()
    assert value_weighted(pattern, v, out).dtype == torch.float32
    shares = additive_shares(pattern, v, out)
    assert shares.dtype == torch.float64
    torch.testing.assert_close(shares.sum(-1), torch.ones(4, 13, dtype=torch.float64), rtol=0, atol=1e-11)


def test_shapes_that_do_not_fit_are_refused(traced, W_O):
    pattern, v = traced.pattern[0], traced.v[0]
    for wrong in ((pattern[0], v, W_O[0]), (pattern, v[:, :-1], W_O[0]), (pattern, v, W_O[0][:, :-1]),
                  (pattern, v, W_O[0][:-1])):
        for measure in (value_weighted, additive_shares):
            with pytest.raises(ArgumentError, match="do not fit"):
                measure(*wrong)


def test_the_planted_induction_head_s_share_is_the_follower_s():
    """Its weight is all on the follower, and so is its share; a noise head spreads both."""
    model = inspector.load("planted", dtype="float64")
    traced = trace(model, "abcdefgabcdefg")
    layer, head = PLANTED["induction"]
    shares = additive_shares(traced.pattern[layer], traced.v[layer], model.weights.blocks[layer].W_O)
    followers = [shares[head, i, i - 6] for i in range(7, 14)]
    assert min(followers) == pytest.approx(1, abs=1e-9)
    assert max(shares[1, i, i - 6] for i in range(7, 14)) < 0.5


def test_the_table_has_every_cell_once(traced, W_O):
    table = value_table(traced.pattern, traced.v, W_O)
    assert list(table.columns) == ["layer", "head", "query", "key", "weight", "value_weighted", "share"]
    assert table[["layer", "head", "query", "key", "weight"]].equals(attention_table(traced.pattern))
    row = table[(table["layer"] == 2) & (table["head"] == 3) & (table["query"] == 11) & (table["key"] == 4)].iloc[0]
    assert row["value_weighted"] == value_weighted(traced.pattern[2], traced.v[2], W_O[2])[3, 11, 4]
    assert row["share"] == additive_shares(traced.pattern[2], traced.v[2], W_O[2])[3, 11, 4]
    sums = table.groupby(["layer", "head", "query"])["share"].sum()
    assert len(sums) == 3 * 4 * 13
    assert sums.to_numpy() == pytest.approx(1, abs=1e-11)


def test_the_table_writes_float32_shortly(traced, W_O):
    """A float32 cell reads back as the same float32, and no row has a double's 17 digits."""
    pattern, v, out = traced.pattern.float(), traced.v.float(), [each.float() for each in W_O]
    table = value_table(pattern, v, out)
    assert table[["weight", "value_weighted", "share"]].map(lambda x: len(repr(x))).max().max() <= 16
    expected = torch.stack([value_weighted(*layer) for layer in zip(pattern, v, out, strict=True)])
    rows = table[["layer", "head", "query", "key"]].to_numpy().T
    assert torch.equal(torch.tensor(table["value_weighted"].to_numpy()).float(), expected[tuple(torch.tensor(rows))])


def test_layers_that_do_not_pair_up_are_refused(traced, W_O):
    with pytest.raises(ArgumentError, match="layers"):
        value_table(traced.pattern, traced.v, W_O[:2])
