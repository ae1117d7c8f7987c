"""Induction in a text: repeats by hand, attention on typed patterns, the planted head, cuts made in transformers itself."""

import csv
import io

import pytest
import torch
from transformers import AutoModelForCausalLM

import inspector
from inspector.demo.planted import PLANTED, previous_token_silent
from inspector.errors import ArgumentError, TextError
from inspector.findings.in_text import follower_attention, from_trace, induction, repeats_of, unrepeated
from inspector.findings.table import heads as head_table
from inspector.model.tracing import trace
from inspector.record import rows_of, to_csv, to_json

from . import models
from .helpers import some_ids, tiny

COLUMNS = ["position", "id", "label", "earlier", "followers", "follower_id", "follower", "came", "attention", "logit", "p",
           "p_cut"]
HEAD_COLUMNS = ["position", "follower_id", "layer", "head", "attention", "logit"]
INDUCTION = PLANTED["induction"]
POEM = ("The old man saw the small boat.\nRow, row, return to the shore.\nThe rain came over the water.\n"
        "Row, row, return to the shore.\nThe wind came after the rain.\nRow, row, return to the shore.\n")
CODE = ("def total(items):\n    for item in items:\n        total += item.price\n    return total\n\n"
        "def mean(items):\n    return total(items) / len(items)\n")
TEXTS = {
    "dursley": "Mr. and Ms. Dursley lived at number four. It was Ms. Dursley who spoke, and they met Ms.",
    "cat": "the cat that sat on the mat saw the cat that",
    "poem": POEM,
    "code": CODE,
}


@pytest.fixture(scope="module")
def planted():
    return inspector.load("planted", dtype="float64")


@pytest.fixture(scope="module")
def demo():
    return inspector.load("demo")


@pytest.fixture(scope="module")
def demo_heads(demo):
    table = head_table(demo)
    return tuple((r.layer, r.head) for r in table.itertuples() if "induction" in r.verdict)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.save(models.tiny_model(), tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder):
    return inspector.load(folder, dtype="float64")


REPEATING = [3, 60, 3, 61, 8, 60, 3, 60, 60, 8]


# -- the repeats -----------------------------------------------------------------------------------------------------

A, B, C = 11, 12, 13


@pytest.mark.parametrize(("ids", "expected"), [
    ([A, B, C], []),
    ([], []),
    ([A, B, A], [(2, B, [0])]),
    ([A, B, A, C, A], [(2, B, [0]), (4, B, [0]), (4, C, [2])]),                # three times, two followers
    ([A, B, A, B, A], [(2, B, [0]), (3, A, [1]), (4, B, [0, 2])]),             # three times, one follower
    ([A, A], [(1, A, [0])]),                                                   # its follower is the position itself
    ([A, A, A], [(1, A, [0]), (2, A, [0, 1])]),
    ([A, C, B, A, B, A], [(3, C, [0]), (4, A, [2]), (5, C, [0]), (5, B, [3])]),
])
def test_repeats_by_hand(ids, expected):
    assert repeats_of(ids) == expected


def test_bos_does_not_count_as_occurred_but_may_follow():
    assert repeats_of([A, B, A], bos_id=A) == []
    assert repeats_of([A, B, A, B], bos_id=A) == [(3, A, [1])]


def test_attention_on_patterns_typed_by_hand():
    """Text A B A C A: the last A gives 0.4 to B at 1 and 0.3 to C at 3, and nothing else counts."""
    pattern = torch.tensor([[1, 0, 0, 0, 0],
                            [0.5, 0.5, 0, 0, 0],
                            [0.2, 0.7, 0.1, 0, 0],
                            [0.25, 0.25, 0.25, 0.25, 0],
                            [0.1, 0.4, 0.15, 0.3, 0.05]], dtype=torch.float64)
    found = follower_attention(pattern, repeats_of([A, B, A, C, A]))
    assert found.tolist() == [0.7, 0.4, 0.3]
    batch = follower_attention(torch.stack([pattern, pattern / 2]), repeats_of([A, B, A, C, A]))
    assert batch.tolist() == [[0.7, 0.4, 0.3], [0.35, 0.2, 0.15]]
    # One follower after two places: their cells add up.
    assert follower_attention(pattern, repeats_of([A, B, A, B, A]))[2].item() == pytest.approx(0.7, abs=1e-15)


# -- the planted model -----------------------------------------------------------------------------------------------

def test_the_planted_head_gives_all_to_the_follower_and_without_it_the_follower_is_lost(planted):
    found = induction(planted, "abcdefgabcdxyab")
    places = found.places
    assert found.heads == (INDUCTION,)
    assert list(places["position"]) == [7, 8, 9, 10, 13, 14]
    assert list(places["label"]) == list("abcdab")
    assert list(places["follower"]) == list("bcdebc")
    assert list(places["came"]) == [True, True, True, False, True, None]
    assert list(places["earlier"]) == [[0], [1], [2], [3], [0, 7], [1, 8]]
    assert list(places["followers"]) == [[1], [2], [3], [4], [1, 8], [2, 9]]
    assert places["attention"].to_numpy() == pytest.approx(1, abs=1e-9)
    assert places["p"].min() > 0.95
    assert places["p_cut"].max() < 0.03
    assert places["logit"].min() > 8


def test_three_occurrences_and_two_followers_share_the_attention(planted):
    """a is followed by x, then by y: the third a looks at both places, and all of it is on the two."""
    found = induction(planted, "axbaycadz", heads=[INDUCTION])
    last = found.places[found.places["position"] == 6]
    assert list(last["follower"]) == ["x", "y"]
    assert list(last["followers"]) == [[1], [4]]
    assert last["attention"].sum() == pytest.approx(1, abs=1e-9)
    assert last["attention"].min() > 0.05
    assert last["came"].tolist() == [False, False]
    assert list(found.by_head["attention"]) == list(found.places["attention"])


def test_a_follower_after_two_places_has_the_sum(planted):
    found = induction(planted, "axbaxcad", heads=[INDUCTION])
    last = found.places[found.places["position"] == 6]
    assert list(last["followers"]) == [[1, 4]]
    assert last["attention"].item() == pytest.approx(1, abs=1e-9)
    pattern = trace(planted, "axbaxcad").pattern[INDUCTION]
    assert last["attention"].item() == pytest.approx(float(pattern[6, 1] + pattern[6, 4]), abs=1e-15)
    assert float(pattern[6, 1]) < 0.99


def test_a_text_without_a_repeat_has_empty_tables(planted):
    found = induction(planted, "abcdefg", period=8)
    assert found.heads == (INDUCTION,)
    assert list(found.places.columns) == COLUMNS
    assert list(found.by_head.columns) == HEAD_COLUMNS
    assert found.places.empty
    assert found.by_head.empty
    full = induction(planted, "abab", heads=[INDUCTION])
    assert found.places.dtypes.equals(full.places.dtypes)
    assert found.by_head.dtypes.equals(full.by_head.dtypes)
    assert rows_of(found.places) == []
    assert induction(planted, "a", heads=[INDUCTION]).places.empty


def test_with_bos_everything_moves_by_one(planted):
    found = induction(planted, "abcabc", bos=True, period=8)
    assert list(found.places["position"]) == [4, 5, 6]
    assert list(found.places["followers"]) == [[2], [3], [4]]
    assert found.places["attention"].to_numpy() == pytest.approx(1, abs=1e-9)
    assert found.run["arguments"]["bos"] is True
    # A second BOS inside the text has not occurred before.
    inside = induction(planted, ids=[127, 97, 98, 127, 97, 99], heads=[INDUCTION])
    assert list(inside.places["position"]) == [4]


def test_at_the_last_position_nothing_came(planted):
    found = induction(planted, "xyzx", heads=[INDUCTION])
    assert found.places["came"].tolist() == [None]
    assert found.places["follower"].tolist() == ["y"]
    assert found.places["p"].item() > 0.9


def test_a_silent_previous_token_head_leaves_no_induction(planted):
    """The counterfactual: the same text, and the head finds nothing; no head has the verdict."""
    silent = previous_token_silent(planted)
    assert induction(silent, "abcabc", period=8).heads == ()
    assert induction(silent, "abcabc", heads=[INDUCTION]).places["attention"].max() < 0.6


# -- without heads, and with given ones ------------------------------------------------------------------------------

def test_without_an_induction_head_there_are_repeats_but_no_cut(model):
    found = induction(model, ids=REPEATING)
    assert found.heads == ()
    assert len(found.places) == len(repeats_of(REPEATING))
    assert found.places[["attention", "logit", "p_cut"]].isna().all(axis=None)
    assert found.places["p"].between(0, 1).all()
    assert found.by_head.empty
    assert list(found.by_head.columns) == HEAD_COLUMNS


def test_given_heads_override_the_search(planted):
    found = induction(planted, "abcabc", heads="0.0 2.0")
    assert found.heads == ((0, 0), (2, 0))
    assert found.run["arguments"]["heads"] == "0.0 2.0"
    assert found.run["arguments"]["heads_given"] is True
    assert len(found.by_head) == 2 * len(found.places)
    by_place = found.by_head.groupby(["position", "follower_id"])
    assert list(by_place["attention"].mean()) == list(found.places["attention"])
    assert list(by_place["logit"].sum()) == pytest.approx(list(found.places["logit"]), abs=1e-12)


def test_wrong_arguments_are_refused(planted):
    for wrong in ({"heads": "9.9"}, {"heads": []}, {"heads": "2.0", "period": 5}, {"period": 1}, {"seed": -1}):
        with pytest.raises(ArgumentError):
            induction(planted, "abab", **wrong)
    with pytest.raises(ArgumentError, match="n_sequences"):
        from_trace(planted, trace(planted, "abab"), (INDUCTION,), n_sequences=0)
    with pytest.raises(TextError):
        induction(planted, "")


# -- every number by a second route ----------------------------------------------------------------------------------

HEADS = ((0, 2), (1, 1), (1, 3), (2, 0))


@pytest.mark.parametrize("bos", [False, True])
def test_p_is_the_model_s_and_p_cut_is_hugging_face_s_with_the_heads_replaced(model, folder, bos):
    """transformers runs the text with c_proj's input overwritten by its own mean over the reference sequences."""
    ids = [model.config.bos_token_id, *REPEATING] if bos else REPEATING
    found = from_trace(model, trace(model, ids=ids), HEADS, n_sequences=5, seed=3)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    reference, _ = unrepeated(model, len(ids), bos, 5, 3)
    width = 24 // 4
    seen = {}

    def record(layer):
        return lambda _, inputs: seen.__setitem__(layer, inputs[0].mean(0))

    def overwrite(layer):
        def hook(_, inputs):
            changed = inputs[0].clone()
            for at, head in HEADS:
                if at == layer:
                    columns = slice(head * width, (head + 1) * width)
                    changed[..., columns] = seen[layer][:, columns]
            return (changed,)
        return hook

    def run(hook, ids):
        handles = [block.attn.c_proj.register_forward_pre_hook(hook(n)) for n, block in enumerate(theirs.transformer.h)]
        with torch.no_grad():
            p = torch.softmax(theirs(ids).logits, -1)
        for handle in handles:
            handle.remove()
        return p[0]

    run(record, reference)
    cut = run(overwrite, torch.tensor([ids]))
    clean = run(lambda _: lambda _, inputs: None, torch.tensor([ids]))
    assert (cut - clean).abs().max() > 1e-2
    for row in found.places.itertuples():
        assert row.p == pytest.approx(float(clean[row.position, row.follower_id]), abs=1e-12)
        assert row.p_cut == pytest.approx(float(cut[row.position, row.follower_id]), abs=1e-12)


def test_attention_and_logits_by_the_long_way(model):
    """Cell by cell from the trace; logits through the whole unembedding, minus their mean over the vocabulary."""
    traced, weights = trace(model, ids=REPEATING), model.weights
    found = from_trace(model, traced, HEADS)
    assert len(found.by_head) == len(HEADS) * len(found.places)
    followers = {(row.position, row.follower_id): row.followers for row in found.places.itertuples()}
    for row in found.by_head.itertuples():
        pattern = traced.pattern[row.layer, row.head, row.position]
        expected = sum(float(pattern[key]) for key in followers[row.position, row.follower_id])
        assert row.attention == pytest.approx(expected, abs=1e-14)
        resid = traced.resid_post[-1, row.position]
        written = traced.z[row.layer, row.head, row.position] @ weights.blocks[row.layer].W_O[row.head]
        scale = torch.sqrt(resid.var(correction=0) + model.config.layer_norm_epsilon)
        logits = ((written - written.mean()) / scale * weights.ln_f_weight) @ weights.W_U
        assert row.logit == pytest.approx(float(logits[row.follower_id] - logits.mean()), abs=1e-11)
    assert followers == {(i, token): [place + 1 for place in earlier] for i, token, earlier in repeats_of(REPEATING)}


def test_the_verb_and_a_trace_agree(planted):
    by_verb = induction(planted, "abcdabcd", bos=True, seed=5, period=8)
    by_trace = from_trace(planted, trace(planted, "abcdabcd", bos=True), by_verb.heads, seed=5)
    assert by_verb.places.equals(by_trace.places)
    assert by_verb.by_head.equals(by_trace.by_head)
    other = from_trace(planted, trace(planted, "abcdabcd", bos=True), by_verb.heads, seed=6)
    assert other.places.drop(columns="p_cut").equals(by_trace.places.drop(columns="p_cut"))
    assert not other.places["p_cut"].equals(by_trace.places["p_cut"])


# -- what a cut head says --------------------------------------------------------------------------------------------

def test_reference_sequences_do_not_repeat(planted):
    ids, words = unrepeated(planted, 100, True, 6, 0)
    assert ids.shape == (6, 100)
    assert bool((ids[:, 0] == 127).all())
    assert all(len(set(row)) == 100 for row in ids.tolist())
    assert words == "mean at each position over 6 random sequences without a repeat"
    assert torch.equal(unrepeated(planted, 100, True, 6, 0)[0], ids)
    assert not torch.equal(unrepeated(planted, 100, True, 6, 1)[0], ids)


def test_longer_than_the_vocabulary_a_reference_repeats_late_in_another_order_and_says_so(planted):
    """127 ids to draw from, 160 positions: each comes once before any comes again."""
    state = torch.get_rng_state()
    ids, words = unrepeated(planted, 160, False, 4, 0)
    assert "repeat, in random order, after 127 tokens" in words
    for row in ids.tolist():
        assert len(set(row[:127])) == 127
        assert len(set(row[127:])) == 33
        assert row[127:] != row[:33]
    assert torch.equal(torch.get_rng_state(), state)
    text = "abcdefghij" * 16
    found = induction(planted, text, heads=[INDUCTION])
    assert "after 127 tokens" in found.run["arguments"]["fill"]
    assert found.places["p_cut"].max() < 0.05
    assert found.places["p"].min() > 0.9


def test_a_model_of_special_ids_alone_is_refused(tmp_path):
    model = tiny(tmp_path, vocab_size=2, bos_token_id=0, eos_token_id=1)
    with pytest.raises(ArgumentError, match="special"):
        from_trace(model, trace(model, ids=[1, 1, 1]), ())


# -- texts -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", TEXTS)
def test_texts_on_the_demo_model(demo, demo_heads, name):
    """Every repeat is found, said with its labels, and over the repeats that came true the heads are why: p falls."""
    traced = trace(demo, TEXTS[name])
    found = from_trace(demo, traced, demo_heads)
    ids = traced.ids.tolist()
    assert found.heads == demo_heads != ()
    assert sorted(set(found.places["position"])) == [i for i, token in enumerate(ids) if token in ids[:i]]
    p = torch.softmax(traced.logits.double(), -1)
    for row in found.places.itertuples():
        assert [ids[place] for place in row.earlier] == [ids[row.position]] * len(row.earlier)
        assert {ids[place] for place in row.followers} == {row.follower_id}
        assert row.follower == traced.labels[row.followers[0]]
        assert row.label == traced.labels[row.position]
        assert row.p == pytest.approx(float(p[row.position, row.follower_id]), rel=1e-4)
        assert 0 <= row.attention <= 1
    came = found.places[found.places["came"] == True]  # noqa: E712  (None is neither)
    assert len(came) >= 2
    assert came["p"].mean() > 1.5 * came["p_cut"].mean()
    assert came["logit"].mean() > 0


def test_the_refrain_is_foreseen_by_the_induction_heads(demo, demo_heads):
    """The refrain's second and third coming: its words are expected, and without the heads they are not."""
    traced = trace(demo, POEM)
    found = from_trace(demo, traced, demo_heads).places
    lines = [i for i, label in enumerate(traced.labels) if "⏎" in label]
    again = found[(found["position"] > lines[4]) & (found["position"] < lines[5] - 1) & (found["came"] == True)]  # noqa: E712
    assert len(again) >= 5
    assert again["attention"].mean() > 0.4
    assert again["p"].mean() > 2 * again["p_cut"].mean()


def test_after_the_last_ms_the_name_is_what_the_heads_give(demo, demo_heads):
    """Three tokens followed "." before; the heads look at the name most, and it loses most when they are cut."""
    found = from_trace(demo, trace(demo, TEXTS["dursley"]), demo_heads).places
    last = found[found["position"] == found["position"].max()].set_index("follower")
    assert list(last.index) == ["·and", "·D", "·It"]
    assert [len(places) for places in last["earlier"]] == [1, 2, 1]
    assert last["came"].isna().all()
    assert last["attention"].idxmax() == last["logit"].idxmax() == (last["p"] - last["p_cut"]).idxmax() == "·D"
    assert last["p"]["·D"] > 2 * last["p_cut"]["·D"]


def test_half_precision_says_nearly_the_same(planted):
    coarse = induction(inspector.load("planted", dtype="bfloat16"), "abcdefgabcde", heads=[INDUCTION])
    fine = induction(planted, "abcdefgabcde", heads=[INDUCTION])
    for name, bound in (("attention", 1e-2), ("p", 3e-2), ("p_cut", 3e-2)):
        assert (coarse.places[name] - fine.places[name]).abs().max() < bound


def test_tables_as_csv_and_json(planted):
    found = induction(planted, "abacabx", heads=[INDUCTION])
    text = io.StringIO()
    to_csv(found.places, text)
    rows = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert list(rows[0]) == COLUMNS
    assert [row["followers"] for row in rows] == ["1", "1", "3", "2"]
    assert [row["came"] for row in rows] == ["False", "True", "False", "False"]
    assert '"came": true' in to_json(rows_of(found.places))


def test_ids_without_a_tokenizer_have_labels(model):
    found = from_trace(model, trace(model, ids=some_ids(model, 5).tolist() * 2), HEADS[:1])
    assert found.places["label"].str.fullmatch(r"\[\d+\]").all()
    assert found.places["follower"].str.fullmatch(r"\[\d+\]").all()
