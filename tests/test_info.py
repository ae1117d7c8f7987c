"""`info`: the counts are those of GPT-2, of transformers, and of the loaded tensors; the costs are worked out by hand."""

import json
import re

import pytest

import inspector
from inspector.checkpoint.config import parse
from inspector.errors import ArgumentError, TextError
from inspector.model.sizes import cost, text_shapes, weight_shapes
from inspector.record import to_json

from .models import GPT2_CONFIG, save, tiny_folder, tiny_model

GPT2 = parse(json.loads(GPT2_CONFIG))
BYTES = 4                                                               # of a float32


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return inspector.load(tiny_folder(tmp_path_factory.mktemp("tiny")))


def test_gpt2_small_in_numbers(stand_in_folder):
    found = inspector.info(inspector.load(stand_in_folder), "The cat sat on the", tokens=1024)
    parts = found["parameters"]
    assert parts["attention, one layer, matrices"] == 2_359_296
    assert parts["attention, one layer, with biases"] == 2_362_368
    assert parts["position embedding"] == 786_432
    assert parts["token embedding"] == 38_597_376
    assert parts["MLP, one layer"] == 4_722_432
    assert parts["LayerNorms, one layer"] == 3_072
    assert parts["all layers"] == 85_054_464
    assert parts["in all"] == 124_439_808
    assert found["text"]["ids"] == [464, 3797, 3332, 319, 262]
    assert found["text"]["labels"] == ["The", "·cat", "·sat", "·on", "·the"]
    assert found["text"]["cost"]["scores_per_model"] == 3_600
    assert found["cost"]["kv_bytes"] == 75_497_472
    assert found["tokenizer"] == {"kind": "BPE", "vocabulary": 50_257}
    assert found["release"] is None
    assert found["dtype"] == "float32"


@pytest.mark.gpt2
def test_the_real_gpt2_is_known(gpt2_folder):
    found = inspector.info(inspector.load(gpt2_folder))
    assert found["release"] == "openai-community/gpt2 model.safetensors"
    assert found["parameters"]["in all"] == 124_439_808


@pytest.mark.parametrize(("n", "head", "layer", "whole"), [
    (1, 1, 12, 144), (5, 25, 300, 3_600), (1_024, 1_048_576, 12_582_912, 150_994_944)])
def test_what_n_tokens_cost_gpt2_small(n, head, layer, whole):
    found = cost(GPT2, n, BYTES)
    assert (found["scores_per_head"], found["scores_per_layer"], found["scores_per_model"]) == (head, layer, whole)
    assert found["unmasked_per_head"] == sum(i + 1 for i in range(n))
    assert found["unmasked_per_layer"] == 12 * found["unmasked_per_head"]
    assert found["unmasked_per_model"] == 144 * found["unmasked_per_head"]
    assert found["grid_bytes"] == 4 * whole
    assert found["fits"] is True


def test_keys_and_values_of_gpt2_small():
    assert cost(GPT2, 1_024, BYTES)["kv_bytes"] == 75_497_472
    assert cost(GPT2, 1_024, 2)["kv_bytes"] == 75_497_472 // 2
    assert cost(GPT2, 1, BYTES)["kv_bytes"] == 2 * 12 * 768 * 4


@pytest.mark.parametrize("n", [1_025, 1_048_576, 10 ** 15])
def test_a_cost_needs_no_positions(n):
    found = cost(GPT2, n, BYTES)
    assert found["fits"] is False
    assert found["scores_per_head"] == n * n
    assert found["unmasked_per_model"] == 144 * n * (n + 1) // 2
    assert found["kv_bytes"] == 73_728 * n
    assert json.loads(to_json(found)) == found                          # exact whole numbers, also beyond 2^53


@pytest.mark.parametrize("n", [0, -1, 1.5, "5", True, [5]])
def test_a_number_of_tokens_that_is_none(n, model):
    with pytest.raises(ArgumentError, match=r"tokens is .*; expected a whole number of at least 1"):
        inspector.info(model, tokens=n)


@pytest.mark.parametrize("tie", [True, False])
def test_the_parts_add_up_to_transformers_count(tie, tmp_path):
    theirs = tiny_model(tie_word_embeddings=tie)
    parts = inspector.info(inspector.load(save(theirs, tmp_path)))["parameters"]
    assert parts["in all"] == theirs.num_parameters() == sum(p.numel() for p in theirs.parameters())
    assert parts["unembedding of its own"] == (0 if tie else 97 * 24)
    assert parts["attention, one layer, matrices"] == 4 * 24 * 24
    assert parts["attention, one layer, with biases"] == 4 * 24 * 24 + 4 * 24
    assert parts["MLP, one layer"] == sum(p.numel() for p in theirs.transformer.h[0].mlp.parameters())
    outside = ("token embedding", "position embedding", "all layers", "final LayerNorm", "unembedding of its own")
    assert parts["in all"] == sum(parts[name] for name in outside)


def test_weight_shapes_are_those_of_the_tensors(model):
    block, w, shapes = model.weights.blocks[0], model.weights, weight_shapes(model.config)
    tensors = {"W_E": [w.W_E], "W_pos": [w.W_pos], "W_U": [w.W_U],
               "W_Q, W_K, W_V (each layer)": [block.W_Q, block.W_K, block.W_V],
               "b_Q, b_K, b_V (each layer)": [block.b_Q, block.b_K, block.b_V], "W_O (each layer)": [block.W_O],
               "b_O (each layer)": [block.b_O], "W_in (each layer)": [block.W_in], "b_in (each layer)": [block.b_in],
               "W_out (each layer)": [block.W_out], "b_out (each layer)": [block.b_out],
               "LayerNorm weight, bias": [block.ln_1_weight, block.ln_2_bias, w.ln_f_weight]}
    assert set(shapes) == set(tensors)
    for name, group in tensors.items():
        for tensor in group:
            assert list(tensor.shape) == shapes[name], name


def test_shapes_of_a_text_are_those_of_its_trace(model):
    found = inspector.info(model, "The cat sat on the")["text"]
    trace = inspector.trace(model, "The cat sat on the")
    shapes = {name: shape for name, _, shape in found["shapes"]}
    assert found["ids"] == trace.ids.tolist()
    assert found["labels"] == trace.labels
    assert list(shapes) == ["X", "Q", "K", "V", "QK^T", "pattern", "z", "output"]
    for name, tensor in {"X": trace.resid_pre, "Q": trace.q, "K": trace.k, "V": trace.v, "QK^T": trace.scores,
                         "pattern": trace.pattern, "z": trace.z, "output": trace.resid_mid}.items():
        assert list(tensor[0].shape) == shapes[name], name
    assert found["cost"] == cost(model.config, 5, BYTES)


def test_the_sizes_of_a_text_join():
    for name, made, shape in text_shapes(GPT2, 7):
        factors = [[int(n) for n in group.split(",")] for group in re.findall(r"\[([\d, ]+)\]", made)]
        if len(factors) == 2:
            (rows, inner), (joined, columns) = factors
            assert inner == joined, name
            assert shape[-2:] == [rows, columns], name
    assert {name: shape for name, _, shape in text_shapes(GPT2, 5)}["Q"] == [12, 5, 64]


def test_ids_bos_and_dtype_reach_the_numbers(tmp_path, model):
    assert inspector.info(model, ids=[1, 2, 3])["text"]["ids"] == [1, 2, 3]
    assert inspector.info(model, "The", bos=True)["text"]["ids"][0] == 270
    half = inspector.load(tiny_folder(tmp_path), dtype="float16")
    assert inspector.info(half, tokens=10)["cost"]["kv_bytes"] * 2 == inspector.info(model, tokens=10)["cost"]["kv_bytes"]
    with pytest.raises(TextError, match="outside the vocabulary"):
        inspector.info(model, ids=[271])
    with pytest.raises(TextError, match="not both"):
        inspector.info(model, "The", ids=[1])


def test_info_is_plain_and_complete(model, tmp_path):
    found = inspector.info(model, "The cat", tokens=9)
    assert set(found) == {"source", "config", "parameters", "weight_shapes", "dtype", "tokenizer", "sha256", "release",
                          "text", "cost", "run"}
    again = json.loads(to_json(found))
    assert again["parameters"] == found["parameters"]
    assert again["config"]["d_head"] == 6
    assert again["config"]["d_mlp"] == 50
    assert again["run"]["arguments"]["tokens"] == 9
    bare = inspector.info(inspector.load(save(tiny_model(), tmp_path)))
    assert bare["tokenizer"] is None
    assert "text" not in bare
    assert "cost" not in bare
