"""Which function answers which request, and how its result becomes JSON. The answers are those of `--json`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from .. import answers
from ..checkpoint import tokens
from ..errors import ArgumentError, TextError
from ..findings.ablation import ablate
from ..findings.attribution import attribute
from ..findings.head_names import head_name, parse_heads
from ..findings.in_text import induction
from ..findings.interventions import edits_for, intervene, intervention, next_place, parse_edits
from ..findings.prompts import draw, longest_period
from ..findings.table import heads
from ..model.sizes import info
from ..model.tracing import kept_names, trace
from ..pages.explorer.bundle import bundle, text_scores
from ..pages.html import model_facts
from ..record import to_json
from . import bodies

MOST_NUMBERS = 2_000_000     # of a trace: about 40 MB of JSON


@dataclass(frozen=True)
class Call:
    """One route: POST /api/NAME."""

    function: Callable          # (model, **arguments) -> result
    body: type                  # what the request holds
    answer: Callable            # result -> plain data
    example: dict               # a body that works


def numbers_of(config, n, names):
    """How many numbers the named tensors of a trace of n tokens hold."""
    heads_, wide = config.n_layer * config.n_head * n, config.n_layer * n * config.d_model
    sizes = {"scores": heads_ * n, "pattern": heads_ * n, "logits": n * config.vocab_size}
    return sum(sizes.get(name, wide) for name in names)


def small_trace(model, *, text, ids, bos, keep, progress):
    """`trace`, where what it keeps can be sent. Raises ArgumentError before anything is computed."""
    row = tokens.encode(model, text, ids=ids, bos=bos)
    names = kept_names(keep)
    if (count := numbers_of(model.config, len(row), names)) > MOST_NUMBERS:
        raise ArgumentError(f"{', '.join(names)} of {len(row)} tokens are {count:,} numbers; this server sends at most "
                            f"{MOST_NUMBERS:,}: keep fewer tensors, shorten the text, or use inspector trace")
    return trace(model, text, ids=ids, bos=bos, keep=keep, progress=progress)


def token_ids(model, *, text, ids, bos, repeat, period, seed):
    """The ids of a text and their labels; twice over, or drawn at random and twice over."""
    if repeat != "random" and (period, seed) != (None, 0):
        raise ArgumentError("period and seed are for repeat 'random'")
    if repeat == "random":
        if text is not None or ids is not None:
            raise ArgumentError("repeat 'random' draws its own ids: give no text and no ids")
        period = longest_period(model, bos) if period is None else period
        row = draw(model, period=period, n_sequences=1, bos=bos, seed=seed).ids[0].tolist()
    else:
        row = tokens.encode(model, text, ids=ids, bos=bos)
        first = int(row[0] == model.config.bos_token_id)
        row = row + row[first:] if repeat == "text" else row
    return {"ids": row, "labels": tokens.labels(model, row)}


SAID = {"zero": "off", "mean": "its mean instead"}      # edits in words


def explored(model, *, text, ids, bos, compare, edits, moves, position, progress):
    """What the explorer shows of a text, as `explore` stores it on a page, and beside it what is asked for.

    `compare` is a second text; with `edits` the second one is the same text with heads changed. With a `position`, counted
    from 0 or from the end if negative, the answer has a part `effect`: what `intervene` answers for the same text, edits
    and position, made of the same runs.

    What is stored is rounded to half precision. Up to 256 tokens that is the logarithm of every weight: no weight is off by
    more than the `bound` in the text's `error`, at any sharpness from 0.001 to 1,000; it grows with the text and stays
    below 0.001. Beyond 256 tokens it is q and k, and no weight is off by more than half of `measured` times the sharpness.
    `measured` was read off every cell of this answer: up to 256 tokens it is the largest error of a weight at sharpness 1,
    beyond them that of a score.

    The q, k and v of `moves` and the `cosines` are in half precision too (each number within 1 part in 2,048 of itself,
    tiny ones apart), lengths and `tops` in single precision, `thumbs` in 8 bits, `scores` to six decimals. Not rounded are
    the weights of `moves`, named `exact`, and all of `effect`. All this is measured from the model's own numbers: one that
    computes in bfloat16 or float16 has rounded them itself before.
    """
    row = tokens.encode(model, text, ids=ids, bos=bos)
    chosen = parse_edits(model, edits)
    place = None if position is None else next_place(model, len(row), position)
    runs, names = [trace(model, ids=row, progress=progress)], ["before" if chosen else "the first text"]
    if chosen:
        runs.append(trace(model, ids=row, edits=edits_for(model, row, chosen, progress=progress), progress=progress))
        said = [f"{head_name(head)} {SAID.get(how) or f'scores × {how:g}'}" for head, how in chosen.items()]
        names.append("after: " + (", ".join(said) if len(said) < 3 else f"{len(said)} heads changed"))
    effect = {} if place is None else {"effect": answers.of_intervention(
        intervention(runs[0], runs[-1], chosen, position=place, text=text, bos=bos))}
    if compare is not None:
        runs.append(trace(model, compare, bos=bos, progress=progress))
        names.append("the second text")
    stored = bundle(runs, [text_scores(run) for run in runs], name=model_facts(model)["model"], progress=progress,
                    moves=None if moves is None else parse_heads(model, moves, least=0))
    for each, name in zip(stored["texts"], names, strict=True):
        each["name"] = name
    return stored | effect


CALLS = {
    "info": Call(info, bodies.Info, dict, {"text": "The cat sat on the mat"}),
    "ids": Call(token_ids, bodies.Tokens, dict, {"text": "The cat sat", "repeat": "text"}),
    "trace": Call(small_trace, bodies.Trace, answers.of_trace, {"text": "The cat sat", "keep": "pattern"}),
    "heads": Call(heads, bodies.HeadScores, answers.of_heads, {"n_sequences": 4, "period": 20}),
    "induction": Call(induction, bodies.Induction, answers.of_induction, {"text": "Ms. Dursley saw a cat. Ms."}),
    "attribute": Call(attribute, bodies.Attribute, answers.of_attribution, {"text": "The cat sat on the"}),
    "ablate": Call(ablate, bodies.Ablate, answers.of_table, {"heads": "1.1", "n_sequences": 4, "n_controls": 2}),
    "explore": Call(explored, bodies.Explore, dict,
                    {"text": "Ms. Dursley saw a cat. Ms.", "edits": {"1.1": "zero"}, "position": -1}),
    "intervene": Call(intervene, bodies.Intervene, answers.of_intervention,
                      {"text": "Ms. Dursley saw a cat. Ms.", "edits": {"1.1": "zero", "1.2": 0.5}}),
}


def refuse_long(model, arguments, most):
    """Raise TextError for a text, or any row of ids, of more than `most` tokens, and for more than MOST rows."""
    text, ids, bos = (arguments.get(name) for name in ("text", "ids", "bos"))
    nested = isinstance(ids, list) and any(isinstance(row, list) for row in ids)
    if nested and len(ids) > bodies.MOST:
        raise TextError(f"{len(ids)} rows of ids; this server takes at most {bodies.MOST}")
    given = [(text, row) for row in (ids if nested else [ids])] + [(arguments.get("compare"), None)]
    for one, row in given:
        if (one is None) != (row is None) and (n := len(tokens.encode(model, one, ids=row, bos=bos))) > most:
            raise TextError(f"the text has {n:,} tokens; this server takes at most {most:,}")


def call(name, model, arguments, most, progress):
    """The answer of one call, as JSON text. Raises InspectorError."""
    one = CALLS[name]
    refuse_long(model, arguments, most)
    more = {"progress": progress} if "progress" in inspect.signature(one.function).parameters else {}
    return to_json(one.answer(one.function(model, **arguments, **more)), indent=None)
