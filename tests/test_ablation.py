"""Cutting heads: against transformers with changed weights and hooks, in batches, beside controls, on the planted model."""

import json

import pandas as pd
import pytest
import torch

import inspector
from inspector.errors import ArgumentError, TextError
from inspector.findings import cutting
from inspector.findings.ablation import ablate, ablations, control_sets, shuffles
from inspector.findings.cutting import cut_losses
from inspector.findings.head_names import head_name, head_names, parse_heads
from inspector.findings.prompts import draw
from inspector.record import rows_of, to_csv, to_json

from . import models
from .helpers import some_ids, tiny

PERIOD, N = 7, 5
SINGLE = [((layer, head),) for layer in range(3) for head in range(4)]
SETS = [((0, 1), (0, 2), (2, 3)), ((1, 0), (2, 0)), ((0, 0), (1, 1), (1, 2), (2, 2))]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted", dtype="float64")


def ids_of(model, seed=0):
    return draw(model, period=PERIOD, n_sequences=N, seed=seed).ids


# -- the independent route: transformers, its own weights or hooks on its own modules ----------------------------------

def theirs():
    return models.tiny_model().double()


def their_losses(reference, ids):
    """[sequence, token], nats."""
    with torch.no_grad():
        log_p = reference(ids).logits.log_softmax(-1)
    return torch.stack([torch.stack([-log_p[s, t - 1, ids[s, t]] for t in range(1, ids.shape[1])]) for s in range(len(ids))])


def columns_of(head):
    return slice(6 * head, 6 * head + 6)                        # d_head is 24 / 4


def their_z(reference, ids):
    """What transformers feeds to each c_proj: [layer, sequence, pos, d_model], heads side by side."""
    seen = []
    hooks = [block.attn.c_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
             for block in reference.transformer.h]
    with torch.no_grad():
        reference(ids)
    for hook in hooks:
        hook.remove()
    return torch.stack(seen)


def their_cut(ids, cut, fill, frozen=False):
    """Losses with hooks that put `fill` [layer, sequence, pos, d_model] in place of the cut heads' z.

    Frozen: z of every head is made anew from the clean run's patterns and the run's own v.
    """
    reference = theirs()
    with torch.no_grad():
        patterns = reference(ids, output_attentions=True).attentions
    v = {}

    def keep_v(layer):
        return lambda module, args, output: v.update({layer: output[..., 48:]})     # c_attn's columns are Q | K | V

    def replace_z(layer):
        def hook(module, args):
            z = args[0].clone()
            if frozen:
                z = torch.cat([patterns[layer][:, head] @ v[layer][..., columns_of(head)] for head in range(4)], dim=-1)
            for at, head in cut:
                if at == layer:
                    z[..., columns_of(head)] = fill[layer][..., columns_of(head)]
            return (z,)
        return hook

    for layer, block in enumerate(reference.transformer.h):
        block.attn.c_attn.register_forward_hook(keep_v(layer))
        block.attn.c_proj.register_forward_pre_hook(replace_z(layer))
    return their_losses(reference, ids)


@pytest.mark.parametrize("cut", [*SINGLE, *SETS], ids=head_names)
def test_zero_ablation_is_a_model_whose_rows_of_c_proj_are_zero(model, cut):
    ids, reference = ids_of(model), theirs()
    for layer, head in cut:
        reference.transformer.h[layer].attn.c_proj.weight.data[columns_of(head)] = 0
    ours = cut_losses(model, ids, [cut], fill="zero")[0]
    torch.testing.assert_close(ours, their_losses(reference, ids), rtol=0, atol=1e-10)


@pytest.mark.parametrize("frozen", [False, True], ids=["free", "frozen"])
@pytest.mark.parametrize("cut", [((0, 1),), ((1, 3),), ((2, 2),), *SETS], ids=head_names)
@pytest.mark.parametrize("fill", ["mean", "zero", "resample"])
def test_every_fill_with_patterns_free_or_frozen_is_what_hooks_on_transformers_give(model, fill, cut, frozen):
    ids, other = ids_of(model), ids_of(model, seed=1)
    z = their_z(theirs(), other)
    replaced = {"mean": z.mean(1, keepdim=True).expand_as(z), "zero": torch.zeros_like(z), "resample": z}[fill]
    ours = cut_losses(model, ids, [cut], fill=fill, reference=other, patterns="frozen" if frozen else "free")[0]
    torch.testing.assert_close(ours, their_cut(ids, cut, replaced, frozen), rtol=0, atol=1e-10)


def test_no_cut_is_the_clean_run_and_every_cut_of_the_tiny_model_changes_it(model):
    ids = ids_of(model)
    clean, *cut = cut_losses(model, ids, [(), *SINGLE], fill="zero")
    expected = torch.stack([inspector.trace(model, ids=row.tolist()).losses for row in ids])
    torch.testing.assert_close(clean, expected, rtol=0, atol=1e-12)
    assert all((each - clean).abs().max() > 1e-3 for each in cut)


@pytest.mark.parametrize("patterns", ["free", "frozen"])
@pytest.mark.parametrize("fill", ["mean", "zero", "resample"])
def test_a_batch_of_cuts_gives_what_each_gives_alone(model, fill, patterns):
    """One cut of one sequence at a time, a few of each, and all at once; sequence s has row s modulo 3 of the reference."""
    how = {"fill": fill, "reference": ids_of(model, seed=1)[:3], "patterns": patterns}
    cuts = [*SETS, (), *SINGLE[::2]]
    alone = torch.stack([cut_losses(model, ids_of(model), [cut], **how)[0] for cut in cuts])
    for at_once in (1, 3 * 14, 6 * 5 * 14, 10**6):
        together = cut_losses(model, ids_of(model), cuts, at_once=at_once, **how)
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def test_only_the_losses_asked_for_are_given_and_they_are_the_last(model):
    how = {"fill": "zero"}
    whole = cut_losses(model, ids_of(model), SINGLE, **how)
    assert whole.shape == (12, N, 13)
    torch.testing.assert_close(cut_losses(model, ids_of(model), SINGLE, first=9, **how), whole[..., 9:], rtol=0, atol=1e-12)


def test_patterns_of_the_cut_layer_and_below_are_as_they_were_so_the_last_layer_knows_no_frozen(model):
    last = [cut for cut in SINGLE if cut[0][0] == 2]
    free, frozen = (cut_losses(model, ids_of(model), last, fill="zero", patterns=p) for p in ("free", "frozen"))
    torch.testing.assert_close(free, frozen, rtol=0, atol=1e-12)
    first = [cut for cut in SINGLE if cut[0][0] == 0]
    free, frozen = (cut_losses(model, ids_of(model), first, fill="zero", patterns=p) for p in ("free", "frozen"))
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(free, frozen, strict=True))


# -- what must change nothing ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("patterns", ["free", "frozen"])
def test_a_reference_that_is_the_input_itself_changes_nothing(model, patterns):
    ids = ids_of(model)
    clean, *cut = cut_losses(model, ids, [(), *SINGLE, *SETS], fill="resample", reference=ids, patterns=patterns)
    for each in cut:
        torch.testing.assert_close(each, clean, rtol=0, atol=1e-12)
    one = ids[:1].expand(N, -1)
    clean, *cut = cut_losses(model, one, [(), *SINGLE, *SETS], fill="mean", reference=one, patterns=patterns)
    for each in cut:
        torch.testing.assert_close(each, clean, rtol=0, atol=1e-12)


def test_a_head_that_says_nothing_can_be_cut_without_a_trace(planted):
    from inspector.demo.planted import previous_token_silent
    silent = previous_token_silent(planted)
    for fill in cutting.FILLS:
        table = ablate(silent, "0.1", fill=fill, period=20, n_sequences=3, n_controls=0, text="abcabc")
        assert table["change"].abs().max() < 1e-12
        assert table["text_change"].abs().max() < 1e-12


# -- the planted model -------------------------------------------------------------------------------------------------

def test_on_the_planted_model_only_the_two_heads_of_the_circuit_matter(planted):
    table = ablate(planted, n_sequences=4).set_index("cut")
    assert table.attrs["clean_loss"] < 0.02
    assert set(table.index[table["change"] > 4]) == {"0.1", "2.0"}
    assert table.drop(["0.1", "2.0"])["change"].abs().max() < 0.01


def test_with_patterns_frozen_the_previous_token_head_is_not_missed_and_the_induction_head_is(planted):
    """What 0.1 writes only serves to find the place; Olsson's pattern-preserving ablation keeps the place."""
    table = ablate(planted, n_sequences=4, patterns="frozen").set_index("cut")
    assert abs(table["change"]["0.1"]) < 0.01
    assert table["change"]["2.0"] > 4


# -- the table ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("bos", [False, True])
def test_the_loss_is_that_of_the_predictions_of_copies_2_and_later(model, bos):
    """Its queries are those of the stripe but the last: the first token of copy 2 is left out, nobody can foresee it."""
    prompts = draw(model, period=PERIOD, repeats=3, n_sequences=N, bos=bos, seed=4)
    each = torch.stack([inspector.trace(model, ids=row.tolist()).losses[bos + PERIOD:].mean() for row in prompts.ids])
    table = ablate(model, period=PERIOD, repeats=3, n_sequences=N, bos=bos, seed=4)
    assert table.attrs["clean_loss"] == pytest.approx(float(each.mean()), abs=1e-10)
    assert table.attrs["clean_loss_se"] == pytest.approx(float(each.std() / N**0.5), abs=1e-10)


def test_every_head_has_a_row_with_paired_errors(model):
    table = ablate(model, period=PERIOD, n_sequences=N)
    assert list(table["cut"]) == [head_names(cut) for cut in SINGLE]
    assert list(table["layer"]) == [cut[0][0] for cut in SINGLE]
    assert list(table["head"]) == [cut[0][1] for cut in SINGLE]
    assert set(table["kind"]) == {"head"}
    assert set(table["n_heads"]) == {1}
    # With no other seed given the reference is seed 1, and the errors are those of the differences, not of the losses.
    loss = cut_losses(model, ids_of(model), [(), *SINGLE], reference=ids_of(model, seed=1), first=PERIOD).mean(-1)
    change = loss[1:] - loss[0]
    assert table["loss"].tolist() == pytest.approx(loss[1:].mean(1).tolist(), abs=1e-12)
    assert table["loss_se"].tolist() == pytest.approx((loss[1:].std(1) / N**0.5).tolist(), abs=1e-12)
    assert table["change"].tolist() == pytest.approx(change.mean(1).tolist(), abs=1e-12)
    assert table["change_se"].tolist() == pytest.approx((change.std(1) / N**0.5).tolist(), abs=1e-12)
    assert (table["text_loss"].isna() & table["text_change"].isna()).all()
    assert table.attrs["clean_text_loss"] is None
    assert table.attrs["control_mean"] is None


def test_a_set_stands_with_its_members_and_its_controls(model):
    table = ablate(model, "2.1 1.0 1.2", period=PERIOD, n_sequences=N, fill="zero", n_controls=8)
    assert table["kind"].tolist() == ["set"] + ["head"] * 3 + ["control"] * 3
    assert table["cut"].tolist()[:4] == ["1.0 1.2 2.1", "1.0", "1.2", "2.1"]
    assert table["n_heads"].tolist() == [3, 1, 1, 1, 3, 3, 3]
    assert table["layer"].tolist() == [None, 1, 1, 2, None, None, None]
    cuts = [parse_heads(model, cut) for cut in table["cut"]]
    loss = cut_losses(model, ids_of(model), cuts, fill="zero", first=PERIOD).mean((1, 2))
    assert table["loss"].tolist() == pytest.approx(loss.tolist(), abs=1e-12)
    control = table["change"][table["kind"] == "control"]
    assert table.attrs["n_controls"] == 3                       # 1.1 1.3 with 2.0, 2.2 or 2.3: there are no others
    assert (table.attrs["control_mean"], table.attrs["control_low"], table.attrs["control_high"]) == (
        control.mean(), control.min(), control.max())


@pytest.mark.parametrize("patterns", ["free", "frozen"])
def test_several_tables_at_once_are_the_tables_one_by_one_and_make_each_cut_once(model, monkeypatch, patterns):
    from inspector.findings import ablation
    several, made = [None, "1.0 1.2", "1.2"], []

    def counted(model, ids, cuts, **how):
        made.append(cuts)
        return cut_losses(model, ids, cuts, **how)

    how = {"period": PERIOD, "n_sequences": 3, "n_controls": 2, "patterns": patterns, "ids": [3, 1, 4, 1, 5]}
    single = [ablate(model, heads, **how) for heads in several]
    monkeypatch.setattr(ablation, "cut_losses", counted)
    together = ablations(model, several, **how)
    for ours, alone in zip(together, single, strict=True):
        pd.testing.assert_frame_equal(ours, alone, rtol=0, atol=1e-12)
        assert ours.attrs["run"] == alone.attrs["run"]
        assert ours.attrs["clean_loss"] == pytest.approx(alone.attrs["clean_loss"], abs=1e-12)
    assert len(made) == 2                                       # the text and the sequences
    for cuts in made:
        assert len(cuts) == len(set(cuts)) == 1 + 12 + 1 + 1    # clean, every head, the set, its one control


@pytest.mark.parametrize("at_once", [1, 97 * PERIOD * N * 3, 2**40])
def test_the_logits_of_one_cut_or_of_many_at_once_give_the_same_losses(model, monkeypatch, at_once):
    ids, how = ids_of(model), {"fill": "zero", "first": 3}
    before = cut_losses(model, ids, SINGLE, **how)
    monkeypatch.setattr(cutting, "LOGITS_AT_ONCE", at_once)
    assert torch.allclose(cut_losses(model, ids, SINGLE, **how), before, rtol=0, atol=1e-12)


def test_one_head_is_a_row_of_its_own_with_other_heads_as_controls(model):
    table = ablate(model, [(1, 2)], period=PERIOD, n_sequences=2)
    assert table["kind"].tolist() == ["head", "control", "control", "control"]
    assert table["cut"].tolist() == ["1.2", "1.0", "1.1", "1.3"]


def test_the_same_seed_gives_the_same_table_and_another_another(model):
    how = {"period": PERIOD, "n_sequences": 2, "n_controls": 4}
    one, again, other = (ablate(model, "0.1 1.1", seed=seed, **how) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one, again)
    assert one["loss"][0] != other["loss"][0]
    assert one["cut"].tolist()[3:] != other["cut"].tolist()[3:]


def test_one_sequence_has_no_standard_error(model):
    table = ablate(model, "0.1", period=PERIOD, n_sequences=1)
    assert table[["loss_se", "change_se"]].isna().all(axis=None)
    assert table[["loss", "change"]].notna().all(axis=None)


def test_the_table_goes_into_json_and_csv(model, tmp_path):
    table = ablate(model, "0.1 1.1", period=PERIOD, n_sequences=1, n_controls=2)
    rows = json.loads(to_json({"run": table.attrs["run"], "rows": rows_of(table)}))["rows"]
    assert [(row["layer"], row["head"]) for row in rows][:3] == [(None, None), (0, 1), (1, 1)]
    to_csv(table, tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()[2].startswith('"0.1","head",0,1,1,')


# -- a text ------------------------------------------------------------------------------------------------------------

def test_the_text_s_loss_is_the_mean_over_its_tokens_and_its_reference_are_its_own_ids_shuffled(model):
    ids = some_ids(model, 20).tolist()
    trace = inspector.trace(model, ids=ids)
    table = ablate(model, "1.1", ids=ids, period=PERIOD, n_sequences=N, n_controls=0)
    assert table.attrs["clean_text_loss"] == pytest.approx(float(trace.losses.mean()), abs=1e-12)
    reference = shuffles(torch.tensor(ids), N, 1, model.config.bos_token_id)
    z = their_z(theirs(), reference).mean(1, keepdim=True)
    expected = float(their_cut(torch.tensor([ids]), ((1, 1),), z).mean())
    assert table["text_loss"][0] == pytest.approx(expected, abs=1e-10)
    assert table["text_change"][0] == pytest.approx(expected - float(trace.losses.mean()), abs=1e-10)


def test_resampling_a_text_is_the_mean_over_its_shuffles_one_by_one(model):
    ids = torch.tensor(some_ids(model, 12).tolist())
    table = ablate(model, "0.2", ids=ids, fill="resample", period=PERIOD, n_sequences=3, n_controls=0)
    reference = shuffles(ids, 3, 1, model.config.bos_token_id)
    each = [their_cut(ids[None], ((0, 2),), their_z(theirs(), row[None])).mean() for row in reference]
    assert table["text_loss"][0] == pytest.approx(float(torch.stack(each).mean()), abs=1e-10)


def test_shuffles_keep_the_tokens_and_a_bos_in_front():
    ids = torch.tensor([5, 1, 2, 2, 9, 30, 31, 32])
    rows = shuffles(ids, 20, 0, bos_id=5)
    assert (rows[:, 0] == 5).all()
    assert (rows.sort(-1).values == ids.sort().values).all()
    assert len({tuple(row) for row in rows.tolist()}) > 15
    assert not (shuffles(ids, 20, 0, bos_id=None)[:, 0] == 5).all()


# -- controls ----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def demo():
    return inspector.load("demo")


def per_layer(cut):
    return sorted(layer for layer, _ in cut)


@pytest.mark.parametrize(("text", "possible"), [("1.1 1.3", 6), ("0.3 1.1 1.3 2.0", 150), ("0.0 0.1 3.5", 30), ("2.2", 5)])
def test_controls_have_as_many_heads_in_each_layer_and_none_of_the_set(demo, text, possible):
    chosen = parse_heads(demo, text)
    sets = control_sets(demo, chosen, 20, seed=0)
    assert len(set(sets)) == len(sets) == min(20, possible)
    for each in sets:
        assert per_layer(each) == per_layer(chosen)
        assert len(set(each)) == len(chosen)
        assert not set(each) & set(chosen)
        assert list(each) == sorted(each)


def test_where_a_layer_has_too_few_others_they_are_all_taken(demo):
    chosen = parse_heads(demo, "1.0 1.1 1.2 1.3 2.0")           # two others in layer 1, so two of the set again
    sets = control_sets(demo, chosen, 10, seed=0)
    assert len(set(sets)) == 10
    for each in sets:
        assert per_layer(each) == per_layer(chosen)
        assert {(1, 4), (1, 5)} <= set(each)
        assert (2, 0) not in each
    assert control_sets(demo, parse_heads(demo, "1.0 1.1 1.2 1.3 1.4 1.5"), 10, seed=0) == []


def test_controls_are_drawn_evenly_and_by_seed(demo):
    chosen = parse_heads(demo, "0.3 1.1 1.3 2.0")
    sets = [each for seed in range(40) for each in control_sets(demo, chosen, 20, seed)]
    counts = pd.Series([head for each in sets for head in each]).value_counts()
    assert len(counts) == 5 + 4 + 5
    for (layer, _), count in counts.items():
        assert count == pytest.approx(len(sets) * {0: 1 / 5, 1: 2 / 4, 2: 1 / 5}[layer], rel=0.2)
    assert control_sets(demo, chosen, 20, 1) != control_sets(demo, chosen, 20, 2)


# -- names and errors --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("heads", ["2.3 0.1", "0.1, 2.3", ["2.3", "0.1"], [(2, 3), (0, 1)], {"0.1", "2.3"}, [[0, 1], "2.3"],
                                   "0.1 2.3 0.1", torch.tensor([[2, 3], [0, 1]])])
def test_heads_are_understood_in_every_form(model, heads):
    assert parse_heads(model, heads) == ((0, 1), (2, 3))
    assert head_names(parse_heads(model, heads)) == "0.1 2.3"
    assert head_name((10, 7)) == "10.7"


@pytest.mark.parametrize(("heads", "words"), [
    ("", "no head"), ([], "no head"), (1.1, "heads is 1.1"), ([1.1], "'1.1' is unclear"), ((1, 1), "'1' is unclear"),
    ("1.1 L1H1", "'L1H1' is unclear"), ("-1.0", "unclear"), ([(0, -1)], "no head 0.-1"), ("0.4 3.0 1.1", "no head 0.4 3.0"),
    ("1", "unclear"), ("1.1.1", "unclear"), ("².1", "unclear"), (None, "heads is None"), ([(0, 1, 2)], "unclear"),
])
def test_heads_that_are_none_are_refused_by_name(model, heads, words):
    with pytest.raises(ArgumentError, match=words):
        parse_heads(model, heads)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"fill": "median"}, ArgumentError, "fill is 'median'; expected one of mean, zero, resample"),
    ({"patterns": "kept"}, ArgumentError, "patterns is 'kept'"), ({"n_controls": -1}, ArgumentError, "n_controls is -1"),
    ({"heads": "9.9"}, ArgumentError, "no head 9.9"), ({"period": 16}, ArgumentError, "period of at most 15"),
    ({"repeats": 1}, ArgumentError, "repeats is 1"), ({"repeats": "2"}, ArgumentError, "repeats is '2'"),
    ({"seed": -1}, ArgumentError, "seed is -1"), ({"ids": [3]}, TextError, "none to predict"),
    ({"ids": [99999]}, TextError, "outside the vocabulary"), ({"ids": [3] * 32}, TextError, "32 tokens"),
    ({"text": "a", "ids": [1, 2]}, TextError, "not both"),
])
def test_what_cannot_be_done_is_said(model, arguments, error, words):
    with pytest.raises(error, match=words):
        ablate(model, **{"n_sequences": 1, "period": PERIOD, **arguments})


def test_a_reference_must_be_there_and_as_long(model):
    with pytest.raises(ArgumentError, match="needs reference sequences of 14 tokens; got None"):
        cut_losses(model, ids_of(model), SINGLE)
    with pytest.raises(ArgumentError, match=r"got \[5, 13\]"):
        cut_losses(model, ids_of(model), SINGLE, reference=ids_of(model)[:, :-1])


def test_progress_counts_every_cut(model):
    seen = []

    def progress(steps, total, desc):
        for step in steps:
            seen.append((total, desc))
            yield step

    ablate(model, period=PERIOD, n_sequences=3, progress=progress)
    assert seen == [(13, "cuts")] * 13
