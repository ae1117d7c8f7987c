"""Changing heads on one text: against models whose weights are changed instead, against `ablate`, and by hand."""

import dataclasses
import io
import json
import math

import pandas as pd
import pytest
import torch

import inspector
from inspector import answers
from inspector.cli import main
from inspector.errors import ArgumentError, NumericsError, TextError
from inspector.findings.ablation import next_seed, shuffles
from inspector.findings.interventions import (
    copy_losses,
    edits_for,
    intervene,
    next_tokens,
    parse_edits,
    pattern_changes,
)
from inspector.model.kernels import Edit
from inspector.model.tracing import trace
from inspector.record import to_csv, to_json

from . import models
from .helpers import some_ids, tiny

BETA = 2.5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(models.tiny_folder(tmp_path_factory.mktemp("worded")))


def changed(model, layer, **tensors):
    """The model with some weights of one layer replaced."""
    blocks = list(model.weights.blocks)
    blocks[layer] = dataclasses.replace(blocks[layer], **tensors)
    return dataclasses.replace(model, weights=dataclasses.replace(model.weights, blocks=tuple(blocks)))


def silenced(model, layer, head):
    """The model whose W_O has zeros in the rows of one head."""
    W_O = model.weights.blocks[layer].W_O.clone()
    W_O[head] = 0
    return changed(model, layer, W_O=W_O)


def sharpened(model, layer, head, beta):
    """The model whose W_Q and b_Q of one head are multiplied."""
    block, d = model.weights.blocks[layer], model.config.d_head
    W, b = block.W_QKV.clone(), block.b_QKV.clone()
    W[:, head * d:(head + 1) * d] *= beta
    b[head * d:(head + 1) * d] *= beta
    return changed(model, layer, W_QKV=W, b_QKV=b)


def assert_same_run(found, expected):
    for name in ("pattern", "logits"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-12)


# -- against changed weights --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("layer", "head"), [(0, 3), (1, 0), (2, 2)])
def test_zero_is_a_model_without_the_rows_of_W_O(model, layer, head):
    ids = some_ids(model, 13).tolist()
    found = intervene(model, {f"{layer}.{head}": "zero"}, ids=ids)
    assert_same_run(found.after, trace(silenced(model, layer, head), ids=ids))
    assert_same_run(found.before, trace(model, ids=ids))
    assert (found.after.logits - found.before.logits).abs().max() > 0.1


@pytest.mark.parametrize("beta", [0.0, 0.3, BETA])
@pytest.mark.parametrize(("layer", "head"), [(0, 3), (2, 1)])
def test_a_factor_is_a_model_with_queries_as_many_times_as_long(model, layer, head, beta):
    ids = some_ids(model, 13).tolist()
    found = intervene(model, {(layer, head): beta}, ids=ids)
    assert_same_run(found.after, trace(sharpened(model, layer, head, beta), ids=ids))
    assert (found.after.pattern[layer, head] - found.before.pattern[layer, head]).abs().max() > 0.05


def test_factor_0_looks_everywhere_alike_and_a_large_one_at_one_key(model):
    ids = some_ids(model, 9).tolist()
    even = intervene(model, {"1.2": 0}, ids=ids).after.pattern[1, 2]
    rows = torch.arange(1, 10, dtype=torch.float64)
    torch.testing.assert_close(even, torch.ones(9, 9, dtype=torch.float64).tril() / rows[:, None], rtol=0, atol=1e-15)
    hard = intervene(model, {"1.2": 1e6}, ids=ids)
    best = hard.before.pattern[1, 2].argmax(-1)
    torch.testing.assert_close(hard.after.pattern[1, 2], torch.nn.functional.one_hot(best, 9).double(), rtol=0, atol=1e-12)


def test_several_edits_are_made_together(model):
    ids = some_ids(model, 11).tolist()
    found = intervene(model, "0.1=zero 0.3=0.5 2.0=3", ids=ids)
    other = sharpened(sharpened(silenced(model, 0, 1), 0, 3, 0.5), 2, 0, 3)
    assert_same_run(found.after, trace(other, ids=ids))


# -- the mean -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("heads", ["0.1", "0.0 0.2 1.3"])
def test_the_mean_is_that_of_ablate(model, heads, bos):
    ids, edits = some_ids(model, 12).tolist(), dict.fromkeys(heads.split(), "mean")
    found = intervene(model, edits, ids=ids, bos=bos, n_references=5, seed=3)
    table = inspector.ablate(model, heads, ids=ids, bos=bos, fill="mean", n_sequences=5, seed=3, period=5, n_controls=0)
    theirs = table["text_loss"].iloc[0]
    assert found.tokens["loss_after"].mean() == pytest.approx(theirs, abs=1e-12)
    assert found.tokens["loss_before"].mean() == pytest.approx(table.attrs["clean_text_loss"], abs=1e-12)
    assert found.tokens["loss_before"].mean() != pytest.approx(theirs, abs=1e-3)


def test_zero_and_mean_side_by_side_in_one_layer(model):
    """What the layer writes is the clean output without both heads, plus the mean of one, made one order at a time."""
    ids = some_ids(model, 8)
    orders = shuffles(ids, 4, next_seed(7), model.config.bos_token_id)
    mean = torch.stack([trace(model, ids=row).z[1, 2] for row in orders]).mean(0)            # [pos, d_head]
    edits = edits_for(model, ids.tolist(), {"1.2": "mean", "1.0": "zero"}, n_references=4, seed=7)
    before, after = trace(model, ids=ids), trace(model, ids=ids, edits=edits)
    W_O = model.weights.blocks[1].W_O
    expected = before.resid_mid[1] - before.z[1, 0] @ W_O[0] - before.z[1, 2] @ W_O[2] + mean @ W_O[2]
    torch.testing.assert_close(after.resid_mid[1], expected, rtol=0, atol=1e-12)
    assert list(edits) == [1]


# -- what stays as it was -----------------------------------------------------------------------------------------------

def test_earlier_layers_and_other_heads_of_the_layer_stay_bit_for_bit(model):
    found = intervene(model, {"1.2": BETA}, ids=some_ids(model, 13).tolist())
    before, after = found.before.pattern, found.after.pattern
    assert torch.equal(before[0], after[0])
    assert all(torch.equal(before[1, head], after[1, head]) for head in (0, 1, 3))
    assert not torch.equal(before[1, 2], after[1, 2])
    still = found.patterns.set_index(["layer", "head"])["largest"] == 0
    assert {head for head, same in still.items() if same} == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 3)}


def test_a_cut_changes_only_later_patterns(model):
    found = intervene(model, {"1.2": "zero"}, ids=some_ids(model, 13).tolist())
    assert torch.equal(found.before.pattern[:2], found.after.pattern[:2])
    assert (found.patterns["largest"][found.patterns["layer"] == 2] > 1e-3).all()


@pytest.mark.parametrize("edits", [{}, "", {"1.2": 1}, {"0.0": 1.0, "2.3": 1}])
def test_no_edit_at_all_is_the_model_bit_for_bit(model, edits):
    found = intervene(model, edits, ids=some_ids(model, 13).tolist())
    assert torch.equal(found.before.pattern, found.after.pattern)
    assert torch.equal(found.before.logits, found.after.logits)
    assert (found.tokens["change"][1:] == 0).all()
    assert (found.next["change"] == 0).all()
    assert (found.patterns[["largest", "moved"]] == 0).all(axis=None)


# -- the tables ---------------------------------------------------------------------------------------------------------

def test_token_losses_by_hand(model):
    ids = some_ids(model, 6).tolist()
    found = intervene(model, {"0.1": "zero"}, ids=ids)
    assert list(found.tokens) == ["position", "id", "label", "loss_before", "loss_after", "change"]
    assert found.tokens["id"].tolist() == ids
    assert found.tokens.iloc[0][["loss_before", "loss_after", "change"]].isna().all()
    for name, run in (("loss_before", found.before), ("loss_after", found.after)):
        expected = [-math.log(torch.softmax(run.logits[i - 1], -1)[ids[i]]) for i in range(1, 6)]
        assert found.tokens[name][1:].tolist() == pytest.approx(expected, abs=1e-12)
    assert (found.tokens["change"] == found.tokens["loss_after"] - found.tokens["loss_before"])[1:].all()


def test_next_tokens_are_the_likeliest_of_both_runs(model):
    found = intervene(model, {"0.1": "zero", "1.0": "zero"}, ids=some_ids(model, 9).tolist(), position=4, top=3)
    p = {name: torch.softmax(run.logits[4], -1) for name, run in (("before", found.before), ("after", found.after))}
    orders = {name: values.argsort(descending=True).tolist() for name, values in p.items()}
    assert set(found.next["id"]) == set(orders["before"][:3]) | set(orders["after"][:3])
    assert len(found.next) > 3                                       # or the two runs would not differ
    assert found.next["p_before"].is_monotonic_decreasing
    for row in found.next.itertuples():
        for name in p:
            assert getattr(row, f"p_{name}") == pytest.approx(float(p[name][row.id]), abs=1e-15)
            assert getattr(row, f"rank_{name}") == orders[name].index(row.id) + 1
        assert row.change == row.p_after - row.p_before
        assert row.label == f"[{row.id}]"
    assert found.position == 4


def test_positions_count_from_the_end_too(model):
    ids = some_ids(model, 9).tolist()
    last, same = (intervene(model, {"0.1": "zero"}, ids=ids, position=at) for at in (-1, 8))
    pd.testing.assert_frame_equal(last.next, same.next)
    other = next_tokens(model, last.before, last.after, 7, 10)
    assert not last.next["p_before"].equals(other["p_before"])


def test_moved_weight_by_hand():
    old = torch.tensor([[[[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]], [[1, 0, 0], [1, 0, 0], [0, 0, 1]]]])
    new = torch.tensor([[[[1, 0, 0], [0.25, 0.75, 0], [0.2, 0.3, 0.5]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]]]])
    table = pattern_changes(old, new)
    assert table.to_dict("records") == [{"layer": 0, "head": 0, "largest": 0.25, "moved": 0.125},
                                        {"layer": 0, "head": 1, "largest": 1.0, "moved": 1.0}]


def a_token_table(n):
    losses = [math.nan, *(float(i) for i in range(1, n))]            # the loss of token i is i
    return pd.DataFrame({"loss_before": losses, "loss_after": [2 * x for x in losses], "change": losses})


@pytest.mark.parametrize(("n", "first", "period", "expected"), [
    (6, 0, 3, [(1, 3, 2.0), (2, 2, 4.5)]),                  # copy 1 predicts tokens 1, 2, 3; copy 2 tokens 4, 5
    (7, 1, 3, [(1, 3, 3.0), (2, 2, 5.5)]),                  # BOS predicts token 1, which counts nowhere
    (8, 0, 3, [(1, 3, 2.0), (2, 3, 5.0), (3, 1, 7.0)]),     # the last copy is cut short
    (7, 0, 3, [(1, 3, 2.0), (2, 3, 5.0)]),                  # ... to one token, which predicts nothing
    (9, 0, None, []),
])
def test_losses_of_the_copies_by_hand(n, first, period, expected):
    table = copy_losses(a_token_table(n), first, period)
    assert list(table) == ["copy", "tokens", "loss_before", "loss_after", "change"]
    assert table[["copy", "tokens", "loss_before"]].values.tolist() == [list(row) for row in expected]
    assert (table["loss_after"] == 2 * table["loss_before"]).all()


@pytest.mark.parametrize("bos", [False, True])
def test_copies_are_found_and_their_mean_from_the_second_on_is_the_loss_that_ablate_reads(model, bos):
    from inspector.findings.cutting import cut_losses
    from inspector.findings.prompts import draw
    prompts = draw(model, period=6, repeats=3, n_sequences=1, bos=bos, seed=2)
    found = intervene(model, {"0.1": "zero"}, ids=prompts.ids[0])
    assert found.copies["copy"].tolist() == [1, 2, 3]
    assert found.copies["tokens"].tolist() == [6, 6, 5]
    later = found.copies[1:]
    mine = (later["loss_after"] * later["tokens"]).sum() / later["tokens"].sum()
    theirs = cut_losses(model, prompts.ids, [((0, 1),)], fill="zero", first=bos + 6).mean()
    assert mine == pytest.approx(float(theirs), abs=1e-12)


def test_turning_off_the_previous_token_head_ends_induction():
    demo = inspector.load("demo")
    ids = torch.randint(4, 2000, (30,), generator=torch.Generator().manual_seed(0)).repeat(2)
    copies = intervene(demo, {"0.3": "zero"}, ids=ids).copies
    assert copies["loss_before"][0] > 6
    assert copies["loss_before"][1] < 1
    assert copies["loss_after"][1] > 5
    assert abs(intervene(demo, {"3.5": "zero"}, ids=ids).copies["change"][1]) < 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_dtypes(dtype):
    demo = inspector.load("demo", dtype=dtype)
    found = intervene(demo, {"0.3": "mean", "1.1": 0.0, "1.2": "zero"}, "The cat sat on the mat. The cat")
    exact = intervene(inspector.load("demo", dtype="float64"), found.run["arguments"]["edits"],
                      "The cat sat on the mat. The cat")
    close = {"float32": 1e-4, "bfloat16": 0.3}[dtype]
    assert (found.tokens["loss_after"] - exact.tokens["loss_after"]).abs().max() < close
    assert str(found.after.logits.dtype) == f"torch.{dtype}"


def test_a_text_of_one_token(model):
    found = intervene(model, {"0.1": "mean", "1.1": 2}, ids=[5])
    assert len(found.tokens) == 1
    assert found.copies.empty
    assert found.patterns["moved"].isna().all()
    assert json.loads(to_json(answers.of_intervention(found)))["patterns"][0]["moved"] is None


# -- how edits are written ----------------------------------------------------------------------------------------------

def test_every_form_of_edits_is_the_same(model):
    expected = {(0, 1): "mean", (2, 0): 2.0, (2, 3): "zero"}
    for edits in ("2.3=zero 0.1=mean 2.0=2", "2.3=zero,0.1=mean, 2.0=2.0", {"2.3": "zero", "0.1": "mean", "2.0": 2},
                  {(2, 3): "zero", "0.1": "mean", (2, 0): "2"}):
        assert parse_edits(model, edits) == expected
        assert list(parse_edits(model, edits)) == sorted(expected)
    assert parse_edits(model, {}) == parse_edits(model, " ") == {}


@pytest.mark.parametrize(("edits", "named"), [
    ({"5.0": "zero"}, "5.0"), ({"0.4": "zero"}, "0.4"), ({"0": "zero"}, "'0'"), ({0.1: "zero"}, "0.1"),
    ({"0.1": "off"}, "'off'; expected zero, mean, or a number"), ({"0.1": -0.5}, "-0.5"), ({"0.1": math.nan}, "nan"),
    ({"0.1": math.inf}, "inf"), ({"0.1": True}, "True"), ({"0.1": None}, "None"), ({"0.1": [1]}, "[1]"),
    ({"0.1": 10**400}, "1000"), ({"0.1": ""}, "''"), ("0.1", "head=what"), ("0.1=zero=mean", "head=what"), ("0.1=", "''"),
    ("=zero", "''"), ("0.1=zero 0.1=mean", "twice"), ({"0.1": 1, (0, 1): 2}, "twice"), (None, "None"),
    (["0.1"], "(zero, mean, or a number), such as"), (7, "7"),
])
def test_edits_that_cannot_be_are_named(model, edits, named):
    with pytest.raises(ArgumentError) as error:
        intervene(model, edits, ids=[1, 2, 3])
    assert named in str(error.value)
    assert "expected" in str(error.value) or "its heads are" in str(error.value)


@pytest.mark.parametrize("arguments", [{"position": 3}, {"position": -4}, {"top": 0}, {"top": 98}, {"n_references": 0},
                                       {"seed": -1}])
def test_arguments_out_of_range(model, arguments):
    with pytest.raises(ArgumentError):
        intervene(model, {"0.1": "mean"}, ids=[1, 2, 3], **arguments)


def test_texts_that_cannot_be(model):
    with pytest.raises(TextError):
        intervene(model, {}, ids=[])
    with pytest.raises(TextError):
        intervene(model, {}, "a text without a tokenizer")
    with pytest.raises(TextError, match="31"):
        intervene(model, {"0.1": "mean"}, ids=some_ids(model, 32))


def test_a_factor_beyond_all_numbers_is_one_error():
    with pytest.raises(NumericsError, match="layer 1"):
        intervene(inspector.load("demo"), {"1.1": 1e300}, "The cat sat")


# -- records and steps --------------------------------------------------------------------------------------------------

def test_the_run_record_is_enough_to_make_it_again(model):
    found = intervene(model, {(2, 3): "mean", "0.1": 2}, ids=[1, 2, 3, 1], position=2, n_references=3, seed=5, top=4)
    said = json.loads(to_json(found.run))["arguments"]
    assert said["edits"] == {"0.1": 2.0, "2.3": "mean"}
    assert said["reference_seed"] == 6
    again = intervene(model, **{name: said[name] for name in ("edits", "ids", "position", "n_references", "seed", "top")})
    pd.testing.assert_frame_equal(found.next, again.next)
    pd.testing.assert_frame_equal(found.tokens, again.tokens)


def test_the_random_orders_follow_the_seed_and_leave_the_global_generator_alone(model):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    ids = some_ids(model, 9).tolist()
    one, again, other = (intervene(model, {"0.1": "mean"}, ids=ids, n_references=2, seed=seed).tokens["loss_after"]
                         for seed in (0, 0, 1))
    assert one.equals(again)
    assert not one.equals(other)
    assert torch.equal(state, torch.get_rng_state())


def test_a_trace_s_record_tells_its_edits(model):
    ids = [1, 2, 3]
    edits = edits_for(model, ids, {"0.1": "mean", "2.3": 2.0}, n_references=2)
    said = json.loads(to_json(trace(model, ids=ids, edits=edits).run))["arguments"]["edits"]
    assert said == {"0": {"keep": [1, 0, 1, 1], "fill": [4, 3, 6]}, "2": {"sharpness": [1, 1, 1, 2]}}
    assert trace(model, ids=ids).run["arguments"]["edits"] == {}


def test_the_explorer_makes_the_scores_of_a_sharpened_head_from_its_q_and_k(model):
    from inspector.pages.explorer.bundle import factors_of
    ids = some_ids(model, 9).tolist()
    run = trace(model, ids=ids, edits=edits_for(model, ids, {"0.1": 2.5, "2.0": 0, "2.1": "zero"}))
    made = run.q @ run.k.transpose(-1, -2) * torch.from_numpy(factors_of(run))[..., None, None]
    below = torch.ones(9, 9, dtype=torch.bool).tril()
    torch.testing.assert_close(made[..., below], run.scores[..., below], rtol=0, atol=1e-12)


def test_a_trace_refuses_edits_that_bring_a_pattern(model):
    pattern = trace(model, ids=[1, 2]).pattern[1]
    with pytest.raises(ArgumentError, match=r"\[1\]"):
        trace(model, ids=[1, 2], edits={1: Edit(pattern=pattern)})
    with pytest.raises(ArgumentError, match=r"\[3\]"):
        trace(model, ids=[1, 2], edits={3: Edit()})


@pytest.mark.parametrize("keep", ["pattern", "q,k,v", "scores", "logits", "v,pattern"])
def test_a_trace_with_edits_keeps_what_the_whole_one_has(model, keep):
    ids = some_ids(model, 7).tolist()
    edits = edits_for(model, ids, "0.1=zero 1.1=0.5 2.3=mean 2.1=3", n_references=2)
    whole, part = trace(model, ids=ids, edits=edits), trace(model, ids=ids, edits=edits, keep=keep)
    for name in keep.split(","):
        torch.testing.assert_close(getattr(part, name), getattr(whole, name), rtol=0, atol=1e-12)
    assert not torch.equal(whole.scores, trace(model, ids=ids).scores)


def test_progress_sees_every_layer_and_can_end_it(model):
    seen = []

    def progress(steps, total=None, desc=None):
        seen.append((desc, total))
        yield from steps

    intervene(model, {"1.1": "mean", "2.0": "zero"}, ids=[1, 2, 3], progress=progress)
    assert seen == [("layers", 3), ("references", 2), ("layers", 3)]       # a mean needs no layer above its own


# -- the verb -----------------------------------------------------------------------------------------------------------

def test_the_verb_gives_the_function_s_numbers(capsys, tmp_path, folder):
    text, edits = "The cat sat on the cat", {"0.1": "zero", "1.1": "mean", "2.2": 0.5}
    argv = ["intervene", text, "--edits", "1.1=mean 0.1=zero 2.2=0.5", "--model", folder, "--position", "2", "--top", "4",
            "--n-references", "3", "--seed", "2", "--bos"]
    found = intervene(inspector.load(folder), edits, text, position=2, top=4, n_references=3, seed=2, bos=True)
    expected = json.loads(to_json(answers.of_intervention(found)))
    assert main([*argv, "--json", "--csv", str(tmp_path / "t.csv")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {**said, "run": {**said["run"], "command": None}} == {**expected, "run": {**expected["run"], "command": None}}
    assert set(said) == {"run", "position", "tokens", "next", "patterns", "copies"}
    own = io.StringIO()
    to_csv(found.tokens, own)
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == own.getvalue()
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "changed: 0.1 zero, 1.1 mean, 2.2 x 0.5" in shown
    best = found.next.iloc[0]
    row = next(line for line in shown.splitlines() if line.startswith(best["label"]))
    assert row.split()[1:3] == [f"{best['p_before']:.3f}", f"{best['p_after']:.3f}"]


def test_the_verb_shows_the_copies_of_a_repeated_text(capsys, folder):
    assert main(["intervene", "--ids", "1 2 3 4 1 2 3 4", "--edits", "", "--model", folder]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("copy"))
    assert [line.split()[:2] for line in lines[at + 1:at + 3]] == [["1", "4"], ["2", "3"]]
    assert lines[-1] == "losses in nats"
