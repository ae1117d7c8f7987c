"""What `explore` answers of heads that are changed: `intervene`'s own numbers, from runs that are made once."""

import json

import pytest
import torch

import inspector
from inspector.errors import ArgumentError
from inspector.findings.interventions import edits_for, intervene, intervention, parse_edits
from inspector.model.tracing import trace
from inspector.server import calls

from .counting import Cost

TEXT = "Ms. Dursley saw a cat. Ms. Dursley sat"


# -- the same answer ----------------------------------------------------------------------------------------------------

ASKED = {
    "nothing": {"text": TEXT, "edits": {}},
    "zero": {"text": TEXT, "edits": {"0.3": "zero"}, "position": 0},
    "mean": {"text": TEXT, "edits": {"1.1": "mean"}, "position": 3},
    "sharpened": {"text": TEXT, "edits": {"1.2": 3}},
    "even": {"text": TEXT, "edits": "1.2=0 1.3=1"},
    "a factor of 1": {"text": TEXT, "edits": {"1.2": 1}},
    "all three": {"text": TEXT, "edits": {"0.3": "zero", "1.1": "mean", "1.2": 0.5}, "position": -2},
    "repeated ids": {"ids": [5, 6, 7, 8, 9] * 3, "edits": {"1.1": "mean"}},
    "repeated ids and nothing": {"ids": [5, 6, 7, 8, 9] * 2, "edits": {}},
    "ids as text": {"ids": "5 6 7 5 6 7", "edits": {"1.1": "zero"}},
    "BOS": {"text": TEXT, "bos": True, "edits": {"0.3": "mean", "2.2": 2}, "position": 1},
    "BOS among repeated ids": {"ids": [4, 5, 6, 4, 5, 6], "bos": True, "edits": {"1.1": "mean"}, "model": "tiny"},
    "one token": {"ids": [7], "edits": {"1.1": "mean"}, "model": "tiny"},
    "float64": {"ids": [1, 2, 3, 1, 2], "edits": {"1.1": "mean", "0.2": 0.3}, "model": "tiny"},
    "a second text": {"text": TEXT, "edits": {"0.3": "zero"}, "compare": "A cat sat"},
    "a second text alone": {"text": TEXT, "edits": {}, "compare": "A cat sat"},
}


@pytest.mark.parametrize("name", ASKED)
def test_the_effect_is_the_answer_of_intervene_bit_for_bit(client, name):
    body = {"position": -1, **ASKED[name]}
    effect = client.post("explore", body).json["effect"]
    own = client.post("intervene", {key: value for key, value in body.items() if key != "compare"})
    assert effect == own.json
    assert json.dumps(effect, ensure_ascii=False).encode() == own.body


def test_what_has_no_position_has_no_effect_and_the_rest_is_the_same(client):
    body = {"text": TEXT, "edits": {"0.3": "zero"}, "compare": "A cat sat"}
    plain, more = client.post("explore", body).json, client.post("explore", {**body, "position": 2}).json
    assert "effect" not in plain
    assert more.pop("effect")["position"] == 2
    assert more == plain


@pytest.mark.parametrize("position", [-7, 6])
def test_a_position_outside_the_text_is_refused_before_anything_is_computed(loaded, position):
    with Cost() as cost, pytest.raises(ArgumentError, match="the text has 6 tokens"):
        asked(loaded, "explore", ids=[1, 2, 3] * 2, position=position)
    assert "embedding" not in cost.names()


# -- from runs that are made once ---------------------------------------------------------------------------------------

def asked(loaded, name, **body):
    """The answer of a call to the demo model, as the server makes it."""
    arguments = calls.CALLS[name].body(**body).model_dump(exclude={"model"})
    return json.loads(calls.call(name, loaded["demo"], arguments, 1024, lambda steps, total=None, desc=None: steps))


def passes(loaded, name, **body):
    """How many forward passes an answer costs, by how many tokens are embedded at a time: [shape of the ids]."""
    with Cost() as cost:
        asked(loaded, name, **body)
    return [shapes[1] for operator, shapes, _ in cost.calls if operator == "embedding"]


@pytest.mark.parametrize(("edits", "runs"), [({}, 1), ({"0.3": "zero"}, 2), ({"1.1": 2}, 2), ({"0.3": "zero", "1.1": 0}, 2)])
def test_no_run_is_made_twice(loaded, edits, runs):
    ids = [5, 6, 7, 8, 9, 5, 6]
    for name, more in (("explore", {"position": -1}), ("explore", {}), ("intervene", {})):
        assert passes(loaded, name, ids=ids, edits=edits, **more) == [(7,)] * runs, name


def test_the_mean_is_made_once(loaded):
    """The two runs and one pass over the 16 random orders, however many heads and layers ask for their mean."""
    for edits in ({"1.1": "mean"}, {"1.1": "mean", "2.2": "mean"}):
        found = passes(loaded, "explore", ids=list(range(20)), edits=edits, position=-1)
        assert found.count((20,)) == 2
        assert sum(shape[0] for shape in found if shape != (20,)) == 16
        assert sorted(found) == sorted(passes(loaded, "intervene", ids=list(range(20)), edits=edits))


def test_the_references_tell_how_far_they_are(loaded):
    seen = []

    def progress(steps, total=None, desc=None):
        seen.append(desc)
        yield from steps

    arguments = calls.CALLS["explore"].body(ids=[1, 2, 3], edits={"1.1": "mean"}).model_dump(exclude={"model"})
    calls.call("explore", loaded["demo"], arguments, 1024, progress)
    assert seen == ["layers", "references", "layers", "layers packed", "layers packed"]


def test_runs_that_exist_give_the_same_intervention(loaded):
    """Whole traces, in float64, of a text with BOS: equal in every number, and in the record."""
    model = loaded["tiny"]
    given = {"bos": True, "n_references": 3, "seed": 4, "top": 5, "position": 2}
    edits, ids = parse_edits(model, "0.1=mean 1.2=zero 2.0=3"), [model.config.bos_token_id, 4, 5, 6, 4, 5]
    own = intervene(model, edits, ids=ids[1:], **given)
    changes = edits_for(model, ids, edits, n_references=3, seed=4)
    made = intervention(trace(model, ids=ids), trace(model, ids=ids, edits=changes), edits, **given)
    for name in ("tokens", "next", "patterns", "copies"):
        assert getattr(made, name).equals(getattr(own, name)), name
    assert (made.position, made.run) == (own.position, own.run)


def test_without_edits_before_and_after_are_one_run(loaded):
    found = intervene(loaded["tiny"], {}, ids=[1, 2, 3])
    assert found.after is found.before
    again = trace(loaded["tiny"], ids=[1, 2, 3])
    assert torch.equal(found.after.logits, again.logits)             # which a second run would have repeated, bit for bit
    assert torch.equal(found.after.pattern, again.pattern)
    with pytest.raises(ArgumentError, match="seed"):
        inspector.intervene(loaded["tiny"], {}, ids=[1, 2, 3], seed=-1)
