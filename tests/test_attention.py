"""The pure functions of one layer: the worked examples of teaching texts, and what a mask and positions do."""

import math

import pytest
import torch

from inspector.model.attention import (
    attention,
    attention_output,
    attention_scores,
    head_outputs,
    mask_future,
    merge_heads,
    mix,
    project,
    softmax,
    split_heads,
)

from .helpers import random


def test_worked_example_scores_to_output():
    """scores 2, 1, 0 -> 0.665, 0.245, 0.090; with values (10,0), (0,10), (4,4) -> (7.01, 2.81)."""
    e = math.e
    weights = softmax(torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64))
    expected = torch.tensor([[e * e, e, 1.0]], dtype=torch.float64) / (e * e + e + 1)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-15)
    assert [round(w, 3) for w in weights[0].tolist()] == [0.665, 0.245, 0.090]
    out = mix(weights, torch.tensor([[10.0, 0], [0, 10], [4, 4]], dtype=torch.float64))
    assert [round(x, 2) for x in out[0].tolist()] == [7.01, 2.81]


@pytest.mark.parametrize(("scale", "weights", "output"), [
    (1.0, [0.090, 0.665, 0.245], [0.335, 0.910]),
    (2**-0.5, [0.140, 0.576, 0.284], None),
])
def test_worked_example_query_and_keys(scale, weights, output):
    """q (1,0), K (0,0), (2,0), (1,1), V (1,0), (0,1), (1,1): the attention function as a whole, unmasked."""
    q = torch.tensor([[[1.0, 0]]], dtype=torch.float64)
    k = torch.tensor([[[0.0, 0], [2, 0], [1, 1]]], dtype=torch.float64)
    v = torch.tensor([[[1.0, 0], [0, 1], [1, 1]]], dtype=torch.float64)
    _, pattern, z = attention(q, k, v, scale, causal=False)
    assert [round(w, 3) for w in pattern[0, 0].tolist()] == weights
    if output:
        assert [round(x, 3) for x in z[0, 0].tolist()] == output
    # The same row as the last of a masked text: there the mask hides nothing.
    _, masked, _ = attention(q.expand(1, 3, 2), k, v, scale)
    torch.testing.assert_close(masked[0, 2], pattern[0, 0], rtol=0, atol=1e-15)


def test_twelve_heads_of_five_tokens():
    """12 heads of 5 tokens from width 768: q, k, v (12, 5, 64), scores and pattern (12, 5, 5), z (12, 5, 64)."""
    x, weight, bias = random(5, 768), random(768, 3 * 768, seed=1), random(3 * 768, seed=2)
    q, k, v = project(x, weight, bias, 36).tensor_split(3)
    assert q.shape == k.shape == v.shape == (12, 5, 64)
    scores, pattern, z = attention(q, k, v, 64**-0.5)
    assert scores.shape == pattern.shape == (12, 5, 5)
    assert z.shape == (12, 5, 64)
    # Head h, position p by hand: columns h*64.. of X @ W.
    by_hand = (x @ weight + bias)[3, 7 * 64:8 * 64]
    torch.testing.assert_close(q[7, 3], by_hand)


def test_rows_sum_to_one_and_the_future_is_exactly_zero():
    q, k, v = (random(3, 9, 4, seed=s) * 10 for s in range(3))
    scores, pattern, _ = attention(q, k, v, 0.5)
    future = torch.ones(9, 9, dtype=torch.bool).triu(1)
    assert (pattern[:, future] == 0).all()
    assert (scores[:, future] == float("-inf")).all()
    torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 9, dtype=torch.float64), rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.softmax(scores, -1), pattern, rtol=0, atol=1e-15)


def test_the_mask_holds_at_any_score():
    """A finite mask value would leak here: future scores are 1e6 above the past."""
    scores = torch.full((1, 4, 4), -1e6, dtype=torch.float64)
    scores[0, 0, 1:] = 1e6
    pattern = softmax(mask_future(scores))
    assert pattern[0, 0].tolist() == [1, 0, 0, 0]


def test_a_block_of_rows_is_masked_at_its_own_place():
    scores = random(2, 9, 9)
    torch.testing.assert_close(mask_future(scores[:, 4:7, :7], first_query=4), mask_future(scores)[:, 4:7, :7])


def test_without_mask_reversing_the_input_reverses_the_output():
    q, k, v = (random(3, 8, 4, seed=s) for s in range(3))
    flip = [x.flip(-2) for x in (q, k, v)]
    torch.testing.assert_close(attention(*flip, 0.5, causal=False)[2], attention(q, k, v, 0.5, causal=False)[2].flip(-2),
                               rtol=0, atol=1e-14)


def test_with_the_mask_order_leaks():
    """The mask alone tells first from last: without positions, reversed input no longer gives reversed output."""
    q, k, v = (random(3, 8, 4, seed=s) for s in range(3))
    flip = [x.flip(-2) for x in (q, k, v)]
    difference = attention(*flip, 0.5)[2] - attention(q, k, v, 0.5)[2].flip(-2)
    assert difference.abs().max() > 0.1


def test_heads_split_and_merge():
    x = random(2, 5, 12)
    torch.testing.assert_close(merge_heads(split_heads(x, 3)), x)
    torch.testing.assert_close(split_heads(x, 3)[1, 2, 4], x[1, 4, 8:12])


def test_head_outputs_add_up_to_the_layer_without_its_bias():
    """The output bias belongs to no head: the heads' outputs plus b_O, once, are the layer's."""
    z, W_O, b_O = random(3, 5, 4), random(3, 4, 7, seed=1), random(7, seed=2)
    torch.testing.assert_close(head_outputs(z, W_O).sum(0) + b_O, attention_output(z, W_O, b_O), rtol=0, atol=1e-14)


def test_scores_leave_their_inputs_alone():
    q, k = random(2, 4, 3), random(2, 4, 3, seed=1)
    before = q.clone(), k.clone()
    attention_scores(q, k, 0.3)
    assert torch.equal(q, before[0])
    assert torch.equal(k, before[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_are_summed_in_float32(dtype):
    """600 equal scores: in half precision 1/600 would round and the row would not sum to 1."""
    pattern = softmax(torch.zeros(1, 1, 600, dtype=dtype))
    assert pattern.dtype == torch.float32
    assert abs(float(pattern.sum()) - 1) < 1e-6
