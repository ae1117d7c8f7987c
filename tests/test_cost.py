"""What things cost, counted and not timed: bytes alive at the peak, which operators run, and that cheap ways agree."""

import math

import pytest
import torch

import inspector
from inspector.errors import ArgumentError
from inspector.findings import scoring
from inspector.findings.prompts import draw
from inspector.findings.protocols import PROTOCOLS, protocol
from inspector.findings.scores import SCORES
from inspector.model import fused, kernels
from inspector.model.forward import embed, layers
from inspector.model.kernels import Edit, grid, patterns, scan

from . import models
from .counting import Cost

STRIPE = protocol("stripe")


def loaded(folder, dtype="float32", **changes):
    return inspector.load(models.save(models.tiny_model(**changes), folder), dtype=dtype)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("cost"), "float64")


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Positions for 16,384 tokens, one layer of two heads: its grids would be 4.3 GB."""
    return loaded(tmp_path_factory.mktemp("long"), n_positions=16384, n_layer=1, n_head=2, n_embd=16, vocab_size=16384)


def repeated(model, n):
    ids = torch.randint(model.config.vocab_size, (1, n // 2), generator=torch.Generator().manual_seed(1))
    return ids.repeat(1, 2)


def score(model, ids):
    return scoring.score_sequences(model, ids, ids, STRIPE, ids.shape[1] // 2)


def size(trace):
    return sum(getattr(trace, name).nbytes for name in inspector.model.tracing.TENSORS if getattr(trace, name) is not None)


def test_the_counter_counts():
    with Cost() as cost:
        a = torch.zeros(1000)
        view, more = a[:10], a + 1
        del more
        b = torch.empty(500)
    assert (cost.peak, cost.alive, cost.largest) == (8000, 6000, 4000)
    del a, view, b
    assert cost.alive == 0
    assert {"zeros", "slice", "add"} <= cost.names()


# -- scan ------------------------------------------------------------------------------------------------------------

def test_a_scan_s_memory_is_linear_up_to_16384_tokens(long, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_CELLS", 2**16)
    peaks = {}
    for n in (1024, 4096, 16384):
        ids = repeated(long, n)
        with Cost() as cost:
            score(long, ids)
        peaks[n] = cost.peak
        assert cost.largest < 2 * 4 * n * max(64, kernels.LEAST_ROWS * 2)
    assert peaks[4096] < 4.5 * peaks[1024]
    assert peaks[16384] < 4.5 * peaks[4096]
    assert peaks[16384] < 16384**2 * 4 / 10          # a tenth of one head's grid


def test_rows_that_are_views_do_not_keep_their_block(monkeypatch):
    """A statistic that is a view of the pattern: its block must not live on."""
    monkeypatch.setattr(kernels, "BLOCK_CELLS", 2**15)
    q = torch.randn(1, 2, 2048, 8)
    with Cost() as cost:
        _, kept = scan(lambda pattern, first_query: {"first": pattern[..., 0]})(q, q, None, 0.3)
    assert cost.peak < 2 * 2048**2 * 4 / 5
    torch.testing.assert_close(kept["first"], torch.softmax((q @ q.mT * 0.3).masked_fill(
        torch.ones(2048, 2048, dtype=torch.bool).triu(1), -math.inf), -1)[..., 0], rtol=0, atol=1e-6)


def test_a_text_of_one_token_over_and_over_costs_no_grid_either(long, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_CELLS", 2**16)
    monkeypatch.setattr(scoring, "REMEMBERED", 2**12)
    peaks = {}
    for n in (512, 2048):
        with Cost() as cost:
            found = score(long, torch.full((1, n), 3))
        peaks[n] = cost.peak
    assert peaks[2048] < 5 * peaks[512]
    # With equal tokens every key but the own position is an earlier copy, and every key but the first a follower.
    for head in range(2):
        rest = 1 - found["duplicate_token"][0, 0, head]
        torch.testing.assert_close(rest, found["current_token"][0, 0, head], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scan_and_grid_give_the_same_scores(tmp_path, dtype):
    """Means over queries within 1e-6 in float32; in float64 to rounding. Sharp scores, several blocks."""
    from inspector.findings.scores import pattern_scores
    model = loaded(tmp_path, dtype)
    ids = draw(model, period=15, n_sequences=3).ids
    found = scoring.score_sequences(model, ids, ids, STRIPE, 15)
    for layer in layers(model, embed(model, ids)):
        want = pattern_scores(layer.kept.pattern, ids)
        for name in SCORES:
            torch.testing.assert_close(found[name][:, layer.index], want[name].double(), rtol=0,
                                       atol=1e-6 if dtype == "float32" else 1e-13)


def test_the_last_layer_makes_only_q_and_k(model):
    ids = repeated(model, 20)
    with Cost() as cost:
        score(model, ids)
    products = [shapes[2][-1] for name, shapes, _ in cost.calls if name == "addmm"]
    wide = 3 * model.config.d_model
    full = [wide, model.config.d_model, model.config.d_mlp, model.config.d_model]
    assert products == full * (model.config.n_layer - 1) + [2 * model.config.d_model]


# -- grids -----------------------------------------------------------------------------------------------------------

def test_no_block_reaches_the_future(model, monkeypatch):
    """Blocks of 5 rows: the products of q and k have 5, 10, ... 30 keys, and those of pattern and v read as many."""
    monkeypatch.setattr(kernels, "block_rows", lambda n_head, n: 5)
    ids = repeated(model, 30)[0]
    for kernel in (grid, patterns, scan(lambda pattern, first_query: {})):
        with Cost() as cost:
            list(layers(model, embed(model, ids), kernel=kernel))
        made = [out[0] for name, _, out in cost.calls if name == "bmm"]
        keys = [shape[2] for shape in made if shape[2] != model.config.d_head]
        # The widest first: the others fit into the memory that it leaves.
        assert keys == [30, 25, 20, 15, 10, 5] * model.config.n_layer
        assert sum(shape[1:] == (5, model.config.d_head) for shape in made) == 6 * model.config.n_layer


def test_grids_are_written_once_where_they_stay(tmp_path, monkeypatch):
    """Peak of a trace: what it returns and at most one layer's share; of patterns alone, likewise."""
    monkeypatch.setattr(kernels, "BLOCK_CELLS", 2**15)
    model = loaded(tmp_path, n_positions=512, vocab_size=50)
    ids = repeated(model, 512)[0].tolist()
    for keep in (None, "q,k,v,pattern", "scores", "z", "logits"):
        with Cost() as cost:
            traced = inspector.trace(model, ids=ids, keep=keep)
        share = 2 * 4 * 512**2 * 4                   # scores and pattern of one layer
        assert cost.peak < size(traced) + share, keep
        if keep == "z":
            assert cost.peak < share
        del traced


def test_patterns_alone_are_the_traced_ones_and_cost_no_scores(model):
    ids = repeated(model, 30)[0].tolist()
    whole = inspector.trace(model, ids=ids)
    with Cost() as cost:
        part = inspector.trace(model, ids=ids, keep="pattern,v,q,k")
    for name in ("q", "k", "v", "pattern"):
        assert torch.equal(getattr(part, name), getattr(whole, name)), name
    for name in ("scores", "z", "resid_pre", "resid_mid", "resid_post", "logits"):
        assert getattr(part, name) is None, name
    assert not any(shape[-1:] == (model.config.vocab_size,) for _, _, out in cost.calls for shape in out)
    assert sum(name == "addmm" for name, _, _ in cost.calls) == 4 * (model.config.n_layer - 1) + 2


@pytest.mark.parametrize("name", ["q", "v", "scores", "z", "resid_pre", "resid_mid", "resid_post", "logits"])
def test_every_tensor_can_be_kept_alone(model, name):
    ids = repeated(model, 30)[0].tolist()
    assert torch.equal(getattr(inspector.trace(model, ids=ids, keep=[name]), name),
                       getattr(inspector.trace(model, ids=ids), name))


def test_keep_refuses_what_is_no_tensor(model):
    with pytest.raises(ArgumentError, match="'patern'; expected of q, k, v"):
        inspector.trace(model, ids=[1, 2], keep="q,patern")
    with pytest.raises(ArgumentError, match="names nothing"):
        inspector.trace(model, ids=[1, 2], keep=[])
    with pytest.raises(ArgumentError, match="without its logits"):
        inspector.trace(model, ids=[1, 2], keep="q").losses  # noqa: B018
    with pytest.raises(ArgumentError, match="made without"):
        inspector.model.tracing.save(inspector.trace(model, ids=[1, 2], keep="q"), "nowhere", attention=True)


def test_a_layer_whose_pattern_is_given_makes_no_q_and_k(model):
    ids = repeated(model, 20)[0]
    clean = list(layers(model, embed(model, ids), kernel=patterns))
    edits = {index: Edit(pattern=clean[index].kept) for index in (1, 2)}
    with Cost() as cost:
        again = list(layers(model, embed(model, ids), kernel=patterns, edits=edits))
    wide = model.config.d_model
    first = [shapes[2][-1] for name, shapes, _ in cost.calls if name == "addmm"][::4]
    assert first == [3 * wide, wide, wide]
    assert again[1].q is None
    for a, b in zip(again, clean, strict=True):
        torch.testing.assert_close(a.resid_post, b.resid_post, rtol=0, atol=1e-13)


# -- the fused operator ----------------------------------------------------------------------------------------------

needs_operator = pytest.mark.skipif(fused.OPERATOR is None, reason="this torch has no such operator")


@needs_operator
def test_the_fused_kernel_is_exact_in_float64(model):
    """z, every score and the entropy against the plain scan, for a batch whose rows differ."""
    ids = draw(model, period=15, n_sequences=3).ids
    cells = scoring.cells_of(ids, STRIPE, 15)
    plain = layers(model, embed(model, ids), kernel=scan(scoring.scanning(cells, STRIPE)), finish=False)
    quick = layers(model, embed(model, ids), kernel=fused.fused(scoring.fusing(cells), plain=None), finish=False)
    for a, b in zip(plain, quick, strict=True):
        torch.testing.assert_close(b.kept["sums"], a.kept["sums"], rtol=0, atol=1e-12)
        torch.testing.assert_close(b.kept["entropy"], a.kept["entropy"], rtol=0, atol=1e-12)
        if a.z is not None:
            torch.testing.assert_close(b.z, a.z, rtol=0, atol=1e-12)


@needs_operator
def test_half_precision_is_fused_and_sums_in_float32():
    model = inspector.load("demo", dtype="bfloat16")
    prompts = draw(model, period=20, n_sequences=2)
    seen = []

    def keep(q, k, scale, lse, expected):
        seen.append((q.dtype, lse.dtype, expected.dtype))
        return {}

    list(layers(model, embed(model, prompts.ids), kernel=fused.fused(keep, plain=None)))
    assert set(seen) == {(torch.bfloat16, torch.float32, torch.float32)}
    with Cost() as cost:
        table = inspector.heads(model, period=20, n_sequences=2)
    assert "_scaled_dot_product_flash_attention_for_cpu" in cost.names()
    assert "_softmax" not in cost.names()
    assert table.attrs["run"]["arguments"]["kernel"] == "fused"
    assert table.attrs["run"]["dtype"] == "bfloat16"


def test_float32_is_scanned():
    with Cost() as cost:
        table = inspector.heads(inspector.load("demo"), period=20, n_sequences=2)
    assert not any("flash" in name for name in cost.names())
    assert table.attrs["run"]["arguments"]["kernel"] == "scan"


def test_bfloat16_finds_the_same_heads_fused_or_not(monkeypatch):
    wide, half = inspector.load("demo"), inspector.load("demo", dtype="bfloat16")
    want, found = inspector.heads(wide), inspector.heads(half)
    assert list(found["verdict"]) == list(want["verdict"])
    assert sum(map(len, want["verdict"])) > 4
    difference = max((found[name] - want[name]).abs().max() for name in SCORES if not name.startswith("entropy"))
    assert 1e-6 < difference < 0.02
    monkeypatch.setattr(fused, "OPERATOR", None)
    plain = inspector.heads(half)
    assert plain.attrs["run"]["arguments"]["kernel"] == "scan"
    assert list(plain["verdict"]) == list(want["verdict"])
    for name in SCORES:
        assert (plain[name] - found[name]).abs().max() < 0.05, name


def test_many_copies_and_other_protocols_are_scanned():
    model = inspector.load("demo", dtype="bfloat16")
    few, many = torch.arange(60)[None], torch.full((1, 60), 3)
    expected = "scan" if fused.OPERATOR is None else "fused"
    assert scoring.kernel_name(model, few, STRIPE) == expected
    assert scoring.kernel_name(model, many, STRIPE) == "scan"
    dropping = next(rule for rule in PROTOCOLS.values() if rule.drop_first)
    assert scoring.kernel_name(model, few, dropping) == "scan"


def test_the_fused_kernel_takes_no_edits(model):
    kernel = fused.fused(lambda *parts: {}, plain=None)
    with pytest.raises(ArgumentError, match="no edits"):
        list(layers(model, embed(model, torch.tensor([1, 2])), kernel=kernel, edits={0: Edit(keep=torch.zeros(4))}))


@needs_operator
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("large", [300.0, 30.0, 3.0])
def test_numbers_too_large_for_the_fused_entropy_are_scanned(dtype, large):
    """Even rows by hand, entropy ln(i + 1): q and k alike everywhere, also where their two parts cancel to a score of 0."""
    ids = torch.arange(40)[None]
    cells = scoring.cells_of(ids, STRIPE, 20)
    kernel = fused.fused(scoring.fusing(cells), plain=scan(scoring.scanning(cells, STRIPE)))
    q = torch.zeros(1, 2, 40, 64, dtype=dtype)
    k = q.clone()
    q[..., 0] = k[..., 0] = k[..., 1] = large
    q[:, 1, :, 1] = -large
    _, kept = kernel(q, k, torch.zeros_like(q), 1 / 8)
    want = torch.arange(1, 41).log().expand(1, 2, 40)
    torch.testing.assert_close(kept["entropy"], want, rtol=0, atol=0.02)
    torch.testing.assert_close(kept["sums"][..., 2], 1 / torch.arange(1, 41).expand(1, 2, 40), rtol=0.01, atol=0)


@needs_operator
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_keys_do_not_move_the_entropy_of_large_scores(dtype):
    """Keys of about 300 in two parts that q subtracts: scores are 0 or 75, exact; a mean of such keys is rounded."""
    generator = torch.Generator().manual_seed(3)
    q, k = torch.zeros(2, 1, 2, 60, 64, dtype=dtype)
    q[..., 0], q[..., 1] = 300, -300
    k[..., 0] = 300 + 2 * torch.randint(6, (60,), generator=generator)
    k[..., 1] = k[..., 0] - 2 * torch.randint(2, (60,), generator=generator)
    ids = torch.arange(60)[None]
    cells = scoring.cells_of(ids, STRIPE, 30)
    kernel = fused.fused(scoring.fusing(cells), plain=scan(scoring.scanning(cells, STRIPE)))
    _, kept = kernel(q, k, torch.zeros_like(q), 1 / 8)
    _, truth = scan(scoring.scanning(cells, STRIPE))(q.double(), k.double(), None, 1 / 8)
    assert (kept["entropy"] - truth["entropy"]).abs().max() < 1e-5


@pytest.mark.parametrize("keep", ["pattern", "scores", "scores,pattern", "q,k", "pattern,v", None])
def test_a_trace_that_overflows_in_its_last_layer_is_refused_whatever_is_kept(keep):
    from inspector.errors import NumericsError
    model = inspector.load("demo", dtype="float16")
    with torch.no_grad():
        model.weights.blocks[-1].W_QKV[:, :384] *= 200 if keep != "q,k" else 60000
    with pytest.raises(NumericsError, match="layer 3"):
        inspector.trace(model, ids=list(range(45)), keep=keep)


def test_a_trace_says_what_it_kept_and_how(model):
    for keep, names, kernel in ((None, None, "grid"), ("v, pattern", ["v", "pattern"], "patterns"), (("q",), ["q"], "scan")):
        said = inspector.trace(model, ids=[1, 2], keep=keep).run["arguments"]
        assert (said["keep"], said["kernel"]) == (names, kernel)
    for keep in (5, {"q"}, iter("q")):
        with pytest.raises(ArgumentError, match="in a list or joined by commas"):
            inspector.trace(model, ids=[1, 2], keep=keep)


@pytest.mark.parametrize("verb", [
    ("info",), ("trace", "The cat", "--out", "OUT"), ("heads", "--n-sequences", "2"),
    ("attribute", "The cat sat"), ("induction", "The cat, the cat"), ("circuits",),
    ("ablate", "--heads", "1.1", "--n-sequences", "2"), ("report", "The cat", "--out", "OUT", "--no-check")])
def test_every_verb_says_that_it_is_bfloat16(verb, tmp_path, capsys):
    from inspector.cli import main
    options = [word.replace("OUT", str(tmp_path / "out")) for word in verb]
    for dtype, said in (("bfloat16", True), ("float32", False)):
        assert main([*options, "--model", "demo", "--dtype", dtype, "--quiet"]) == 0
        assert ("all numbers in bfloat16, a half precision" in capsys.readouterr().out) == said


# -- the MLP ---------------------------------------------------------------------------------------------------------

def test_an_mlp_some_rows_at_a_time_is_the_whole(model, monkeypatch):
    from inspector.model import forward
    ids = repeated(model, 30)[0]
    whole = list(layers(model, embed(model, ids)))
    monkeypatch.setattr(forward, "MLP_ROWS", 7)
    for a, b in zip(layers(model, embed(model, ids)), whole, strict=True):
        torch.testing.assert_close(a.resid_post, b.resid_post, rtol=0, atol=1e-13)


def test_gelu_is_the_published_formula_in_every_dtype():
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), float64 against math.tanh; extremes stay finite and right."""
    from inspector.checkpoint.activations import ACTIVATIONS
    xs = [-1e4, -30.0, -5.0, -1.0, -1e-3, 0.0, 1e-3, 0.5, 2.0, 6.0, 1e4]
    found = ACTIVATIONS["gelu_new"](torch.tensor(xs, dtype=torch.float64))
    for x, y in zip(xs, found.tolist(), strict=True):
        want = x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        assert y == pytest.approx(want, abs=1e-15, rel=1e-12)
    half = ACTIVATIONS["gelu_new"](torch.tensor(xs[1:-1], dtype=torch.bfloat16))
    torch.testing.assert_close(half.double(), found[1:-1], rtol=0.02, atol=2e-3)
