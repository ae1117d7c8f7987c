"""The shipped demo model, on ids and text it has not seen: the heads it must have, where it must have them."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import inspector
from inspector.findings.prompts import draw
from inspector.model.forward import embed, layers, losses, unembed

DATA = Path(__file__).parent / "data"
DEMO = Path(inspector.__file__).parent / "demo"


@pytest.fixture(scope="module")
def demo():
    return inspector.load("demo")


def row_losses(model, ids):
    found = []
    for rows in ids.split(16):
        *_, last = layers(model, embed(model, rows))
        found.append(losses(unembed(model, last.resid_post), rows))
    return torch.cat(found).double()


def copies(model, period):
    """(loss in the first copy, loss in the second), nats, over 16 unseen sequences."""
    loss = row_losses(model, draw(model, period=period, seed=123).ids).mean(0)
    return float(loss[:period - 1].mean()), float(loss[period:].mean())


@pytest.mark.parametrize("period", [50, 100])
def test_it_has_a_previous_token_head_and_an_induction_head(demo, period):
    table = inspector.heads(demo, period=period, seed=123)
    assert table["previous_token"].max() > 0.7
    best = table.loc[table["induction"].idxmax()]
    assert best["induction"] > 0.8
    assert best["induction_control"] < 0.05
    assert "induction" in best["verdict"]


def test_induction_holds_to_the_end_of_its_context(demo):
    assert inspector.heads(demo, period=128, seed=123)["induction"].max() > 0.8
    assert copies(demo, 128)[1] < 1.0


@pytest.mark.parametrize("period", [50, 100])
def test_the_second_copy_is_predicted_and_the_first_cannot_be(demo, period):
    first, second = copies(demo, period)
    assert first >= math.log(demo.config.vocab_size) - 0.1
    assert second < 0.5


def test_previous_token_in_every_band_of_25_positions(demo):
    """The best previous-token head is above 0.5 in each of the ten bands; the five positions left over read 0.49."""
    ids = draw(demo, period=128, seed=123).control
    pattern = torch.stack([inspector.trace(demo, ids=row).pattern for row in ids[:4]]).mean(0)     # [layer, head, q, k]
    back = pattern.diagonal(-1, -2, -1)                                                            # [layer, head, query 1..]
    bands = torch.stack([band.mean(-1) for band in back[..., :250].split(25, dim=-1)])             # [band, layer, head]
    layer, head = divmod(int(back.mean(-1).argmax()), demo.config.n_head)
    assert bands[:, layer, head].min() > 0.5


@pytest.fixture(scope="module")
def held_out():
    """Docstrings that were kept out of training, as windows of ids, and the bigram's loss on the very same windows."""
    facts = json.loads((DATA / "held_out.json").read_text())
    return facts, torch.from_numpy(np.load(DATA / "held_out.npy").astype(np.int64))


def test_it_reads_unseen_prose_better_than_a_bigram(demo, held_out):
    facts, ids = held_out
    loss = row_losses(demo, ids)
    assert float(loss.mean()) < facts["bigram_nats"] - 0.5
    late, early = loss[:, -20:].mean(1), loss[:, 40:60].mean(1)
    rise = late - early
    assert float(rise.mean()) <= 2 * float(rise.std()) / len(rise) ** 0.5


def test_the_training_table_shows_the_heads_growing_and_the_control_without(demo):
    table = pd.read_csv(DEMO / "training.csv")
    deep, shallow = table[table["layers"] == 4], table[table["layers"] == 1]
    assert 30 <= len(deep) <= 40
    assert deep["step"].is_monotonic_increasing
    assert deep["induction"].iloc[0] < 0.1
    assert deep["induction"].iloc[-1] > 0.8
    assert deep["second_copy_loss"].iloc[-1] < 0.5
    # One layer cannot hold the circuit: no head looks where what followed would be, and no verdict is ever given.
    assert len(shallow) >= 30
    assert shallow["step"].iloc[-1] == deep["step"].iloc[-1]
    assert shallow["induction"].max() < 0.1
    assert shallow["induction_verdicts"].max() == 0


def test_the_last_row_of_the_table_is_the_shipped_model(demo):
    row = pd.read_csv(DEMO / "training.csv").query("layers == 4").iloc[-1]
    table = inspector.heads(demo, period=50)
    assert table["induction"].max() == pytest.approx(row["induction"], abs=1e-3)
    assert table["previous_token"].max() == pytest.approx(row["previous_token"], abs=1e-3)


def test_it_is_small_and_looks_nothing_up(demo, monkeypatch):
    import huggingface_hub
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *a, **k: pytest.fail("looked at the hub"))
    assert inspector.load("demo").tokenizer is not None
    assert sum(path.stat().st_size for path in DEMO.iterdir() if path.is_file()) < 10e6
    assert demo.config.n_layer >= 4
    assert demo.config.n_head >= 4
    assert demo.config.n_positions >= 256


def test_the_proof_holds_on_it(demo):
    assert inspector.check(demo, "The cat sat on the mat.").attrs["verdict"] == "passed"
