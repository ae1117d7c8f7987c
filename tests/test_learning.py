"""In-context learning: numbers typed by hand, the index base, windows within documents, and the loss along repeats."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import inspector
from inspector.errors import ArgumentError, TextError
from inspector.findings.ablation import ablate
from inspector.findings.cutting import cut_losses
from inspector.findings.learning import Difference, in_context, learned_in, loss_by_position, windows
from inspector.findings.prompts import draw

from .helpers import some_ids, tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"), n_positions=120)


def staircase(n, rows=1):
    """Losses of windows of n tokens in which token t, at position t, has loss t."""
    return torch.arange(1, n, dtype=torch.float64).expand(rows, -1)


# -- in_context --------------------------------------------------------------------------------------------------------

def test_token_500_minus_token_50_counts_positions_from_0():
    found = in_context(staircase(512, rows=3))
    assert found.published == Difference((50, 50), (500, 500), 450.0, 0.0)
    assert found.bands == Difference((41, 60), (481, 500), 490.5 - 50.5, 0.0)
    assert (found.n_windows, found.n_tokens) == (3, 512)


@pytest.mark.parametrize("token", [41, 60, 481, 500])
def test_the_bands_hold_their_first_and_last_token_and_no_neighbour(token):
    losses = torch.zeros(2, 511)
    losses[:, token - 1] = 20
    assert in_context(losses).bands.value == (1 if token > 100 else -1)
    outside = torch.full((2, 511), 20.0)
    outside[:, 40:60] = outside[:, 480:500] = 0
    assert in_context(outside).bands.value == 0


def test_in_shorter_windows_late_are_the_last_20_and_nothing_is_published():
    found = in_context(staircase(500))              # the last token is at position 499
    assert found.bands.late == (480, 499)
    assert found.bands.value == 489.5 - 50.5
    assert math.isnan(found.published.value)
    assert found.published.headline is None
    assert str(found.published) == "not measured: the windows end before token 500"
    assert in_context(staircase(501)).published.value == 450
    assert in_context(staircase(81)).bands.late == (61, 80)
    with pytest.raises(ArgumentError, match="at least 80 losses"):
        in_context(staircase(80))
    with pytest.raises(ArgumentError, match=r"shape \[511\]"):
        in_context(staircase(512)[0])


def test_errors_are_those_of_each_window_s_own_difference():
    """Windows differ by 100 nats as wholes and by 1, 2, 3 in what they gain: mean -2, standard error 1/sqrt(3)."""
    losses = torch.zeros(3, 511) + torch.tensor([[0.0], [100.0], [200.0]])
    losses[:, 480:500] -= torch.tensor([[1.0], [2.0], [3.0]])
    found = in_context(losses).bands
    assert found.value == pytest.approx(-2, abs=1e-5)
    assert found.se == pytest.approx(3**-0.5, abs=1e-5)


def test_no_number_is_stated_while_its_error_exceeds_a_tenth_of_a_nat():
    wide, narrow, single = (Difference((41, 60), (481, 500), -0.5, se) for se in (0.101, 0.1, math.nan))
    assert (wide.headline, single.headline) == (None, None)
    assert narrow.headline == -0.5
    assert str(wide) == "not stated: the standard error is 0.10 nats, above 0.1"
    assert str(single) == "not stated: one window gives no standard error"
    assert str(narrow) == "-0.500 ± 0.100 nats"


def test_the_demo_s_training_table_has_the_same_number_for_the_same_windows():
    """training.csv was written by the training script, with its own few lines for it."""
    held_out = torch.tensor(np.load(Path(__file__).parent / "data" / "held_out.npy").astype(np.int64))
    last = pd.read_csv(Path(inspector.__file__).parent / "demo" / "training.csv").query("layers == 4").iloc[-1]
    found = in_context(cut_losses(inspector.load("demo"), held_out, [()], fill="zero")[0])
    assert found.bands.value == pytest.approx(last["in_context"], abs=1e-4)
    assert found.bands.se == pytest.approx(last["in_context_se"], abs=1e-4)
    assert found.bands.headline is None             # 0.16 nats with 64 windows


# -- windows -----------------------------------------------------------------------------------------------------------

def test_windows_lie_side_by_side_within_one_document():
    ids = [1, 2, 3, 4, 5, 0, 6, 7, 0, 0, 8, 9, 10, 11, 12, 13, 14]
    assert windows(ids, 3, {0}).tolist() == [[1, 2, 3], [8, 9, 10], [11, 12, 13]]
    assert windows(ids, 3, ()).tolist() == [[1, 2, 3], [4, 5, 0], [6, 7, 0], [0, 8, 9], [10, 11, 12]]
    assert windows(ids, 8, {0}).shape == (0, 8)
    assert windows([], 3, ()).shape == (0, 3)


@pytest.mark.parametrize("bos", [False, True])
def test_a_text_is_measured_on_its_windows(model, bos):
    end, start = model.raw_config["eos_token_id"], model.config.bos_token_id
    row = [i for i in some_ids(model, 500).tolist() if i not in (end, start)]
    first, second = row[:200], row[200:390]
    size = 90 - bos
    parts = [[start] * bos + each[a:a + size] for each in (first, second) for a in (0, size)]
    losses = torch.stack([inspector.trace(model, ids=part).losses for part in parts])
    gain = losses[:, 69:89].mean(1) - losses[:, 40:60].mean(1)
    found = learned_in(model, ids=[*first, end, *second], size=90, bos=bos)
    assert (found.n_windows, found.n_tokens, found.bands.late) == (4, 90, (70, 89))
    assert found.bands.value == pytest.approx(float(gain.mean()), abs=1e-10)
    assert found.bands.se == pytest.approx(float(gain.std() / 2), abs=1e-10)


def test_windows_are_as_long_as_the_model_has_positions_for(model):
    assert learned_in(model, ids=[11] * 250).n_tokens == 120


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"ids": [11] * 119}, TextError, r"no document of the text \(119 tokens in all\) holds a window of 120"),
    ({"ids": [11] * 200, "size": 121}, ArgumentError, "positions for 120"),
    ({"ids": [11] * 200, "size": 80}, ArgumentError, "size is 80; expected a whole number of at least 81"),
    ({"ids": [11] * 60 + [7] + [11] * 60, "size": 81}, TextError, "holds a window of 81"),
    ({}, TextError, "give either"),
])
def test_what_cannot_be_measured_is_said(model, arguments, error, words):
    with pytest.raises(error, match=words):
        learned_in(model, **arguments)


# -- the loss along repeats --------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted", dtype="float64")


def test_the_planted_model_learns_at_the_second_token_of_copy_2_and_not_without_its_induction_head(planted):
    table = loss_by_position(planted, "2.0", period=20, n_sequences=4)
    assert table["position"].tolist() == list(range(1, 40))
    assert table["copy"].tolist() == [1] * 19 + [2] * 20
    unforeseen, learned = table["position"] <= 20, table["position"] > 20
    assert table["loss"][unforeseen].min() > 3
    assert table["loss"][learned].max() < 0.1
    assert table["loss_cut"].min() > 3


def test_it_is_the_loss_that_ablate_averages(model):
    how = {"period": 9, "repeats": 3, "n_sequences": 3, "bos": True, "seed": 6, "fill": "resample", "patterns": "frozen"}
    table = loss_by_position(model, "0.1 1.2", **how)
    counted = table["position"] > 1 + 9             # BOS and copy 1, and the first token of copy 2 is at 10
    cut = ablate(model, "0.1 1.2", n_controls=0, **how)
    assert table["loss"][counted].mean() == pytest.approx(cut.attrs["clean_loss"], abs=1e-10)
    assert table["loss_cut"][counted].mean() == pytest.approx(cut["loss"][0], abs=1e-10)
    assert table["copy"].tolist() == [1] * 9 + [2] * 9 + [3] * 9


def test_each_position_has_its_mean_and_error_over_sequences(model):
    losses = torch.stack([inspector.trace(model, ids=row.tolist()).losses
                          for row in draw(model, period=9, n_sequences=3, seed=0).ids])
    table = loss_by_position(model, period=9, n_sequences=3)
    assert list(table) == ["position", "copy", "loss", "loss_se"]
    assert table["loss"].tolist() == pytest.approx(losses.mean(0).tolist(), abs=1e-10)
    assert table["loss_se"].tolist() == pytest.approx((losses.std(0) / 3**0.5).tolist(), abs=1e-10)
