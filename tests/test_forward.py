"""The forward pass: prefixes, batches, positions, the three doors (edits, kernels, start) and what it refuses."""

import pytest
import torch

import inspector
from inspector.errors import ArgumentError, TextError
from inspector.model.attention import attention_output, layer_norm
from inspector.model.forward import embed, layers, losses, mlp, unembed
from inspector.model.kernels import Edit, grid, scan

from .helpers import random, some_ids, tiny

FIELDS = ("resid_pre", "q", "k", "v", "z", "resid_mid", "resid_post")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"))


def run(model, ids, **options):
    return list(layers(model, embed(model, ids), **options))


def test_a_prefix_gives_the_first_rows_of_everything(model):
    ids = some_ids(model, 20)
    whole = inspector.trace(model, ids=ids)
    for k in (1, 2, 13, 19):
        part = inspector.trace(model, ids=ids[:k])
        for name in ("q", "k", "v", "z", "resid_pre", "resid_mid", "resid_post"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name)[..., :k, :], rtol=0, atol=1e-12)
        torch.testing.assert_close(part.logits, whole.logits[:k], rtol=0, atol=1e-12)
        for name in ("scores", "pattern"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name)[..., :k, :k], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_texts_of_unequal_length_in_one_batch_give_what_each_gives_alone(tmp_path, dtype):
    model = tiny(tmp_path, dtype=dtype)
    texts = [some_ids(model, n, seed=n) for n in (31, 1, 17, 30)]
    padded = torch.stack([torch.cat([t, t.new_full((31 - len(t),), 3)]) for t in texts])
    together = run(model, padded)
    logits = unembed(model, together[-1].resid_post)
    for row, text in enumerate(texts):
        alone, n = run(model, text), len(text)
        pairs = [(getattr(a, f), getattr(b, f)[row][..., :n, :], f)
                 for a, b in zip(alone, together, strict=True) for f in FIELDS]
        pairs += [(a.kept.pattern, b.kept.pattern[row][..., :n, :n], "pattern")
                  for a, b in zip(alone, together, strict=True)]
        pairs.append((unembed(model, alone[-1].resid_post), logits[row, :n], "logits"))
        reach = 1 + max(float(a.kept.scores.tril().abs().max()) for a in alone)
        for one, batched, name in pairs:
            if dtype == "float64":
                bound = 1e-10 * one.abs().max()
            elif name == "pattern":
                bound = 1e-6 * reach
            else:
                bound = 1e-5 * one.double().square().mean(-1, keepdim=True).sqrt()
            assert ((one - batched).abs() <= bound).all(), name


def test_one_token_and_the_whole_context_work(model):
    one = inspector.trace(model, ids=[5])
    assert one.pattern.flatten().tolist() == [1.0] * 12
    assert inspector.trace(model, ids=some_ids(model, 31)).logits.shape == (31, 97)


def test_one_token_more_than_the_context_is_an_error_that_counts(model):
    with pytest.raises(TextError, match=r"32 tokens.* 31"):
        inspector.trace(model, ids=some_ids(model, 32))


@pytest.mark.parametrize("ids", [[], [97], [-1], [3, 500]])
def test_ids_that_cannot_be_embedded_are_refused(model, ids):
    with pytest.raises(TextError, match="empty" if not ids else str(ids[-1])):
        embed(model, torch.tensor(ids, dtype=torch.int64))


def test_with_positions_reversing_breaks(model):
    """Attention alone commutes with reversal; embeddings with positions do not."""
    ids = some_ids(model, 12)
    no_positions = embed(model, ids) - model.weights.W_pos[:12]
    block = model.weights.blocks[0]

    def unmasked(resid):
        x = layer_norm(resid, block.ln_1_weight, block.ln_1_bias, 2e-3)
        q, k, v = (torch.einsum("pd,hde->hpe", x, W) + b[:, None]
                   for W, b in ((block.W_Q, block.b_Q), (block.W_K, block.b_K), (block.W_V, block.b_V)))
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    torch.testing.assert_close(unmasked(no_positions.flip(0)), unmasked(no_positions).flip(-2), rtol=0, atol=1e-12)
    with_positions = embed(model, ids.flip(0))
    assert (unmasked(with_positions) - unmasked(embed(model, ids)).flip(-2)).abs().max() > 0.1


def test_the_residual_stream_adds_up(model):
    """resid_mid = resid_pre + heads + b_O; resid_post = resid_mid + MLP; the next layer reads it."""
    ids = some_ids(model, 15)
    run_ = run(model, ids)
    for layer, block in zip(run_, model.weights.blocks, strict=True):
        torch.testing.assert_close(layer.resid_mid, layer.resid_pre + attention_output(layer.z, block.W_O, block.b_O))
        y = layer_norm(layer.resid_mid, block.ln_2_weight, block.ln_2_bias, 2e-3)
        torch.testing.assert_close(layer.resid_post, layer.resid_mid + mlp(y, block, "gelu_new"))
    assert torch.equal(run_[1].resid_pre, run_[0].resid_post)


# -- doors: kernels --------------------------------------------------------------------------------------------------

def rows_and_sums(pattern, first_query):
    return {"row": torch.nn.functional.pad(pattern, (0, 40 - pattern.shape[-1])), "peak": pattern.amax(-1)}


@pytest.mark.parametrize("block", [1, 4, 7, 31, 100])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_scan_and_grid_agree(model, block, batch):
    ids = torch.stack([some_ids(model, 23, seed=s) for s in range(3)]) if batch else some_ids(model, 23)
    grids, scans = run(model, ids), run(model, ids, kernel=scan(rows_and_sums, block))
    for a, b in zip(grids, scans, strict=True):
        torch.testing.assert_close(b.z, a.z, rtol=0, atol=1e-13)
        torch.testing.assert_close(b.kept["row"][..., :23], a.kept.pattern, rtol=0, atol=1e-13)
        torch.testing.assert_close(b.kept["peak"], a.kept.pattern.amax(-1), rtol=0, atol=1e-13)
        torch.testing.assert_close(b.resid_post, a.resid_post, rtol=0, atol=1e-12)


def test_scan_refuses_a_block_of_no_rows():
    with pytest.raises(ArgumentError, match="block is 0"):
        scan(rows_and_sums, 0)


def test_an_unfinished_pass_ends_at_the_last_pattern(model):
    ids = some_ids(model, 9)
    full, cut = run(model, ids), run(model, ids, finish=False)
    torch.testing.assert_close(cut[-1].kept.pattern, full[-1].kept.pattern, rtol=0, atol=1e-14)
    assert cut[-1].v is None
    assert cut[-1].resid_post is None
    assert torch.equal(cut[0].resid_post, full[0].resid_post)


# -- doors: start ----------------------------------------------------------------------------------------------------

def test_a_pass_can_start_from_any_layer(model):
    ids = some_ids(model, 14)
    whole = run(model, ids)
    for start in range(3):
        later = list(layers(model, whole[start].resid_pre, start=start))
        assert [layer.index for layer in later] == list(range(start, 3))
        assert torch.equal(later[-1].resid_post, whole[-1].resid_post)
    assert [layer.index for layer in layers(model, whole[0].resid_pre, stop=2)] == [0, 1]


@pytest.mark.parametrize("span", [{"start": 4}, {"start": 2, "stop": 1}, {"stop": 9}, {"start": -1}])
def test_layers_that_do_not_exist_are_refused(model, span):
    with pytest.raises(ArgumentError, match="layers 0 to 2"):
        run(model, some_ids(model, 4), **span)


# -- doors: edits ----------------------------------------------------------------------------------------------------

def test_an_edit_that_changes_nothing_changes_nothing(model):
    ids = some_ids(model, 14)
    clean = run(model, ids)
    same = Edit(sharpness=torch.ones(4), pattern=clean[1].kept.pattern, keep=torch.ones(4), fill=random(4, 14, 6))
    for a, b in zip(clean, run(model, ids, edits={1: same}), strict=True):
        torch.testing.assert_close(b.resid_post, a.resid_post, rtol=0, atol=1e-12)


def test_sharpness_zero_is_uniform_and_large_takes_the_maximum(model):
    ids = some_ids(model, 14)
    clean = run(model, ids)[1]
    for kernel in (grid, scan(rows_and_sums, 5)):
        edited = run(model, ids, kernel=kernel, edits={1: Edit(sharpness=torch.tensor([0.0, 1.0, 2.0, 1e6]))})[1]
        pattern = edited.kept.pattern if kernel is grid else edited.kept["row"][..., :14]
        even = torch.ones(14, 14, dtype=torch.float64).tril() / torch.arange(1, 15)[:, None]
        torch.testing.assert_close(pattern[0], even, rtol=0, atol=1e-14)
        torch.testing.assert_close(pattern[1], clean.kept.pattern[1], rtol=0, atol=1e-14)
        # softmax(2 s) = p^2 / sum p^2
        squared = clean.kept.pattern[2] ** 2
        torch.testing.assert_close(pattern[2], squared / squared.sum(-1, keepdim=True), rtol=0, atol=1e-12)
        assert torch.equal(pattern[3].argmax(-1), clean.kept.pattern[3].argmax(-1))
        assert pattern[3].amax(-1).min() > 0.999


@pytest.mark.parametrize("fill", [None, "mean"])
def test_a_cut_head_says_its_fill_and_nothing_else(model, fill):
    """resid_mid moves by exactly (fill - z) @ W_O of the cut heads; the others stand."""
    ids = some_ids(model, 14)
    said = random(4, 14, 6) if fill else None
    for kernel in (grid, scan(rows_and_sums, 5)):
        clean = run(model, ids, kernel=kernel)
        edited = run(model, ids, kernel=kernel, edits={1: Edit(keep=torch.tensor([1.0, 0, 1, 0]), fill=said)})
        moved = torch.zeros_like(clean[1].z)
        moved[[1, 3]] = (said[[1, 3]] if fill else 0) - clean[1].z[[1, 3]]
        by_hand = clean[1].resid_mid + torch.einsum("hpe,hed->pd", moved, model.weights.blocks[1].W_O)
        torch.testing.assert_close(edited[1].resid_mid, by_hand, rtol=0, atol=1e-12)
        assert torch.equal(edited[0].resid_post, clean[0].resid_post)
        assert (edited[2].z - clean[2].z).abs().max() > 1e-3


def test_all_single_cuts_of_a_layer_in_one_batch_equal_one_by_one(model):
    ids = some_ids(model, 14)
    clean = run(model, ids)
    start = clean[1].resid_pre.expand(4, -1, -1)
    together = list(layers(model, start, start=1, edits={1: Edit(keep=1 - torch.eye(4, dtype=torch.float64))}))
    for head in range(4):
        keep = torch.ones(4)
        keep[head] = 0
        alone = run(model, ids, edits={1: Edit(keep=keep)})
        torch.testing.assert_close(together[-1].resid_post[head], alone[-1].resid_post, rtol=0, atol=1e-12)


def test_frozen_patterns_keep_the_later_heads_looking_where_they_did(model):
    ids = some_ids(model, 14)
    clean = run(model, ids)
    edits = {0: Edit(keep=torch.zeros(4)), 1: Edit(pattern=clean[1].kept.pattern), 2: Edit(pattern=clean[2].kept.pattern)}
    frozen, free = run(model, ids, edits=edits), run(model, ids, edits={0: Edit(keep=torch.zeros(4))})
    assert torch.equal(frozen[2].kept.pattern, clean[2].kept.pattern)
    assert (free[2].kept.pattern - clean[2].kept.pattern).abs().max() > 0.01
    torch.testing.assert_close(frozen[2].z, clean[2].kept.pattern @ frozen[2].v, rtol=0, atol=1e-13)


def test_an_infinite_head_can_be_cut(model):
    """0 * inf would be NaN: a cut head leaves nothing behind."""
    z = torch.full((4, 3, 6), float("inf"), dtype=torch.float64)
    from inspector.model.kernels import cut_heads
    assert torch.equal(cut_heads(z, Edit(keep=torch.zeros(4))), torch.zeros(4, 3, 6, dtype=torch.float64))


def test_edits_that_would_do_nothing_are_refused(model):
    ids = some_ids(model, 4)
    with pytest.raises(ArgumentError, match=r"\[5\]"):
        run(model, ids, edits={5: Edit(keep=torch.zeros(4))})
    with pytest.raises(ArgumentError, match="fill but no keep"):
        run(model, ids, edits={1: Edit(fill=torch.zeros(4, 4, 6))})


# -- outputs ---------------------------------------------------------------------------------------------------------

def test_losses_are_the_log_probability_of_the_next_id():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 1.0, float("-inf")], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    found = losses(logits, torch.tensor([3, 2, 1]))
    expected = torch.tensor([4.0, 0]).double()
    expected = torch.stack([expected[0].log(), -(torch.tensor(2.0).double().exp() / (1 + torch.tensor(2.0).double().exp()
                                                 + torch.tensor(1.0).double().exp())).log()])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_nothing_in_a_trace_is_shared_or_changed_by_a_second_run(model):
    ids = some_ids(model, 9)
    first = inspector.trace(model, ids=ids)
    copy = first.pattern.clone()
    inspector.trace(model, ids=ids.flip(0))
    assert torch.equal(first.pattern, copy)


def test_the_global_generator_is_untouched(model):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    inspector.heads(model, period=8)
    inspector.trace(model, ids=[1, 2])
    assert torch.equal(torch.get_rng_state(), before)
