"""The real GPT-2 small: runs wherever its weights are in the Hugging Face cache, and skips with a reason elsewhere.

Expected values are published ones; their sources stand beside them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import inspector
from inspector.findings.scores import pattern_scores
from inspector.model.attention import mask_future, softmax

pytestmark = pytest.mark.gpt2
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def gpt2(gpt2_folder):
    return inspector.load(gpt2_folder)


def next_token(model, trace):
    """{token text: probability in percent} of the next token."""
    p = torch.softmax(trace.logits[-1].double(), -1) * 100
    return lambda text: float(p[model.tokenizer.encode(text)[0]])


def test_the_file_is_the_known_release(gpt2):
    assert gpt2.release == "openai-community/gpt2 model.safetensors"


@pytest.mark.parametrize("text", ["The cat sat on the mat.", "a", " \n\t", "naïve 😀 日本"])
def test_the_proof(gpt2, text):
    table = inspector.check(gpt2, text)
    assert table.attrs["verdict"] == "passed", table.attrs["summary"]


def test_the_patterns_of_transformer_explainer(gpt2):
    """poloclub/transformer-explainer, examples ex0 to ex4: patterns, scores and the last logits, within 1e-4."""
    arrays = np.load(DATA / "gpt2_small_patterns.npz")
    for i in range(5):
        trace = inspector.trace(gpt2, ids=arrays[f"ids_{i}"].tolist())
        rows, columns = np.tril_indices(len(trace.ids))
        assert np.abs(trace.pattern.numpy() - arrays[f"pattern_{i}"]).max() < 1e-4
        assert np.abs(trace.scores[:, :, rows, columns].numpy() - arrays[f"scores_{i}"]).max() < 1e-3
        assert np.abs(trace.logits[-1][arrays[f"top_ids_{i}"]].numpy() - arrays[f"top_logits_{i}"]).max() < 1e-3


def test_the_loss_of_hello_world(gpt2):
    """TransformerLens tests/acceptance/test_hooked_transformer.py: 5.331855773925781 with BOS, tolerance 4e-5."""
    assert float(inspector.trace(gpt2, "Hello world!", bos=True).losses.mean()) == pytest.approx(5.331855773925781, abs=4e-5)


def test_next_tokens(gpt2):
    """TransformerLens Main demo, cell 81, and Exploratory demo, cell 20 (percent, as printed)."""
    trace = inspector.trace(gpt2, "The cat sat on the mat.", bos=True)
    assert next_token(gpt2, trace)(" The") == pytest.approx(11.98, abs=0.01)
    trace = inspector.trace(gpt2, "After John and Mary went to the store, John gave a bottle of milk to", bos=True)
    p = next_token(gpt2, trace)
    want = {" Mary": 70.07, " the": 4.67, " John": 4.54, " them": 4.11, " his": 2.73, " her": 1.24, " a": 0.74,
            " their": 0.73, " Jesus": 0.49, " him": 0.42}
    assert {token: p(token) for token in want} == pytest.approx(want, abs=0.01)


@pytest.mark.parametrize(("text", "bos", "first", "second", "difference"), [
    ("After John and Mary went to the store, Mary gave a bottle of milk to", True, " John", " Mary", 4.276),
    ("After John and Mary went to the store, John gave a bottle of milk to", True, " John", " Mary", -2.738),
    ("Claire and Mary went to the shops, then Mary gave a bottle of milk to", True, " Claire", " Mary", 6.754),
    ("Claire and Mary went to the shops, then Mary gave a bottle of milk to", False, " Claire", " Mary", 2.782),
])
def test_logit_differences(gpt2, text, bos, first, second, difference):
    """TransformerLens Main demo, cells 35 and 95."""
    logits = inspector.trace(gpt2, text, bos=bos).logits[-1]
    a, b = (gpt2.tokenizer.encode(token)[0] for token in (first, second))
    assert float(logits[a] - logits[b]) == pytest.approx(difference, abs=2e-3)


def test_greedy_continuation_of_the_dog(gpt2):
    """transformers tests/models/gpt2: ids [464, 3290], 20 tokens, no BOS."""
    ids = [464, 3290]
    while len(ids) < 20:
        ids.append(int(inspector.trace(gpt2, ids=ids).logits[-1].argmax()))
    assert ids == [464, 3290, 373, 1043, 287, 257, 2214, 1474, 262, 16246, 286, 2688, 290, 2688, 27262, 13, 198, 198, 464,
                   3290]


def test_the_seed_0_matrices(gpt2):
    """TransformerLens Exploratory demo, cells 98-100: 144 heads x 3 scores (induction averages 101 entries)."""
    golden = json.loads((DATA / "gpt2_golden.json").read_text())["tl_exploratory_seed0"]
    table = inspector.heads(gpt2, protocol="tl-seed0")
    for name in ("previous_token", "duplicate_token", "induction"):
        np.testing.assert_allclose(table[name], np.ravel(golden[name]), rtol=0, atol=2e-4)


def test_the_canonical_induction_heads(gpt2):
    """Nine published measurements put the same five heads first, all above 0.8."""
    table = inspector.heads(gpt2, threshold=0.7)
    found = {(row.layer, row.head) for row in table.itertuples() if "induction" in row.verdict}
    assert found == {(5, 1), (5, 5), (6, 9), (7, 2), (7, 10)}


def test_the_previous_token_head_on_the_five_prompts(gpt2):
    arrays = np.load(DATA / "gpt2_small_patterns.npz")
    for i in range(5):
        trace = inspector.trace(gpt2, ids=arrays[f"ids_{i}"].tolist())
        assert float(pattern_scores(trace.pattern, trace.ids)["previous_token"][4, 11]) > 0.999
        torch.testing.assert_close(softmax(mask_future(trace.scores)), trace.pattern, rtol=0, atol=1e-7)
