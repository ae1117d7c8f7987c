"""`heads`: one row a head, every score with its spread, its uniform level, its control, and the verdict.

On repeated random ids (the default) or on the user's own text or ids. The grids of all heads are never held: patterns are
made in blocks of rows, reduced to row scores and dropped.
"""

import pandas as pd
import torch

from ..checkpoint import tokens
from ..errors import ArgumentError
from ..record import run_record
from .cells import MATCHING, find_copies
from .prompts import Prompts, distinct_rows, draw, drawable_ids, find_period, generator_of, with_bos
from .protocols import Protocol, id_range
from .protocols import protocol as protocol_of
from .scores import SCORES, queries
from .scoring import chosen_rows, kernel_name, score_sequences, uniform_levels
from .verdicts import LEVEL, THRESHOLD, mean_se, verdicts


def entries_per_query(symbols):
    """Mean number of followers of earlier copies over the queries that have one: turns a sum over them into a mean."""
    counts = find_copies(symbols).earlier
    return float(counts[counts > 0].double().mean())


def _columns(name, values, uniform, control=None):
    """Columns of one score: mean, standard error over sequences, uniform level and, where there is one, the control."""
    def flat(x):
        return tuple(part.flatten() for part in mean_se(x))

    mean, se = flat(values)
    found = {name: mean, name + "_se": se, name + "_uniform": uniform}
    if control is not None:
        found[name + "_control"], found[name + "_control_se"] = flat(control)
    return found


def assemble(model, values, uniform, control, threshold):
    """The table from per-sequence scores: {score: [sequence, layer, head]}, their uniform levels and the control's."""
    n_layer, n_head = model.config.n_layer, model.config.n_head
    columns = {"layer": [n for n in range(n_layer) for _ in range(n_head)], "head": list(range(n_head)) * n_layer}
    for name in values:
        matching = name in MATCHING or name == "prefix_matching"
        columns |= _columns(name, values[name], uniform[name], control[name] if control and matching else None)
    table = pd.DataFrame(columns)
    n = len(values["induction"])
    if control is None:
        table["verdict"] = [[] for _ in range(len(table))]
    else:
        table["verdict"] = verdicts(table, n, len(control["induction"]), threshold)
    return table


def on_prompts(model, prompts, rule, *, threshold, progress=None):
    """The table of repeated prompts against their controls."""
    rows = prompts.symbols.expand(len(prompts.ids), -1)
    # A control reads the very cells of a repeated sequence; where these differ from row to row, those of each in turn.
    cells = rows[torch.arange(len(prompts.control)) % len(rows)]
    values = score_sequences(model, prompts.ids, rows, rule, prompts.period, progress)
    control = score_sequences(model, prompts.control, cells, rule, prompts.period, progress)
    uniform = uniform_levels(rows if prompts.symbols.dim() == 2 else rows[:1], rule, prompts.period)
    if rule.prefix_matching:
        # Mean of the entries where the stripe is their sum: 25 ids 4 times have 1, 2 and 3 of them a query.
        each = entries_per_query(prompts.symbols)
        for part in (values, control, uniform):
            part["prefix_matching"] = part["induction"] / each
    return assemble(model, values, uniform, control, threshold)


def on_text(model, ids, *, threshold, progress=None):
    """The table of given ids that repeat in no regular way: matching scores where a token has occurred before."""
    rule = Protocol("the text's own repeats", period=1)
    values = score_sequences(model, ids, ids, rule, 1, progress)
    masks = queries(ids)
    uniform = uniform_levels(ids, rule, 1)
    table = assemble(model, values, uniform, None, threshold)
    return table, {name: int(masks[name].sum()) for name in SCORES}


def given_ids(model, ids, text, bos):
    """[sequence, pos] from a text, one row of ids, or rows of one length. Raises TextError, ArgumentError."""
    if text is not None or not _nested(ids):
        return torch.tensor([tokens.encode(model, text, ids=ids, bos=bos)])
    rows = [tokens.encode(model, ids=row, bos=bos) for row in ids]
    if len({len(row) for row in rows}) != 1:
        raise ArgumentError("rows of ids have different lengths; score them one by one")
    return torch.tensor(rows)


def _nested(ids):
    if isinstance(ids, str) or not hasattr(ids, "__len__"):
        return False
    return len(ids) > 0 and getattr(ids[0], "ndim", hasattr(ids[0], "__len__")) > 0


def given_prompts(model, rows, period, bos, n_sequences, seed):
    """Prompts from given rows [sequence, pos] that repeat with a period, with controls drawn for them."""
    symbols = rows.clone()
    if bos:
        symbols[:, 0] = -1
    ids = distinct_rows(drawable_ids(model), rows.shape[1] - bos, n_sequences, generator_of(seed))
    return Prompts(rows, with_bos(model, ids, bos), symbols, period, (rows.shape[1] - bos) // period, bos)


def heads(model, ids=None, *, text=None, period=None, repeats=2, n_sequences=16, bos=False, seed=0, protocol="stripe",
          threshold=THRESHOLD, progress=None):
    """What every head does, in one DataFrame: a row a head, scores as in `findings.scores`.

    Without ids or text: `n_sequences` drawn sequences of `period` (50) distinct ids, `repeats` times, and as many
    unrepeated controls. With several rows of ids that repeat, the period is found in them. With a text, or one
    row of ids, the scores are those of the text itself, and `duplicate_token` and `induction` average the queries whose
    token occurred before (how many: `.attrs["n_queries"]`; NaN where there is none). `protocol` names a published way to
    measure, which fixes everything but the seed.

    Columns: layer, head, then for each score NAME, NAME_se (standard error over sequences), NAME_uniform (the level of
    even attention on the same cells), for duplicate_token and induction also NAME_control and NAME_control_se, and
    verdict: a list of the scores above `threshold` and above their control at 1 % after Holm over all heads. One
    sequence alone never gives a verdict. The run record is in `.attrs["run"]`.

    Raises ArgumentError, TextError.
    """
    rule = protocol_of(protocol)
    if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ArgumentError(f"threshold is {threshold!r}; expected a number from 0 to 1")
    given = ids is not None or text is not None
    if protocol != "stripe":
        if given or (period, repeats, n_sequences, bos) != (None, 2, 16, False):
            raise ArgumentError(f"protocol {protocol!r} fixes ids, period, repeats, sequences, BOS; only the seed is free")
        low, high = id_range(rule, model)
        prompts = draw(model, period=rule.period, repeats=rule.repeats, n_sequences=rule.n_sequences, bos=rule.bos,
                       seed=seed, low=low, high=high, distinct=rule.distinct)
    elif given:
        rows = given_ids(model, ids, text, bos)
        bos_first = model.config.bos_token_id is not None and bool((rows[:, 0] == model.config.bos_token_id).all())
        found = find_period(rows, model.config.bos_token_id if bos_first else None)
        if period is not None and period != found:
            raise ArgumentError(f"the ids repeat with {f'period {found}' if found else 'no period'}, not {period}")
        if repeats != 2 or (len(rows) == 1 and (n_sequences, seed) != (16, 0)):
            raise ArgumentError("a text or one row of ids is scored as it is: repeats, n_sequences and seed are for drawn "
                                "sequences")
        # One row gives no spread and so no verdict: it needs no control, and its copies are its equal ids.
        prompts = given_prompts(model, rows, found, bos_first, n_sequences, seed) if found and len(rows) > 1 else None
    else:
        prompts = draw(model, period=rule.period if period is None else period, repeats=repeats, n_sequences=n_sequences,
                       bos=bos, seed=seed)

    if prompts is None:
        table, n_queries = on_text(model, rows, threshold=threshold, progress=progress)
    else:
        table = on_prompts(model, prompts, rule, threshold=threshold, progress=progress)
        n_queries = {name: int(mask.sum()) for name, mask in chosen_rows(prompts.symbols, rule, prompts.period).items()}
    used = {"protocol": protocol, "source": rule.source,
            "period": prompts.period if prompts else found,
            "repeats": prompts.repeats if prompts else None, "n_sequences": len(prompts.ids if prompts else rows),
            "bos": prompts.bos if prompts else bos, "seed": seed, "threshold": threshold, "level": LEVEL,
            "text": text, "ids": ids, "n_queries": n_queries,
            "kernel": kernel_name(model, prompts.symbols if prompts else rows, rule)}
    table.attrs = {"run": run_record(model, "heads", **used), "n_queries": n_queries, "threshold": threshold,
                   "period": used["period"]}
    return table
