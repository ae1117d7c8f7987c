"""The proof against Hugging Face: a matrix of models that must pass, and mutants that must fail."""

from dataclasses import replace

import pytest
import torch

import inspector
from inspector import parity
from inspector.checkpoint.activations import ACTIVATIONS
from inspector.errors import NumericsError
from inspector.model import forward
from inspector.model.attention import attention_scores, mask_future, mix, softmax
from inspector.model.kernels import UNTOUCHED, Grids, grid

from . import models
from .helpers import random, some_ids, tiny

SWITCHES = {
    "no scale": {"scale_attn_weights": False},
    "inverse layer": {"scale_attn_by_inverse_layer_idx": True},
    "both": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    "epsilon": {"layer_norm_epsilon": 0.3},
    "default width": {"n_inner": None},
    "untied": {"tie_word_embeddings": False},
    "one head": {"n_head": 1},
    "24 heads": {"n_head": 24},
    "one layer": {"n_layer": 1},
}


def worst(table, part, quantity=None):
    """The largest share of a bound that was used up."""
    rows = table[table["part"] == part]
    rows = rows if quantity is None else rows[rows["quantity"] == quantity]
    return float((rows["difference"] / rows["bound"]).max())


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_agrees(tmp_path, activation):
    model = tiny(tmp_path, activation_function=activation)
    table = inspector.check(model, ids=some_ids(model, 31))
    assert table.attrs["verdict"] == "passed", table.attrs["summary"]
    assert worst(table, "formula") < 0.01          # bound 1e-10, seen 1e-15: a hundred times better is asked for


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_agrees(tmp_path, switch):
    model = tiny(tmp_path, **SWITCHES[switch])
    table = inspector.check(model, ids=some_ids(model, 31))
    assert table.attrs["verdict"] == "passed", table.attrs["summary"]
    assert worst(table, "formula") < 0.01


@pytest.mark.parametrize("layout", models.LAYOUTS)
def test_every_layout_agrees(tmp_path, layout):
    model = tiny(tmp_path, layout=layout)
    table = inspector.check(model, ids=some_ids(model, 20))
    assert table.attrs["verdict"] == "passed", table.attrs["summary"]
    assert worst(table, "formula") < 0.01


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_one_file_agrees_whatever_lies_beside_it(tmp_path, name):
    """The folder holds two different models: the proof reads the file that was named, and not the other."""
    models.save(models.tiny_model(1), tmp_path / "a", "safetensors")
    models.save(models.tiny_model(2), tmp_path / "b", "bin")
    for folder, file in (("a", "model.safetensors"), ("b", "pytorch_model.bin")):
        (tmp_path / file).write_bytes((tmp_path / folder / file).read_bytes())
    (tmp_path / "config.json").write_bytes((tmp_path / "a" / "config.json").read_bytes())
    model = inspector.load(tmp_path / name)
    assert inspector.check(model, ids=[1, 2, 3]).attrs["passed"]


def test_the_table_names_every_quantity_of_every_layer_and_head(tmp_path):
    model = tiny(tmp_path)
    table = inspector.check(model, ids=[1, 2, 3, 4])
    for part in ("formula", "rounding"):
        rows = table[table["part"] == part]
        for quantity in ("q", "k", "v", "scores", "pattern", "z"):
            found = rows[rows["quantity"] == quantity]
            assert sorted(zip(found["layer"], found["head"], strict=True)) == [(n, h) for n in range(3) for h in range(4)]
        for quantity in ("resid_pre", "resid_mid", "resid_post"):
            assert sorted(rows[rows["quantity"] == quantity]["layer"]) == [0, 1, 2]
        assert (rows["quantity"] == "logits").sum() == 1
    assert (table["difference"] == (table["ours"] - table["theirs"]).abs())[table["part"] == "formula"].all()


def test_upcast_models_are_proved_in_float32_and_say_so(tmp_path):
    model = tiny(tmp_path, reorder_and_upcast_attn=True, scale_attn_by_inverse_layer_idx=True)
    table = inspector.check(model, ids=some_ids(model, 31))
    assert table.attrs["verdict"] == "float32 only"
    assert table.attrs["passed"]
    assert set(table["part"]) == {"rounding"}


def test_without_float64_the_verdict_says_rounding_only(tmp_path):
    table = inspector.check(tiny(tmp_path), ids=[1, 2, 3], float64=False)
    assert table.attrs["verdict"] == "rounding only"
    assert set(table["part"]) == {"rounding"}


# -- mutants: each must fail, and where it should --------------------------------------------------------------------

def rewritten(model, change):
    """The model with every layer's Block put through `change`."""
    return replace(model, weights=replace(model.weights, blocks=tuple(map(change, model.weights.blocks))))


def swapped_columns(block, a, b):
    """The Block with two slices of the columns of W_QKV and b_QKV exchanged."""
    weight, bias = block.W_QKV.clone(), block.b_QKV.clone()
    weight[:, a], weight[:, b] = block.W_QKV[:, b], block.W_QKV[:, a]
    bias[a], bias[b] = block.b_QKV[b], block.b_QKV[a]
    return replace(block, W_QKV=weight, b_QKV=bias)


def key_bias_dropped(block):
    bias = block.b_QKV.clone()
    bias[24:48] = 0
    return replace(block, b_QKV=bias)


def mask_shifted(q, k, v, scale, edit=UNTOUCHED):
    scores = mask_future(attention_scores(q, k, scale), first_query=1)
    pattern = softmax(scores)
    return mix(pattern, v), Grids(scores, pattern)


def mask_after_softmax(q, k, v, scale, edit=UNTOUCHED):
    scores = attention_scores(q, k, scale)
    pattern = softmax(scores).tril()
    return mix(pattern, v), Grids(mask_future(scores), pattern)


def no_sqrt(q, k, v, scale, edit=UNTOUCHED):
    return grid(q, k, v, 1.0)


MUTANTS = {
    # name: (change of the model, kernel, quantities of layer 0 that must fail, quantities of layer 0 that must pass)
    "no sqrt(d)": (lambda m: m, no_sqrt, {"scores", "pattern", "z"}, {"q", "k", "v"}),
    "two heads swapped": (lambda m: rewritten(m, lambda b: swapped_columns(b, slice(0, 6), slice(6, 12))), grid,
                          {"q", "scores", "pattern"}, {"k", "v"}),
    "mask shifted by one": (lambda m: m, mask_shifted, {"pattern", "z"}, {"q", "k", "v"}),
    "mask after the softmax": (lambda m: m, mask_after_softmax, {"pattern", "z"}, {"scores"}),
    "LayerNorm epsilon 1e-6": (lambda m: replace(m, config=replace(m.config, layer_norm_epsilon=1e-6)), grid,
                               {"q", "k", "v", "resid_post"}, {"resid_pre"}),
    "gelu for gelu_new": (lambda m: replace(m, config=replace(m.config, activation_function="gelu")), grid,
                          {"resid_post"}, {"resid_mid", "pattern"}),
    "c_proj bias dropped": (lambda m: rewritten(m, lambda b: replace(b, b_O=torch.zeros_like(b.b_O))), grid,
                            {"resid_mid", "resid_post"}, {"z"}),
    "key bias dropped": (lambda m: rewritten(m, key_bias_dropped), grid, {"k", "scores"},
                         {"q", "v", "pattern", "z", "resid_mid", "resid_post"}),
    "Q and K exchanged": (lambda m: rewritten(m, lambda b: swapped_columns(b, slice(0, 24), slice(24, 48))), grid,
                          {"q", "k", "scores", "pattern", "z"}, {"v"}),
}


def failing(table, part, layer=0):
    rows = table[(table["part"] == part) & (table["layer"] == layer)]
    return set(rows[rows["verdict"] == "failed"]["quantity"])


@pytest.mark.parametrize("part", ["formula", "rounding"])
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail(tmp_path, monkeypatch, name, part):
    change, kernel, must_fail, must_pass = MUTANTS[name]
    clean = tiny(tmp_path, dtype="float32", layer_norm_epsilon=1e-5)
    monkeypatch.setattr(parity, "load_like", lambda model, dtype: change(inspector.load(tmp_path, dtype=dtype)))
    table = parity.parity(change(clean), some_ids(clean, 31), kernel=kernel)
    assert table.attrs["verdict"] == "failed"
    assert must_fail <= failing(table, part)
    assert not must_pass & failing(table, part)


@pytest.mark.parametrize("part", ["formula", "rounding"])
def test_attention_fed_the_residual_before_its_layer_norm_fails(tmp_path, monkeypatch, part):
    """The tenth mutant needs another forward pass: the first LayerNorm of each layer is the identity."""
    model = tiny(tmp_path, dtype="float32")
    first = {id(block.ln_1_weight) for block in model.weights.blocks}
    wide = tiny(tmp_path, dtype="float64")
    first |= {id(block.ln_1_weight) for block in wide.weights.blocks}
    right = forward.layer_norm
    monkeypatch.setattr(forward, "layer_norm", lambda x, w, b, e: x if id(w) in first else right(x, w, b, e))
    monkeypatch.setattr(parity, "load_like", lambda model, dtype: wide)
    table = parity.parity(model, some_ids(model, 31))
    assert {"q", "k", "v"} <= failing(table, part)
    assert "resid_pre" not in failing(table, part)


def test_a_key_bias_shows_in_k_alone(tmp_path, monkeypatch):
    """It shifts a whole row of scores alike: no pattern, no z and no logit can tell."""
    clean = tiny(tmp_path, dtype="float32")
    monkeypatch.setattr(parity, "load_like",
                        lambda model, dtype: rewritten(inspector.load(tmp_path, dtype=dtype), key_bias_dropped))
    table = parity.parity(rewritten(clean, key_bias_dropped), some_ids(clean, 31))
    assert set(table[table["verdict"] == "failed"]["quantity"]) == {"k", "scores"}


def test_nan_fails(tmp_path):
    """NaN in a comparison fails it; NaN in our forward pass is an error that says where."""
    good, bad = random(3, 4), random(3, 4)
    bad[1, 2] = float("nan")
    for ours, theirs in ((good, bad), (bad, good), (bad, bad)):
        assert parity.formula_row("q", 0, 0, ours, theirs, 1.0)[-1] == "failed"
        assert parity.rounding_row("q", 0, 0, ours.float(), theirs, good.float())[-1] == "failed"
    clean = tiny(tmp_path, dtype="float32")
    poisoned = rewritten(clean, lambda b: replace(b, b_O=torch.full_like(b.b_O, float("nan"))))
    with pytest.raises(NumericsError, match="layer 0"):
        parity.parity(poisoned, some_ids(clean, 9))


def test_the_bounds_are_the_agreed_ones(tmp_path):
    """1e-10 of scale for the formula; 8 times the reference's own error plus 1e-6 for the rounding: just past each fails."""
    theirs = random(3, 5)
    scale = theirs.abs().max()
    for factor, verdict in ((0.99, "passed"), (1.01, "failed")):
        assert parity.formula_row("q", 0, 0, theirs + factor * 1e-10 * scale, theirs, scale)[-1] == verdict
        own, rms = 1e-5, theirs.square().mean(-1, keepdim=True).sqrt()
        ours = theirs + factor * (8 * own + 1e-6 * rms)
        assert parity.rounding_row("q", 0, 0, ours, theirs, theirs + own)[-1] == verdict
        ours = theirs + factor * (8 * own + 1e-6)
        assert parity.rounding_row("pattern", 0, 0, ours, theirs, theirs + own)[-1] == verdict
    model = tiny(tmp_path)
    off = rewritten(model, lambda b: replace(b, W_QKV=b.W_QKV * (1 + 1e-8)))
    table = parity.parity(off, some_ids(model, 31))
    assert {"q", "k", "v", "scores"} <= failing(table, "formula")


def test_half_precision_is_not_called_proved(tmp_path):
    """The files are proved in float32 and float64; what a bfloat16 model computes was never compared."""
    table = inspector.check(tiny(tmp_path, dtype="bfloat16"), ids=[1, 2, 3])
    assert table.attrs["verdict"] == "passed in float32 and float64"
    assert "not the bfloat16 numbers" in table.attrs["summary"]


def test_the_reference_is_eager_and_complete(tmp_path):
    model = tiny(tmp_path)
    reference = parity.load_reference(model.files, torch.float64)
    assert reference.config._attn_implementation == "eager"
    assert not reference.training
    assert next(reference.parameters()).dtype == torch.float64


def test_the_last_hidden_state_is_taken_before_the_final_layer_norm(tmp_path):
    """transformers' hidden_states[-1] is after ln_f; ours is compared before it."""
    model = tiny(tmp_path)
    seen = {}
    parity.run_reference(parity.load_reference(model.files, torch.float64), some_ids(model, 9), seen.__setitem__)
    assert sorted(seen) == [0, 1, 2]
    torch.testing.assert_close(seen[2]["resid_post"], list(forward.layers(model, forward.embed(model, some_ids(model, 9))))
                               [2].resid_post, rtol=0, atol=1e-10)
    torch.testing.assert_close(seen[1]["resid_post"], seen[2]["resid_pre"], rtol=0, atol=0)


def test_our_float32_error_is_bounded_by_the_reference_s_own(tmp_path):
    """An error of 50 times the reference's own in one head is found, though it is tiny in absolute terms."""
    model = tiny(tmp_path, dtype="float32")
    weight = model.weights.blocks[1].W_QKV
    ids = some_ids(model, 31)
    assert inspector.check(model, ids=ids, float64=False).attrs["passed"]
    noisy = weight.clone()
    noisy[:, 6:12] *= 1 + 3e-5                     # q of head 1.1
    wrong = rewritten(model, lambda b: replace(b, W_QKV=noisy) if b is model.weights.blocks[1] else b)
    table = parity.parity(wrong, ids, float64=False)
    failed = table[(table["verdict"] == "failed") & (table["layer"] == 1)]
    assert {("q", 1)} <= set(zip(failed["quantity"], failed["head"], strict=True))
    assert not {("q", 0), ("q", 2), ("q", 3)} & set(zip(failed["quantity"], failed["head"], strict=True))
