"""What the explorer stores: known answers of packing, every stored number against the library's, and what is refused."""

import base64
import json
import math
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch

import inspector
from inspector.errors import ArgumentError
from inspector.findings.values import value_weighted
from inspector.model.attention import softmax
from inspector.model.tracing import attention_table
from inspector.pages.explorer import bundle, packing, page

from . import browser, models
from .helpers import some_ids, tiny

NASTY = ["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028", "&amp;", "</title>", "'\"`", "🙂[1/2]",
         "ابجد", "\\u003c"]


def unpacked(text, dtype):
    """The numbers of a packed text, the long way round."""
    raw, size = zlib.decompress(base64.b64decode(text)), np.dtype(dtype).itemsize
    planes = np.frombuffer(raw, np.uint8).reshape(size, -1)
    return np.frombuffer(planes.T.tobytes(), dtype)


def weights(scores):
    """Row weights of an array of scores, masked ones -inf."""
    return softmax(torch.from_numpy(scores)).numpy()


def lower(grid):
    """The cells at or below the diagonal, row by row, in float64."""
    grid = torch.as_tensor(grid).double().tolist()
    return np.array([cell for i, row in enumerate(grid) for cell in row[:i + 1]])


def squared(triangle, n):
    """A triangle as rows [query, key], -inf above the diagonal."""
    grid = np.full((n, n), -np.inf)
    grid[np.tril_indices(n)] = triangle
    return grid


def made(model, n, **options):
    """(trace, what is stored of its text) of n drawn ids."""
    trace = inspector.trace(model, ids=some_ids(model, n))
    table = inspector.heads(model, ids=trace.ids.tolist())
    return trace, bundle.text_parts(trace, table, **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("explorer") / "model", dtype="float32")


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    """Room for more tokens than triangles are stored of."""
    return tiny(tmp_path_factory.mktemp("explorer") / "long", dtype="float32", n_positions=300)


# -- packing ---------------------------------------------------------------------------------------------------------

def test_the_bytes_of_a_rank_stand_side_by_side():
    assert zlib.decompress(base64.b64decode(packing.packed(np.array([1, 0x0302], "<u2")))) == bytes([1, 2, 0, 3])


@pytest.mark.parametrize("dtype", ["u1", "<f2", "<f4", "<f8"])
@pytest.mark.parametrize("n", [0, 1, 7, 100_000])
def test_packed_numbers_come_back_bit_for_bit(dtype, n):
    values = np.random.default_rng(n).integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    assert unpacked(packing.packed(values), dtype).tobytes() == values.tobytes()


def test_a_grid_is_packed_row_by_row():
    assert unpacked(packing.packed(np.arange(6, dtype=np.uint8).reshape(2, 3).T), "u1").tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize(("largest", "unit"), [(1.0, 2.0**-9), (0.999, 2.0**-10), (1000.0, 1.0), (1024.0, 2.0), (0.0, 1.0)])
def test_the_unit_brings_the_largest_number_to_512_or_more(largest, unit):
    assert packing.unit_of(np.array([0.0, -largest])) == unit
    assert largest == 0 or 512 <= largest / unit < 1024


@pytest.mark.parametrize("largest", [1e-300, 1e-20, 0.3, 65504.0, 1e6, 1e38, 1e300])
def test_halves_are_within_their_rounding_of_any_size_of_numbers(largest):
    values = largest * np.concatenate([[1.0, -1.0, 0.0], np.random.default_rng(0).uniform(-1, 1, 10_000),
                                       np.geomspace(1e-9, 1, 1000)])
    half, unit = packing.halves(values)
    off, small = np.abs(half.astype(np.float64) * unit - values), np.abs(values) < 2.0**-23 * largest
    assert half.dtype == np.float16
    assert np.isfinite(half).all()
    assert small.any()
    assert (off[~small] <= packing.ROUNDING * np.abs(values[~small])).all()
    assert (off[small] <= 2.0**-23 * packing.ROUNDING * largest).all()


def test_the_smallest_double_has_a_unit_too():
    half, unit = packing.halves(np.array([5e-324, 0.0]))
    assert unit > 0
    assert half.tolist() == [0, 0]


# -- a head's logarithms ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_triangle_is_the_scores_below_the_largest_of_their_row(tmp_path, dtype):
    trace, stored = made(tiny(tmp_path, dtype=dtype), 12, moves=[])
    scores = trace.scores.double().numpy()
    tops = unpacked(stored["tops"], "<f4").reshape(3, 4, 12)
    assert stored["kind"] == "log"
    for layer in range(3):
        for head in range(4):
            behind = scores[layer, head] - scores[layer, head].max(-1, keepdims=True)
            assert stored["heads"][f"{layer}.{head}"].keys() == {"log"}
            found = unpacked(stored["heads"][f"{layer}.{head}"]["log"], "<f2")
            assert found.tolist() == lower(behind).astype(np.float16).tolist()
            assert tops[layer, head].tolist() == scores[layer, head].max(-1).astype(np.float32).tolist()


def off_by(rows, betas):
    """The largest error of a weight of rows s [row, key] <= 0, once s is stored in half precision, over sharpnesses."""
    half = rows.clip(packing.LOWEST, 0).astype(np.float16).astype(np.float64)
    return max(np.abs(weights(beta * half) - weights(beta * rows)).max() for beta in betas)


BETAS = [0, *np.geomspace(1e-3, 1e3, 61)]


@pytest.mark.parametrize("n", [2, 3, 17, 64, 256])
def test_no_weight_is_farther_off_than_the_bound_says_and_some_come_close(n):
    worst = (1 + 2.0**-11) * 2.0 ** np.arange(-13, 16)           # halfway between two halves: rounded down, to even
    ties = np.concatenate([[[0.0] + [-size] * (n - 1)] for size in worst])
    drawn = np.random.default_rng(n)
    others = [-drawn.exponential(scale, (40, n)) for scale in (1e-6, 1e-3, 1, 10, 1000, 60_000)]
    mixed = -drawn.choice(worst[:20], (200, n)) * drawn.choice([1, 1 + 2.0**-10], (200, n))
    rows = np.concatenate([ties, *others, mixed])
    rows[:, 0] = 0
    far = off_by(rows, BETAS)
    assert 0.8 * bundle.bound(n) < far <= bundle.bound(n)


def test_the_bound_of_two_keys_is_the_steepest_place_of_a_logistic():
    u = np.linspace(0, 10, 100_001)          # two keys, the second u behind: p (1 - p) u, times ROUNDING
    assert bundle.bound(2) == pytest.approx((u * np.exp(-u) / (1 + np.exp(-u)) ** 2).max() / 2048, rel=1e-4)
    assert bundle.bound(256) > bundle.bound(64) > bundle.bound(2) == bundle.bound(1)


def test_the_error_told_is_that_of_the_farthest_cell(model):
    trace, stored = made(model, 14, moves=[])
    far = 0.0
    for layer in range(3):
        for head in range(4):
            s = unpacked(stored["heads"][f"{layer}.{head}"]["log"], "<f2").tolist()
            for i in range(14):
                row = [math.exp(x) for x in s[i * (i + 1) // 2:(i + 1) * (i + 2) // 2]]
                far = max(far, *(abs(e / sum(row) - trace.pattern[layer, head, i, j].item()) for j, e in enumerate(row)))
    assert stored["error"]["measured"] == pytest.approx(far, rel=1e-12)
    assert 0 < far < stored["error"]["bound"] == bundle.bound(14)


def one_head(scores, dtype=torch.float32):
    """(scores, pattern) of one head as arrays; scores: rows of lists, the masked cells left out."""
    n = len(scores)
    grid = torch.full((n, n), -math.inf, dtype=dtype)
    for i, row in enumerate(scores):
        grid[i, :i + 1] = torch.tensor(row, dtype=dtype)
    return grid.numpy(), torch.softmax(grid, -1).numpy()


def test_scores_beyond_half_precision_end_at_its_smallest():
    stored, error = bundle.log_head(*one_head([[3.0], [-1e6, 5.0], [0.0, 0.0, 0.0]]), exact=False)
    assert unpacked(stored["log"], "<f2").tolist() == [0, -65504, 0, 0, 0, 0]
    assert error < 1e-7


@pytest.mark.parametrize(("behind", "kept"), [(-80.0, False), (-100.0, True), (-200.0, True), (0.0, False)],
                         ids=["normal", "subnormal", "zero", "uniform"])
def test_exact_weights_stand_for_their_logarithms_unless_one_is_too_small(behind, kept):
    scores, pattern = one_head([[7.0], [behind, 0.0]])
    stored, error = bundle.log_head(scores, pattern, exact=True)
    assert (stored.keys() == {"log"}) == kept
    assert error < 1e-7
    assert bundle.log_head(scores, pattern, exact=False)[0].keys() == {"log"}


# -- q and k ---------------------------------------------------------------------------------------------------------

def test_triangles_are_stored_up_to_256_tokens_and_q_and_k_beyond(long_model):
    for n, kind, parts in ((256, "log", {"log"}), (257, "qk", {"qk", "units"})):
        _, stored = made(long_model, n, moves=[])
        assert stored["kind"] == kind
        assert stored["n"] == n == len(stored["labels"])
        assert all(each.keys() == parts for each in stored["heads"].values())
        assert (stored["tops"] is None) == (stored["error"]["bound"] is None) == (kind == "qk")


def scores_made(stored, layer, head, d):
    """Scores [query, key] that a page makes of a stored head's q and k."""
    both = unpacked(stored["heads"][f"{layer}.{head}"]["qk"], "<f2").astype(np.float64).reshape(2, -1, d)
    unit_q, unit_k = stored["heads"][f"{layer}.{head}"]["units"]
    return (both[0] * unit_q) @ (both[1] * unit_k).T * stored["factors"][layer][head]


@pytest.mark.parametrize("switches", [{}, {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}],
                         ids=["plain", "unscaled", "by layer"])
def test_scores_of_stored_q_and_k_are_within_the_error_told_and_weights_within_half_of_it_at_any_sharpness(
        tmp_path, monkeypatch, switches):
    monkeypatch.setattr(bundle, "LOG_TOKENS", 8)
    trace, stored = made(tiny(tmp_path, dtype="float64", **switches), 20, moves=[])
    factor = [[trace.model.config.scale(layer)] * 4 for layer in range(3)]
    error, below = stored["error"]["measured"], np.tri(20, dtype=bool)
    assert stored["kind"] == "qk"
    assert stored["factors"] == factor
    far = 0.0
    for layer in range(3):
        for head in range(4):
            found, true = scores_made(stored, layer, head, 6), trace.scores[layer, head].numpy()
            far = max(far, np.abs(found - true)[below].max())
            for beta in (0.01, 0.5, 1, 4, 30):
                rows = [weights(np.where(below, beta * x, -np.inf)) for x in (found, true)]
                assert np.abs(rows[0] - rows[1]).max() <= beta * error / 2
    assert error == pytest.approx(far, rel=1e-3)
    assert 0 < error < 1e-2 * trace.scores.tril().abs().amax()


# -- moves -----------------------------------------------------------------------------------------------------------

def test_moves_hold_q_k_v_and_the_exact_weights_of_attention_csv(model):
    trace, stored = made(model, 12)
    table = attention_table(trace.pattern)
    for layer in range(3):
        for head in range(4):
            own = stored["heads"][f"{layer}.{head}"]["moves"]
            parts = unpacked(own["vectors"], "<f2").astype(np.float64).reshape(3, 12, 6)
            for half, unit, true in zip(parts, own["units"], (trace.q, trace.k, trace.v), strict=True):
                true = true[layer, head].double().numpy()
                assert np.abs(half * unit - true).max() <= packing.ROUNDING * np.abs(true).max()
            weights = table.loc[(table["layer"] == layer) & (table["head"] == head), "weight"]
            assert unpacked(own["exact"], "<f4").tolist() == weights.to_numpy().astype(np.float32).tolist()


def test_a_float64_model_s_exact_weights_are_float64(tmp_path):
    trace, stored = made(tiny(tmp_path, dtype="float64"), 12, moves=[(2, 1)])
    assert unpacked(stored["heads"]["2.1"]["moves"]["exact"], "<f8").tolist() == lower(trace.pattern[2, 1]).tolist()


def test_a_bfloat16_model_s_exact_weights_are_float32(tmp_path):
    trace, stored = made(tiny(tmp_path, dtype="bfloat16"), 12, moves=[(2, 1)])
    assert trace.pattern.dtype == torch.float32
    assert unpacked(stored["heads"]["2.1"]["moves"]["exact"], "<f4").tolist() == lower(trace.pattern[2, 1]).tolist()


def stored_moves(stored):
    return [name for name, each in stored["heads"].items() if "moves" in each]


def test_moves_of_all_heads_up_to_64_tokens_then_of_the_eight_that_score_highest(long_model):
    for n, many in ((64, 12), (65, 8)):
        trace, stored = made(long_model, n)
        assert len(stored_moves(stored)) == many
        assert all("exact" in stored["heads"][name]["moves"] for name in stored_moves(stored))
    ranked = bundle.ranked_heads(inspector.heads(long_model, ids=trace.ids.tolist()))
    assert sorted(stored_moves(stored)) == sorted(f"{layer}.{head}" for layer, head in ranked)


def test_beyond_256_tokens_moves_hold_q_and_k_in_place_of_their_own_and_no_weights(long_model):
    _, stored = made(long_model, 257, moves=[(0, 3)])
    assert stored["heads"]["0.3"].keys() == {"moves"}
    assert stored["heads"]["0.3"]["moves"].keys() == {"units", "vectors"}
    assert stored["heads"]["0.2"].keys() == {"qk", "units"}


@pytest.mark.parametrize(("moves", "expected"), [("", []), ("1.2", ["1.2"]), ("2.0 0.1", ["0.1", "2.0"]),
                                                 ([(1, 3)], ["1.3"])])
def test_the_moves_named_are_those_stored(model, moves, expected):
    page = inspector.explore(inspector.trace(model, ids=some_ids(model, 9)), moves=moves)
    assert stored_moves(Page(page.html).bundle["texts"][0]) == expected


# -- the smaller parts -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_lengths_of_values_writes_and_stream_are_the_library_s(tmp_path, dtype):
    trace, stored = made(tiny(tmp_path, dtype=dtype), 11, moves=[])
    norms, writes = (unpacked(stored[name], "<f4").reshape(3, 4, 11) for name in ("value_norms", "writes"))
    for layer in range(3):
        W_O = trace.model.weights.blocks[layer].W_O
        even = torch.ones(4, 11, 11, dtype=trace.pattern.dtype)
        theirs = value_weighted(even, trace.v[layer], W_O)[:, 0]
        assert norms[layer] == pytest.approx(theirs.numpy(), rel=2e-6)
        for head in range(4):
            for i in range(11):
                out = trace.z[layer, head, i].double() @ W_O[head].double()
                assert writes[layer, head, i] == pytest.approx(float(out.norm()), rel=2e-6)
    stream = unpacked(stored["stream"], "<f4").reshape(3, 11)
    assert stream == pytest.approx(trace.resid_pre.double().pow(2).sum(-1).sqrt().numpy(), rel=2e-6)


def test_cosines_are_those_of_torch_layer_by_layer(model):
    one, other = (inspector.trace(model, ids=some_ids(model, n, seed=n)) for n in (5, 8))
    found = unpacked(bundle.cosines(one, other), "<f2").astype(np.float64).reshape(5, 8, 4)
    for depth in range(4):
        a, b = ((t.resid_pre[depth] if depth < 3 else t.resid_post[2]).double() for t in (one, other))
        for i in range(5):
            theirs = torch.nn.functional.cosine_similarity(a[i][None], b)
            assert found[i, :, depth] == pytest.approx(theirs.numpy(), abs=2.0**-11)


def test_small_pictures_show_the_largest_weight_of_each_block_on_a_root_scale():
    pattern = torch.zeros(1, 1, 34, 34)
    pattern[0, 0, 0, 0], pattern[0, 0, 3, 1], pattern[0, 0, 33, 33], pattern[0, 0, 33, 0] = 1.0, 0.25, 0.04, 0.01
    small = bundle.thumbs(pattern)          # 34 tokens: 17 blocks of 2 x 2
    assert small.shape == (1, 1, 17, 17)
    assert small.dtype == np.uint8
    assert [small[0, 0, i, j] for i, j in ((0, 0), (1, 0), (16, 16), (16, 0))] == [255, 128, 51, 26]
    assert small.astype(int).sum() == 255 + 128 + 51 + 26


def table_of(**columns):
    """A table of 2 layers of 2 heads."""
    empty = {name: [math.nan] * 4 for name in (*bundle.RANKED, "current_token", "first_token", "entropy_relative")}
    return pd.DataFrame({"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], **empty, **columns})


def test_heads_are_ranked_by_their_highest_score_equals_in_order():
    table = table_of(previous_token=[0.1, 0.9, 0.2, 0.1], duplicate_token=[0.5, math.nan, 0.1, 0.5],
                     induction=[0, 0, 0.95, 0])
    assert bundle.ranked_heads(table) == [(1, 0), (0, 1), (0, 0), (1, 1)]
    assert bundle.ranked_heads(table, 2) == [(1, 0), (0, 1)]


def test_the_page_opens_with_the_head_of_most_induction_or_of_any_score_where_there_is_none():
    assert bundle.opening(table_of(previous_token=[0.9, 0, 0, 0], induction=[0.1, 0.2, 0.05, math.nan])) == "0.1"
    assert bundle.opening(table_of(previous_token=[0.1, 0.2, 0.9, 0.3])) == "1.0"


def test_scores_stand_by_layer_and_head_with_nothing_where_there_is_none():
    lists = bundle.score_lists(table_of(previous_token=[0.1, 0.2, 0.3, 0.123456789]))
    assert lists["previous_token"] == [[0.1, 0.2], [0.3, 0.123457]]
    assert lists["induction"] == [[None, None]] * 2


# -- shapes ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("sizes", "n"), [({"n_layer": 1, "n_head": 1, "n_embd": 6}, 5), ({"n_embd": 4, "n_head": 4}, 5),
                                          ({}, 1)], ids=["one head", "d_head 1", "one token"])
def test_models_and_texts_of_the_smallest_shapes(tmp_path, sizes, n):
    model = tiny(tmp_path, dtype="float32", **sizes)
    trace, stored = made(model, n)
    config, everything = model.config, inspector.explore(trace)
    assert len(stored["heads"]) == config.n_layer * config.n_head
    assert len(stored["labels"]) == n
    for layer in range(config.n_layer):
        for head in range(config.n_head):
            own = stored["heads"][f"{layer}.{head}"]["moves"]
            assert unpacked(own["vectors"], "<f2").shape == (3 * n * config.d_head,)
            assert unpacked(own["exact"], "<f4").tolist() == lower(trace.pattern[layer, head]).tolist()
    assert Page(everything.html).bundle["texts"][0] | {"heads": None} == taken(stored) | {"heads": None}


def taken(stored):
    """What is left of a text's parts in the page's JSON: numbers in place of what is packed."""
    return json.loads(json.dumps(page.taken_apart({"texts": [stored]})[0]))["texts"][0]


def test_sharp_heads_keep_the_scores_of_weights_that_vanish(tmp_path):
    theirs = models.tiny_model(scale_attn_weights=False)
    for block in theirs.transformer.h:
        block.attn.c_attn.weight.data.mul_(4)
    trace, stored = made(inspector.load(models.save(theirs, tmp_path)), 12)
    behind = (trace.scores.double() - trace.scores.double().amax(-1, keepdim=True)).numpy()
    zeros = [(layer, head) for layer in range(3) for head in range(4) if (lower(trace.pattern[layer, head]) == 0).any()]
    assert len(zeros) > 3
    for layer, head in zeros:
        each = stored["heads"][f"{layer}.{head}"]
        halves = lower(behind[layer, head]).clip(-65504, 0).astype(np.float16)
        assert unpacked(each["log"], "<f2").tolist() == halves.tolist()
        assert unpacked(each["moves"]["exact"], "<f4").tolist() == lower(trace.pattern[layer, head]).tolist()


# -- the page --------------------------------------------------------------------------------------------------------

class Page(HTMLParser):
    """The elements of a page, and what it stores."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.title, self.inside = {}, "", None
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside = (tag, dict(attrs).get("id") or dict(attrs).get("type"))

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside and self.inside[0] == "title":
            self.title += data
        elif self.inside and self.inside[0] == "script":
            self.scripts[self.inside[1]] = self.scripts.get(self.inside[1], "") + data

    @property
    def bundle(self):
        return json.loads(self.scripts["explorer-data"])


def relabelled(trace, labels):
    return replace(trace, labels=labels, texts=labels)


def test_no_token_can_close_an_element_and_none_is_lost(model):
    plain = inspector.trace(model, ids=some_ids(model, len(NASTY)))
    theirs, ours = Page(inspector.explore(relabelled(plain, NASTY)).html), Page(inspector.explore(plain).html)
    assert theirs.tags == ours.tags
    assert "<script>alert" not in inspector.explore(relabelled(plain, NASTY)).html
    assert [label.replace("\u200e", "") for label in theirs.bundle["texts"][0]["labels"]] == NASTY
    assert theirs.scripts.keys() == ours.scripts.keys()


def test_every_packed_part_stands_outside_the_json_and_comes_back(model):
    traces = [inspector.trace(model, ids=some_ids(model, n)) for n in (9, 7)]
    tables = [inspector.heads(model, ids=each.ids.tolist()) for each in traces]
    whole = bundle.bundle(traces, tables, moves=[(0, 0)])
    rest, parts = page.taken_apart(whole)

    def back(value, name=None):
        if isinstance(value, dict):
            return {key: back(each, "packed" if name == "cosines" else key) for key, each in value.items()}
        if isinstance(value, list):
            return [back(each) for each in value]
        return parts[value] if name in (*page.PACKED, "packed") and isinstance(value, int) else value

    assert back(rest) == whole
    packed_texts = re.findall(r'"eJ[0-9A-Za-z+/=]{8,}"|"eN[0-9A-Za-z+/=]{8,}"', json.dumps(rest))
    assert packed_texts == []
    assert len(parts) == 2 * (11 + 5 + 2) + 1
    shown = Page(inspector.explore(*traces, moves="0.0").html)
    assert [shown.scripts[f"part-{i}"] for i in range(len(parts))] == parts


def test_the_same_input_gives_the_same_bytes(model):
    texts = [inspector.explore(*(inspector.trace(model, ids=some_ids(model, n)) for n in (10, 6))) for _ in range(2)]
    assert texts[0].html == texts[1].html


def test_a_trace_that_lacks_tensors_is_refused_in_a_line(model):
    short = inspector.trace(model, ids=[1, 2, 3], keep="q,k,pattern")
    with pytest.raises(ArgumentError, match=r"^this trace was made without v, scores, z, resid_pre, .*keep them$"):
        inspector.explore(short)
    with pytest.raises(ArgumentError, match="made without v"):
        inspector.explore(inspector.trace(model, ids=[1, 2, 3]), short)
    kept = inspector.trace(model, ids=[1, 2, 3], keep="q,k,v,scores,pattern,z,resid_pre,resid_mid,resid_post")
    assert inspector.explore(kept).html == inspector.explore(inspector.trace(model, ids=[1, 2, 3])).html


def test_what_is_no_trace_is_refused_with_what_makes_one(model):
    trace = inspector.trace(model, ids=[1, 2, 3])
    for given in ((model,), ("a text",), (trace, "a text"), (model, "a text"), (None,)):
        with pytest.raises(ArgumentError, match=r"^explore takes traces, not \w+: explore\(inspector.trace\("):
            inspector.explore(*given)


def test_traces_of_two_models_or_of_none_are_refused(model, long_model):
    one, other = (inspector.trace(each, ids=[1, 2, 3]) for each in (model, long_model))
    with pytest.raises(ArgumentError, match="different models"):
        inspector.explore(one, other)
    with pytest.raises(ArgumentError, match="no model"):
        inspector.explore(replace(one, model=None))


def test_a_head_that_the_model_has_not_is_refused(model):
    with pytest.raises(ArgumentError, match=r"7\.0"):
        inspector.explore(inspector.trace(model, ids=[1, 2, 3]), moves="7.0")


# -- the browser's side ----------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as found:
        yield found


DECODED = """async name => {
  const { store } = window.explorer, head = await store.head(0, name), moves = await store.moves(0, name);
  return { s: [...head.s], top: [...head.top], exact: moves?.exact ? [...moves.exact] : null,
    v: moves ? [...moves.v] : null, norms: [...await store.part(0, "value_norms", name)] };
}"""


@pytest.mark.parametrize(("dtype", "n", "moves", "far"), [
    ("float32", 20, None, 1e-5), ("float64", 20, None, 1e-5), ("bfloat16", 20, None, 1e-5), ("float32", 20, "", None),
    ("float64", 256, "1.1", None), ("float32", 257, "1.1", None)])
def test_the_page_reads_what_was_stored(tmp_path, chromium, dtype, n, moves, far):
    """Scores, exact weights to the last bit, values and lengths, each by the way they are stored."""
    model = tiny(tmp_path / "model", dtype=dtype, n_positions=300)
    trace, stored = made(model, n, moves=None if moves is None else [(1, 1)] if moves else [])
    path = inspector.explore(trace, moves=moves).save(tmp_path / "explorer.html")
    with browser.opened(chromium, path) as page:
        page.wait_for_selector("#explorer[data-ready]")
        for layer, head in ((0, 2), (1, 1), (2, 3)):
            found = page.evaluate(DECODED, f"{layer}.{head}")
            scores = trace.scores[layer, head].double().numpy()
            true, each = lower(scores - scores.max(-1, keepdims=True)), stored["heads"][f"{layer}.{head}"]
            if "log" in each:
                assert found["s"] == unpacked(each["log"], "<f2").tolist()
            error = far or (2.1 * stored["error"]["measured"] if n > 256 else packing.ROUNDING * np.abs(true).max())
            assert found["s"] == pytest.approx(true, abs=error)
            assert found["top"] == pytest.approx(scores.max(-1), abs=1e-5 + (n > 256) * stored["error"]["measured"])
            own = moves is None or moves == f"{layer}.{head}"
            assert (found["v"] is not None) == own
            assert (found["exact"] is not None) == (own and n <= 256)
            if own:
                v = trace.v[layer, head].double().flatten()
                assert found["v"] == pytest.approx(v, abs=packing.ROUNDING * float(v.abs().max()))
            if own and n <= 256:
                assert found["exact"] == lower(trace.pattern[layer, head]).tolist()
            at = (layer * 4 + head) * n
            assert found["norms"] == unpacked(stored["value_norms"], "<f4")[at:at + n].tolist()
