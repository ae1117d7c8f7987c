"""Scores, prompts and verdicts: closed forms, fractions by hand, real patterns of GPT-2, and controls that bite."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import inspector
from inspector.errors import ArgumentError, InspectorError, NumericsError, TextError
from inspector.findings.cells import MATCHING, POSITIONAL, SUMS, copy_masks, find_copies, score_cells
from inspector.findings.prompts import draw, find_period, symbols
from inspector.findings.protocols import PROTOCOLS
from inspector.findings.scores import SCORES, pattern_scores, queries, uniform_rows
from inspector.findings.scoring import chosen_rows, score_sequences, uniform_levels
from inspector.findings.table import entries_per_query
from inspector.findings.verdicts import holm, p_value

from . import models
from .helpers import random, tiny

DATA = Path(__file__).parent / "data"
STRIPE = PROTOCOLS["stripe"]


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def pointing(n, where):
    """A pattern [1, n, n] in which query i looks at key where(i) alone (at itself where that is before the text)."""
    pattern = torch.zeros(1, n, n, dtype=torch.float64)
    for i in range(n):
        key = where(i)
        pattern[0, i, key if 0 <= key <= i else i] = 1
    return pattern


# -- closed forms ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("period", "repeats", "bos"),
                         [(50, 2, False), (50, 2, True), (7, 3, False), (5, 4, True), (2, 2, False)])
def test_uniform_levels_are_the_closed_forms(period, repeats, bos):
    row = symbols(period, repeats, bos)
    n, o = len(row), int(bos)
    level = uniform_levels(row[None], STRIPE, period)
    previous = (harmonic(n) - 1) / (n - 1)
    for name in POSITIONAL:
        assert level[name] == pytest.approx(previous, abs=1e-14)
    # Copy c + 1 of a token has c earlier ones, each with a follower that it can see.
    matching = [c / (i + 1) for i in range(o + period, n) for c in [(i - o) // period]]
    for name in MATCHING:
        assert level[name] == pytest.approx(sum(matching) / len(matching), abs=1e-14)
    assert level["entropy"] == pytest.approx(sum(math.log(i + 1) for i in range(1, n)) / (n - 1), abs=1e-13)
    assert level["entropy_relative"] == pytest.approx(1, abs=1e-13)


def test_uniform_levels_at_the_defaults():
    """L = 50, m = 2, no BOS: 0.0423, 0.01376 and 3.674 nats; (H_2L - H_L) / L for the matching scores."""
    level = uniform_levels(symbols(50, 2, False)[None], STRIPE, 50)
    assert round(level["previous_token"], 4) == 0.0423
    assert level["induction"] == pytest.approx((harmonic(100) - harmonic(50)) / 50, abs=1e-14)
    assert round(level["induction"], 5) == 0.01376
    assert round(level["entropy"], 3) == 3.674


@pytest.mark.parametrize(("period", "repeats", "bos"), [(50, 2, False), (9, 3, True), (25, 4, True)])
def test_perfect_heads_score_exactly_one_and_zero_elsewhere(period, repeats, bos):
    row = symbols(period, repeats, bos)
    n, o = len(row), int(bos)
    heads = {
        "previous_token": pointing(n, lambda i: i - 1),
        "current_token": pointing(n, lambda i: i),
        "first_token": pointing(n, lambda i: 0),
        "duplicate_token": pointing(n, lambda i: i - period if i >= o + period else i),
        "induction": pointing(n, lambda i: i - period + 1 if i >= o + period else i),
    }
    for name, pattern in heads.items():
        found = pattern_scores(pattern, row)
        assert float(found[name]) == 1.0, name
        assert float(found["entropy"]) == 0.0
        assert float(found["entropy_relative"]) == 0.0
    first = pattern_scores(heads["first_token"], row)
    assert float(first["previous_token"]) == pytest.approx(1 / (n - 1), abs=1e-15)          # query 1 alone
    assert float(first["current_token"]) == 0.0
    # The first id is the earlier copy (m - 1 times) and, with BOS in front, no key of these is position 0.
    expected = 0.0 if bos else (repeats - 1) / (n - period)
    assert float(first["duplicate_token"]) == pytest.approx(expected, abs=1e-15)


def test_earlier_copies_are_summed():
    """m = 3: a head that splits itself over both earlier copies scores 1; one that finds only the first scores 1 too."""
    row = symbols(4, 3, False)
    both = pointing(12, lambda i: i - 4 if i >= 4 else i)
    for i in range(8, 12):
        both[0, i] = 0
        both[0, i, [i - 4, i - 8]] = 0.5
    assert float(pattern_scores(both, row)["duplicate_token"]) == 1.0
    oldest = pointing(12, lambda i: i % 4 if i >= 4 else i)
    assert float(pattern_scores(oldest, row)["duplicate_token"]) == 1.0
    # The stripe by hand: followers of positions 0 and 4 are 1 and 5, so query 8 gets 0.3 + 0.2.
    some = uniform_rows(0, 12).clone()
    some[0, 8] = 0
    some[0, 8, [1, 5, 3]] = torch.tensor([0.3, 0.2, 0.5], dtype=torch.float64)
    by_hand = (sum(1 / (i + 1) for i in range(4, 8)) + 0.5 + sum(2 / (i + 1) for i in range(9, 12))) / 8
    assert float(pattern_scores(some, row)["induction"]) == pytest.approx(by_hand, abs=1e-15)


def test_a_text_is_scored_where_a_token_came_before():
    """a b a c a b: queries 2, 4, 5 have earlier copies; by hand on uniform rows."""
    row = torch.tensor([1, 2, 1, 3, 1, 2])
    found = pattern_scores(uniform_rows(0, 6), row)
    assert float(found["duplicate_token"]) == pytest.approx((1 / 3 + 2 / 5 + 1 / 6) / 3, abs=1e-15)
    assert float(found["induction"]) == pytest.approx((1 / 3 + 2 / 5 + 1 / 6) / 3, abs=1e-15)
    assert queries(row)["induction"].tolist() == [False, False, True, False, True, True]
    nothing = pattern_scores(uniform_rows(0, 3), torch.tensor([1, 2, 3]))
    assert math.isnan(float(nothing["induction"]))
    assert float(nothing["previous_token"]) == pytest.approx((1 / 2 + 1 / 3) / 2, abs=1e-15)


def test_given_patterns_are_not_changed_and_lists_equal_one_by_one():
    patterns = [torch.softmax(random(3, n, n, seed=n).masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf), -1)
                for n in (5, 9, 2)]
    rows = [torch.arange(5) % 3, torch.arange(9) % 4, torch.tensor([7, 7])]
    before = [p.clone() for p in patterns]
    together = pattern_scores(patterns, rows)
    for one, row, found, old in zip(patterns, rows, together, before, strict=True):
        alone = pattern_scores(one, row)
        assert torch.equal(one, old)
        for name in SCORES:
            torch.testing.assert_close(found[name], alone[name], rtol=0, atol=0, equal_nan=True)
    stacked = pattern_scores(patterns[1].expand(4, -1, -1, -1), rows[1])
    torch.testing.assert_close(stacked["induction"][2], together[1]["induction"], rtol=0, atol=1e-15)


@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 4), (2, 6, 6)])
def test_patterns_that_do_not_fit_are_refused(shape):
    with pytest.raises(ArgumentError, match=r"do not fit"):
        pattern_scores(torch.ones(shape), torch.arange(5))


# -- real patterns of GPT-2 small ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def real():
    """Five prompts: ids, pattern [12, 12, n, n] and scores."""
    return np.load(DATA / "gpt2_small_patterns.npz"), json.loads((DATA / "gpt2_golden.json").read_text())


def test_real_patterns_give_the_published_means(real):
    """Means over all rows but the first of five prompts, beside those computed from the same arrays elsewhere."""
    arrays, golden = real
    want, total, sums = golden["transformer_explainer"], 0, {}
    for i in range(5):
        pattern = torch.from_numpy(arrays[f"pattern_{i}"]).double()
        found, rows = pattern_scores(pattern, torch.from_numpy(arrays[f"ids_{i}"])), pattern.shape[-1] - 1
        total += rows
        for name in POSITIONAL:
            sums[name] = sums.get(name, 0) + rows * found[name]
    assert total == want["rows"] == 26
    for name, column in (("first_token", "first_token_mean"), ("previous_token", "prev_token_mean"),
                         ("current_token", "current_token_mean")):
        torch.testing.assert_close(sums[name] / total, torch.tensor(want[column], dtype=torch.float64), rtol=0, atol=1e-6)
    assert round(float(sums["previous_token"][4, 11] / total), 4) == 0.9998
    by_layer = (sums["first_token"] / total).mean(1)
    published = [0.35, 0.56, 0.60, 0.67, 0.69, 0.82, 0.81, 0.87, 0.81, 0.87, 0.89, 0.75]
    # Two digits are printed; layer 3 is 0.6649 in the arrays themselves and stands as 0.67.
    assert by_layer.tolist() == pytest.approx(published, abs=0.0052)


def test_real_scores_give_the_real_patterns(real):
    """Our mask and softmax on GPT-2's own scores: its own patterns, as float32 gives them."""
    from inspector.model.attention import mask_future, softmax
    arrays, _ = real
    for i in range(5):
        pattern = torch.from_numpy(arrays[f"pattern_{i}"])
        n = pattern.shape[-1]
        scores = torch.zeros(12, 12, n, n)
        rows, columns = np.tril_indices(n)
        scores[:, :, rows, columns] = torch.from_numpy(arrays[f"scores_{i}"])
        assert (softmax(mask_future(scores)) - pattern).abs().max() < 3e-7


# -- prompts ---------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"), n_positions=60)


def test_prompts_repeat_distinct_ids_and_controls_do_not(model):
    for bos in (False, True):
        prompts = draw(model, period=11, repeats=3, n_sequences=9, bos=bos, seed=4)
        ids, control = prompts.ids[:, int(bos):], prompts.control[:, int(bos):]
        assert prompts.ids.shape == prompts.control.shape == (9, 33 + bos)
        for row in ids:
            assert len(set(row[:11].tolist())) == 11
            assert row.tolist() == row[:11].tolist() * 3
        assert all(len(set(row.tolist())) == 33 for row in control)
        assert not {5, 7} & set(ids.flatten().tolist())                    # BOS and EOS of the config
        assert not bos or set(prompts.ids[:, 0].tolist()) == {5}
        assert prompts.symbols.tolist() == [-1] * bos + list(range(11)) * 3


def test_every_id_but_the_special_ones_is_drawn(model):
    seen = set(draw(model, period=20, n_sequences=200).ids.flatten().tolist())
    assert seen == set(range(97)) - {5, 7}


def test_the_same_seed_draws_the_same_and_another_does_not(model):
    one, two, other = (draw(model, period=9, seed=s) for s in (1, 1, 2))
    assert torch.equal(one.ids, two.ids)
    assert torch.equal(one.control, two.control)
    assert not torch.equal(one.ids, other.ids)


@pytest.mark.parametrize(("options", "says"), [
    ({"period": 31}, "at most 30"), ({"period": 1}, "period is 1"), ({"period": 9, "repeats": 1}, "repeats is 1"),
    ({"period": 9, "n_sequences": 0}, "n_sequences is 0"), ({"period": 2.5}, "period is 2.5"),
    ({"period": 9, "low": 90, "high": 200}, "vocabulary has 97"), ({"period": 9, "low": 90}, "at most 3"),
    ({"period": 30, "bos": True}, "at most 29"),
])
def test_prompts_that_cannot_be_drawn_are_refused(model, options, says):
    with pytest.raises(ArgumentError, match=says):
        draw(model, **options)


def test_seed_0_draws_the_published_ids(stand_in_free_model):
    """tl-seed0 is torch.manual_seed(0); torch.randint(100, 20000, (2, 100)): the ids stand in the golden file."""
    golden = json.loads((DATA / "gpt2_golden.json").read_text())["tl_exploratory_seed0"]
    rule = PROTOCOLS["tl-seed0"]
    prompts = draw(stand_in_free_model, period=rule.period, n_sequences=rule.n_sequences, low=rule.low, high=rule.high,
                   distinct=rule.distinct)
    assert prompts.ids[:, :100].tolist() == golden["tokens_first_half"]
    assert torch.equal(prompts.ids[:, :100], prompts.ids[:, 100:])


@pytest.fixture(scope="module")
def stand_in_free_model(tmp_path_factory):
    """A tiny model with GPT-2's vocabulary size and 300 positions."""
    return tiny(tmp_path_factory.mktemp("wide"), dtype="float32", vocab_size=50257, n_positions=300, bos_token_id=50256,
                eos_token_id=50256)


@pytest.mark.parametrize(("row", "period"), [
    ([1, 2, 3, 1, 2, 3], 3), ([1, 2, 3, 1, 2, 3, 1], 3), ([1, 1, 1, 1], 1), ([1, 2, 3, 4], None), ([1, 2, 1, 2, 3], None),
    ([1, 2, 1, 2, 1, 2], 2), ([1], None), ([1, 1], 1), ([9, 1, 2, 1, 2], None),
])
def test_the_period_is_found_in_given_ids(row, period):
    assert find_period(torch.tensor([row])) == period
    assert find_period(torch.tensor([[99, *row]]), bos_id=99) == period


# -- protocols -------------------------------------------------------------------------------------------------------

def test_whole_diagonals_have_one_entry_more():
    """tl-seed0 averages 199, 100 and 101 entries; the 101st is query 99 looking at key 0."""
    masks = chosen_rows(symbols(100, 2, False), PROTOCOLS["tl-seed0"], 100)
    assert {name: int(masks[name].sum()) for name in ("previous_token", "duplicate_token", "induction")} == {
        "previous_token": 199, "duplicate_token": 100, "induction": 101}
    assert int(chosen_rows(symbols(50, 2, False), PROTOCOLS["tl-main"], 50)["induction"].sum()) == 51
    song = chosen_rows(symbols(25, 2, False), PROTOCOLS["song2024"], 25)["induction"]
    assert song.nonzero().flatten().tolist() == list(range(25, 50))


def test_a_perfect_head_under_each_protocol(monkeypatch, model):
    """The same perfect induction head: 1 on the stripe; 100/101 on a whole diagonal if it rests elsewhere at query L-1;
    1/2 as the mean over Olsson's entries when it splits itself over the earlier copies."""
    each = entries_per_query(symbols(25, 4, True))
    assert each == pytest.approx(150 / 75, abs=1e-15)
    row = symbols(25, 4, True)
    perfect = torch.zeros(1, 101, 101, dtype=torch.float64)
    for i in range(101):
        keys = [j for j in range(2, i + 1) if row[j - 1] == row[i] and j - 1 < i and i > 25]
        perfect[0, i, keys or [i]] = 1 / max(1, len(keys))
    stripe = float(pattern_scores(perfect, row)["induction"])
    assert stripe == pytest.approx(1, abs=1e-14)
    assert stripe / each == pytest.approx(0.5, abs=1e-14)
    # By hand: the mean over all 150 entries.
    entries = [float(perfect[0, i, j]) for i in range(26, 101) for j in range(2, i + 1)
               if row[j - 1] == row[i] and j - 1 < i]
    assert len(entries) == 150
    assert sum(entries) / 150 == pytest.approx(stripe / each, abs=1e-14)


@pytest.mark.parametrize("name", ["tl-main", "song2024", "olsson"])
def test_protocols_read_their_own_cells(stand_in_free_model, name):
    """Each protocol's induction and previous-token score by a second route: the pattern's diagonals with numpy."""
    rule = PROTOCOLS[name]
    model = stand_in_free_model
    table = inspector.heads(model, protocol=name)
    prompts = draw(model, period=rule.period, repeats=rule.repeats, n_sequences=rule.n_sequences, bos=rule.bos,
                   low=rule.low, high=rule.high, distinct=rule.distinct)
    induction, previous = [], []
    for row in prompts.ids:
        pattern = inspector.trace(model, ids=row).pattern.numpy().astype(np.float64)
        length = rule.period
        if name == "song2024":
            pattern = pattern[:, :, 1:, 1:]
            pattern = pattern / pattern.sum(-1, keepdims=True)
            induction.append(np.diagonal(pattern, -(length - 1), 2, 3).mean(-1))
        elif name == "tl-main":
            induction.append(np.diagonal(pattern, -(length - 1), 2, 3).mean(-1))
        else:
            cells = [pattern[:, :, i, i - c * length + 1] for i in range(1 + length, 101)
                     for c in range(1, (i - 1) // length + 1)]
            assert len(cells) == 150
            induction.append(np.mean(cells, axis=0))
        previous.append(np.diagonal(pattern, -1, 2, 3).mean(-1))
    column = "prefix_matching" if name == "olsson" else "induction"
    np.testing.assert_allclose(table[column], np.mean(induction, 0).ravel(), rtol=0, atol=2e-6)
    np.testing.assert_allclose(table["previous_token"], np.mean(previous, 0).ravel(), rtol=0, atol=2e-6)


def test_a_named_protocol_takes_only_a_seed(model):
    with pytest.raises(ArgumentError, match="only the seed"):
        inspector.heads(model, protocol="olsson", period=10)
    with pytest.raises(ArgumentError, match=r"stripe, tl-seed0"):
        inspector.heads(model, protocol="nothing")


# -- verdicts --------------------------------------------------------------------------------------------------------

def test_holm_by_hand():
    """Holm 1979: 0.01/4, 0.01/3, ... in order; the first failure ends it."""
    assert holm(np.array([0.004, 0.001, 0.9, 0.002])).tolist() == [True, True, False, True]
    assert holm(np.array([0.001, 0.004, 0.004, 0.004])).tolist() == [True, False, False, False]
    assert holm(np.array([0.003])).tolist() == [True]


def test_p_values_equal_scipy_s_tests():
    from scipy import stats
    generator = np.random.default_rng(0)
    a, b = generator.normal(0.5, 1, 16), generator.normal(0, 2, 12)
    want = stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue
    se = [x.std(ddof=1) / len(x)**0.5 for x in (a, b)]
    assert float(p_value(a.mean(), se[0], 16, b.mean(), se[1], 12)) == pytest.approx(want, rel=1e-10)
    want = stats.ttest_1samp(a, 0.1, alternative="greater").pvalue
    assert float(p_value(a.mean(), se[0], 16, 0.1, None, None)) == pytest.approx(want, rel=1e-10)


def test_p_values_at_the_edges():
    """No spread: certain or nothing. One sequence: never anything. NaN: nothing."""
    assert p_value(1.0, 0.0, 16, 0.2, 0.0, 16) == 0
    assert p_value(1.0, 0.0, 16, 1.0, 0.0, 16) == 1
    assert p_value(1.0, math.nan, 1, 0.2, 0.1, 16) == 1
    assert p_value(math.nan, 0.1, 16, 0.2, 0.1, 16) == 1


# -- the table -------------------------------------------------------------------------------------------------------

def test_the_table_is_the_mean_over_sequences_of_the_trace(model):
    """Second route: every sequence traced in full, scored from its grids, averaged with numpy."""
    table = inspector.heads(model, period=13, n_sequences=5, seed=3, bos=True)
    prompts = draw(model, period=13, n_sequences=5, seed=3, bos=True)
    for ids, suffix in ((prompts.ids, ""), (prompts.control, "_control")):
        per = [pattern_scores(inspector.trace(model, ids=row).pattern, prompts.symbols) for row in ids]
        for name in SCORES if not suffix else MATCHING:
            each = np.stack([p[name].flatten().numpy() for p in per])
            np.testing.assert_allclose(table[name + suffix], each.mean(0), rtol=0, atol=1e-12)
            np.testing.assert_allclose(table[name + suffix + "_se"], each.std(0, ddof=1) / 5**0.5, rtol=0, atol=1e-12)


def test_columns_and_run_record(model):
    table = inspector.heads(model, period=13)
    expected = ["layer", "head"]
    for name in SCORES:
        expected += [name, name + "_se", name + "_uniform"]
        expected += [name + "_control", name + "_control_se"] if name in MATCHING else []
    assert list(table.columns) == [*expected, "verdict"]
    assert list(zip(table["layer"], table["head"], strict=True)) == [(n, h) for n in range(3) for h in range(4)]
    run = table.attrs["run"]["arguments"]
    assert (run["period"], run["repeats"], run["n_sequences"], run["seed"], run["bos"]) == (13, 2, 16, 0, False)
    assert run["protocol"] == "stripe"
    assert run["kernel"] == "scan"


def test_batches_and_blocks_do_not_change_the_numbers(model, monkeypatch):
    from inspector.findings import scoring
    from inspector.model import kernels
    prompts = draw(model, period=13, n_sequences=5)
    rows = prompts.symbols.expand(5, -1)
    want = score_sequences(model, prompts.ids, rows, STRIPE, 13)
    for positions, block, remembered in ((1, 128, 0), (60, 3, 2**20), (10000, 7, 0)):
        monkeypatch.setattr(scoring, "POSITIONS_AT_ONCE", positions)
        monkeypatch.setattr(scoring, "REMEMBERED", remembered)
        monkeypatch.setattr(kernels, "block_rows", lambda n_head, n, block=block: block)
        found = score_sequences(model, prompts.ids, rows, STRIPE, 13)
        for name in SCORES:
            torch.testing.assert_close(found[name], want[name], rtol=0, atol=1e-13)


def test_given_ids_with_a_period_are_scored_on_their_stripe(model):
    """The same rows drawn or given: the same scores; the controls are drawn anew."""
    prompts = draw(model, period=9, n_sequences=4, seed=8)
    drawn, given = inspector.heads(model, period=9, n_sequences=4, seed=8), inspector.heads(model, prompts.ids)
    for name in SCORES:
        np.testing.assert_allclose(given[name], drawn[name], rtol=0, atol=1e-13)
        np.testing.assert_allclose(given[name + "_se"], drawn[name + "_se"], rtol=0, atol=1e-13)
    assert given.attrs["period"] == 9
    assert given["induction_control"].notna().all()
    with pytest.raises(ArgumentError, match="period 9, not 8"):
        inspector.heads(model, prompts.ids, period=8)


def test_rows_together_score_as_each_alone(model):
    """Repeats inside a block are copies too: the table of several rows is the mean of the tables of each."""
    rows = [[11, 12, 11, 14] * 3, [21, 22, 21, 24] * 3, [31, 32, 33, 34] * 3]
    together, alone = inspector.heads(model, rows), [inspector.heads(model, row) for row in rows]
    for name in SCORES:
        np.testing.assert_allclose(together[name], np.mean([t[name] for t in alone], axis=0), rtol=0, atol=1e-13)
        uniform = np.mean([t[name + "_uniform"] for t in alone], axis=0)
        np.testing.assert_allclose(together[name + "_uniform"], uniform, rtol=0, atol=1e-13)
    assert together["induction_control"].notna().all()


def test_rows_that_fill_the_context_are_scored(model):
    """60 positions, an odd number of ids and BOS: the control is as long as the rows, not longer."""
    block = list(range(10, 39))
    rows = [[5, *block, *block, 10], [5, *block[::-1], *block[::-1], 38]]
    table = inspector.heads(model, rows)
    assert table.attrs["period"] == 29
    assert table["induction_control"].notna().all()
    assert inspector.heads(model, [[8, 8], [9, 9]])["duplicate_token"].notna().all()


def test_a_model_without_bos_is_scored(tmp_path):
    model = inspector.load(models.tiny_folder(tmp_path, bos_token_id=None, eos_token_id=None))
    assert inspector.heads(model, text="the cat the cat")["induction"].notna().all()
    assert inspector.heads(model, period=9)["induction"].notna().all()


def test_numbers_that_leave_their_dtype_are_an_error(tmp_path):
    """Scores past 65,504 in float16: an error that names the dtype, and no NaN in any table."""
    reference = models.tiny_model(n_positions=40)
    with torch.no_grad():
        for block in reference.transformer.h:
            block.attn.c_attn.weight.mul_(300)
    folder = models.save(reference, tmp_path)
    assert inspector.heads(inspector.load(folder), period=9)["induction"].notna().all()
    coarse = inspector.load(folder, dtype="float16")
    with pytest.raises(NumericsError, match="float16"):
        inspector.heads(coarse, period=9)
    with pytest.raises(NumericsError, match="float16"):
        inspector.trace(coarse, ids=list(range(10, 30)))


def test_ids_of_any_kind_and_no_kind(planted):
    want = inspector.heads(planted, [97, 98, 97])["induction"]
    for ids in ("97 98 97", np.array([97, 98, 97]), torch.tensor([97, 98, 97]), (97, 98, 97)):
        np.testing.assert_array_equal(inspector.heads(planted, ids)["induction"], want)
    for ids in (5, 2.5, "a b", [[]], {}):
        with pytest.raises(InspectorError):
            inspector.heads(planted, ids)


def test_one_prompt_gives_scores_but_never_a_verdict(planted):
    one = draw(planted, period=40, n_sequences=1)
    table = inspector.heads(planted, one.ids[0])
    assert table["induction"].max() > 0.99
    assert table["induction_se"].isna().all()
    assert not any(table["verdict"])


def test_a_text_with_repeats_is_scored_on_its_own_tokens(planted):
    text = "the cat sat, the cat ran"
    table = inspector.heads(planted, text=text)
    ids = planted.tokenizer.encode(text)
    by_hand = pattern_scores(inspector.trace(planted, text).pattern, torch.tensor(ids))
    np.testing.assert_allclose(table["induction"], by_hand["induction"].flatten(), rtol=0, atol=1e-12)
    again = sum(token in ids[:i] for i, token in enumerate(ids))
    assert table.attrs["n_queries"]["induction"] == again
    assert table.attrs["n_queries"]["previous_token"] == len(ids) - 1


def test_a_text_without_repeats_has_no_matching_scores(planted):
    table = inspector.heads(planted, text="abc def")
    assert table["induction"].isna().all()
    assert table["duplicate_token"].isna().all()
    assert table["previous_token"].notna().all()
    assert table.attrs["n_queries"]["induction"] == 0


@pytest.mark.parametrize(("call", "error"), [
    ({"ids": []}, TextError), ({"ids": [1, 9999]}, TextError), ({"ids": [1], "text": "a"}, TextError),
    ({"ids": [[1, 2], [1, 2, 3]]}, ArgumentError), ({"threshold": 2.0}, ArgumentError), ({"period": 3.5}, ArgumentError),
    ({"ids": [1, 2, 3], "period": 5}, ArgumentError), ({"seed": -1}, ArgumentError), ({"seed": 1.5}, ArgumentError),
    ({"seed": None}, ArgumentError), ({"threshold": "a"}, ArgumentError), ({"text": "ab", "seed": 3}, ArgumentError),
    ({"text": "ab", "n_sequences": 3}, ArgumentError),
])
def test_bad_arguments_are_refused(planted, call, error):
    with pytest.raises(error):
        inspector.heads(planted, **call)


@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted", dtype="float64")


def test_planted_heads_get_their_verdicts_and_nobody_else(planted):
    from inspector.demo.planted import PLANTED
    table = inspector.heads(planted)
    found = {(row.layer, row.head): row.verdict for row in table.itertuples() if row.verdict}
    assert found == {head: [name] for name, head in PLANTED.items()}


def test_a_fixed_offset_head_scores_one_and_gets_no_verdict(planted):
    from inspector.demo.planted import PLANTED, fixed_offset
    table = inspector.heads(fixed_offset(planted, 50), period=50)
    layer, head = PLANTED["induction"]
    row = table[(table["layer"] == layer) & (table["head"] == head)].iloc[0]
    assert row["induction"] == pytest.approx(1, abs=1e-9)
    assert row["induction_control"] == pytest.approx(1, abs=1e-9)
    assert "induction" not in row["verdict"]


def test_check_against_planted_passes_and_fails_when_the_plant_is_gone(planted, monkeypatch):
    table = inspector.check(planted, against="planted")
    assert table.attrs["verdict"] == "passed", table[table["verdict"] == "failed"]
    assert set(table["part"]) >= {"planted", "planted, BOS", "previous-token head silent", "fixed offset",
                                  "keys shifted by one"}
    from inspector.demo.planted import previous_token_silent
    broken = inspector.check(previous_token_silent(planted), against="planted")
    assert broken.attrs["verdict"] == "failed"
    assert {"induction", "verdict induction"} <= set(broken[broken["verdict"] == "failed"]["quantity"])


def test_of_a_hundred_random_models_at_most_five_give_a_verdict(tmp_path):
    """Weights of three widths. For random heads the uniform level is no null; the control is."""
    assert random_models_called(tmp_path, range(100)) <= 5


@pytest.mark.soak
def test_of_many_random_models_at_most_one_in_twenty_gives_a_verdict(tmp_path):
    assert random_models_called(tmp_path, range(100, 900)) <= 40


def random_models_called(tmp_path, seeds):
    from transformers import GPT2Config, GPT2LMHeadModel
    called = 0
    for seed in seeds:
        torch.manual_seed(seed)
        config = GPT2Config(vocab_size=120, n_positions=64, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                            initializer_range=(0.02, 0.1, 0.3)[seed % 3])
        folder = models.save(GPT2LMHeadModel(config), tmp_path / str(seed))
        called += any(inspector.heads(inspector.load(folder), period=30, n_sequences=8)["verdict"].map(len) > 0)
    return called


def test_tables_are_plain_frames(planted):
    table = inspector.heads(planted, period=20, n_sequences=2)
    assert isinstance(table, pd.DataFrame)
    assert table.dtypes.drop("verdict").map(lambda d: d.kind in "if").all()


@pytest.mark.parametrize("ids", [[5, 7, 5, 5, 9, 7, 5], [3] * 9, list(range(6)), [1], [2, 2], [0, 1, 0, 1, 0, 1]])
def test_copies_are_what_comparing_every_pair_says(ids):
    """A second route: compare all pairs of positions."""
    n = len(ids)
    earlier, follower = copy_masks(torch.tensor(ids))
    for i in range(n):
        for j in range(n):
            assert bool(earlier[i, j]) == (j < i and ids[j] == ids[i])
            assert bool(follower[i, j]) == (1 <= j <= i and ids[j - 1] == ids[i])


def test_cells_of_a_block_are_those_of_the_whole_text():
    """Rows 3 to 5 of two texts at once against all their rows, every score's cells as a set."""
    symbols = torch.tensor([[4, 4, 1, 4, 1, 1, 9], [0, 1, 2, 0, 1, 2, 0]])
    copies = find_copies(symbols)

    def cells(first, count, diagonal):
        found = score_cells(copies, first, count, diagonal)
        score = found.place // (2 * count)
        assert torch.equal(found.place % (2 * count), found.sequence * count + found.row)
        return set(zip(*(part.tolist() for part in (score, found.sequence, found.row + first, found.key)), strict=True))

    for diagonal in (None, 2):
        whole = cells(0, 7, diagonal)
        assert cells(3, 3, diagonal) == {cell for cell in whole if 3 <= cell[2] < 6}
    induction = SUMS.index("induction")
    stripe = {(row, key) for score, sequence, row, key in cells(0, 7, 2) if (score, sequence) == (induction, 0)}
    assert stripe == {(row, row - 2) for row in range(2, 7)}
