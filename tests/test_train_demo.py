"""The demo's training script: its batches, its floors, and that a stopped run goes on as if it had never stopped."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "scripts" / "train_demo.py"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The script as a module, on a made-up stream of ids instead of docstrings, with a tiny width."""
    spec = importlib.util.spec_from_file_location("train_demo", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ids = np.random.default_rng(0).integers(1, 2048, 5000).astype(np.int32)
    for name, value in {"WIDTH": 12, "HEADS": 2, "TOKENS_PER_STEP": 2048}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "prepare", lambda folder: (
        (folder / "tokenizer.json").write_text("{}"), (ids, ids[:600]))[1])
    return module


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(script, tmp_path, monkeypatch):
    options = {"layers": 1, "steps": 9, "seed": 0, "share": 0.25, "save_every": 2}
    script.train(tmp_path / "whole", **options)
    real = script.batch

    def stop_at_5(step, **rest):
        if step == 5:
            raise KeyboardInterrupt
        return real(step, **rest)

    monkeypatch.setattr(script, "batch", stop_at_5)
    with pytest.raises(KeyboardInterrupt):
        script.train(tmp_path / "stopped", **options)
    monkeypatch.setattr(script, "batch", real)
    script.train(tmp_path / "stopped", **options)
    one, other = (torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("whole", "stopped"))
    assert one["step"] == other["step"] == 9
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])
    assert sorted(p.name for p in (tmp_path / "stopped").glob("step_*")) == sorted(
        p.name for p in (tmp_path / "whole").glob("step_*"))


def test_repeated_rows_repeat_and_stay_inside_the_context(script):
    data = np.arange(3000, dtype=np.int32) % 2048
    for step in (0, 5, 50, 60, 77, 99):
        ids, positions, n_repeated = script.batch(step, data=data, seed=0, steps=100, share=0.25)
        assert ids.shape == positions.shape
        assert ids.numel() <= 2048
        assert n_repeated >= 1
        assert int(positions.max()) < 256
        assert (positions[:, 1:] - positions[:, :-1] == 1).all()
        assert step >= 50 or (positions[:, 0] == 0).all()
        for row in ids[:n_repeated]:
            periods = [p for p in range(8, len(row) // 2 + 1) if torch.equal(row[-2 * p:-p], row[-p:])]
            assert periods, "no block stands twice at the end of the row"


def test_the_bigram_floor_by_hand(script):
    """Train a b a b a c; held out a b: Witten-Bell p(b|a) = (2 + 2 p(b)) / (3 + 2), p(b) = (2 + 1) / (6 + 2048)."""
    train = np.array([1, 2, 1, 2, 1, 3])
    p_b = 3 / 2054
    unigram, bigram = script.ngram_floors(train, np.array([[1, 2]]))
    assert unigram == pytest.approx(-np.log(p_b), abs=1e-12)
    assert bigram == pytest.approx(-np.log((2 + 2 * p_b) / 5), abs=1e-12)
    # After a token that was never seen only the unigram is left.
    assert script.ngram_floors(train, np.array([9, 2]))[1] == pytest.approx(-np.log(p_b), abs=1e-12)


def test_between_30_and_40_checkpoints_on_a_log_scale(script):
    steps = script.logged_steps(2400)
    assert 30 <= len(steps) <= 40
    assert steps[0] == 0
    assert steps[-1] == 2400
    ratios = [b / a for a, b in pairwise(steps[5:])]
    assert max(ratios) < 1.35


def test_sinusoids_step_back_by_one_linear_map(script):
    """The start of the position embeddings: one matrix takes every position to the one before."""
    table = script.sinusoids(64, 24).double()
    back = torch.linalg.lstsq(table[1:], table[:-1]).solution
    torch.testing.assert_close(table[1:] @ back, table[:-1], rtol=0, atol=1e-6)
