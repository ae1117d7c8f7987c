"""`check --against published`: every published number and statement beside ours, with what may differ and what may fail."""

import math

import pandas as pd
import torch

from ...errors import ArgumentError
from .data import golden, release_of, statements
from .readings import READINGS

SPREADS = 4.0        # a band is so many standard deviations of the difference of two means wide
COLUMNS = ["part", "quantity", "layer", "head", "ours", "theirs", "difference", "bound", "verdict", "statement", "source",
           "where", "note"]
VERDICTS = ("passed", "failed", "within band", "outside band", "agrees", "disagrees", "shown", "not measured")
NUMBERS = ["ours", "theirs", "difference", "bound"]


def families_of(keys):
    """The families that keys "family column" need, in the order of READINGS, so that each is read once."""
    wanted = {key.split(" ", 1)[0] for key in keys if key}
    return [name for name in READINGS if name in wanted]


def band(spread, n, their_n, rounding):
    """Half the width of what chance allows between two means of n and their_n sequences; plus rounding.

    spread: standard deviation over our sequences; theirs is taken to be the same.
    """
    return SPREADS * spread * math.sqrt(1 / n + 1 / their_n) + rounding


def printed_to(text):
    """Half a unit of a printed number's last digit: "0.93" -> 0.005."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def places(reading):
    """(layer, head, name in words) of each number of a Reading, in the order of its memory."""
    if reading.names is not None:
        return [(None, None, f", {name}") for name in reading.names]
    n_layer, n_head = reading.mean.shape
    return [(layer, head, "") for layer in range(n_layer) for head in range(n_head)]


def array_rows(release, read):
    """Rows of the whole arrays of a release. read: {key: Reading}."""
    found, rows = golden(release), []
    cited = {row.measure: (row.source, row.where) for row in statements(release).itertuples()}
    for key, values in found["arrays"].items():
        theirs, ours = torch.tensor(values, dtype=torch.float64), read[key]
        if theirs.shape != ours.mean.shape:
            raise ArgumentError(f"the published {key} has the shape {list(theirs.shape)}; this model gives "
                                f"{list(ours.mean.shape)}")
        exact = found["exact"].get(key)
        bounds = torch.full_like(theirs, exact) if exact else band(ours.spread, ours.n, found["sequences"][key], 5e-5)
        words = ("passed", "failed") if exact else ("within band", "outside band")
        numbers = (x.flatten().tolist() for x in (ours.mean, theirs, bounds))
        for (layer, head, name), a, b, bound in zip(places(ours), *numbers, strict=True):
            difference = abs(a - b)
            rows.append(("arrays", key + name, layer, head, a, b, difference, bound, words[not difference <= bound], "",
                         *cited.get(key, (found["source"], "")), ""))
    return rows


def statement_row(row, read):
    """One row of the table from one of `data.statements`."""
    layer, head = (int(x) if x else None for x in (row.layer, row.head))
    ours = theirs = difference = bound = math.nan
    verdict, note = row.compare, row.why
    reading = read.get(row.ours)
    if reading is not None:
        ours = float(reading.mean[layer, head])
    if row.compare in ("exact", "band"):
        theirs = float(row.value)
        if row.bound:
            bound = float(row.bound)
        else:
            bound = band(float(reading.spread[layer, head]), reading.n, int(row.sequences), printed_to(row.value))
        difference = abs(ours - theirs)
        words = ("passed", "failed") if row.compare == "exact" else ("within band", "outside band")
        verdict = words[not difference <= bound]
    elif row.compare == "rank":
        note = f"ours and theirs are ranks; our score is {ours:.4f}"
        ours, theirs = float((reading.mean > ours).sum() + 1), float(row.value)
        verdict = "agrees" if ours <= theirs else "disagrees"
    elif row.compare == "below 0":
        se = float(reading.spread[layer, head]) / reading.n**0.5
        note = f"ours is copying_second in logits, standard error {se:.4f}"
        verdict = "agrees" if ours + 2 * se < 0 else "disagrees"
    statement = f"{row.role}: {row.claim}" if row.claim else row.role
    return ("statements", row.measure, layer, head, ours, theirs, difference, bound, verdict, statement, row.source,
            row.where, note)


def in_short(table):
    """Each kind of number in one row: part, kind, and of the place nearest its bound where, ours, theirs, difference, bound
    (NaN where nothing has a bound), and verdicts, {verdict: how many}.
    """
    rows, kinds = [], table["quantity"].str.partition(",")[0]
    for (part, kind), group in table.assign(kind=kinds).groupby(["part", "kind"], sort=False):
        used = group["difference"] / group["bound"]
        row = group.loc[used.idxmax()] if used.notna().any() else None
        where = None if row is None else row["quantity"].partition(", ")[2] or f"{row['layer']}.{row['head']}"
        rows.append({"part": part, "kind": kind, "where": where, **{n: math.nan if row is None else row[n] for n in NUMBERS},
                     "verdicts": group["verdict"].value_counts().to_dict()})
    return pd.DataFrame(rows)


def summary(table, whose="published numbers"):
    """One sentence: how many could fail and did, how many lie in their band, what agrees, what is not measured."""
    n = {word: int((table["verdict"] == word).sum()) for word in VERDICTS}
    parts = [(n["passed"] + n["failed"], f"exactly reproducible, {n['failed']} failed"),
             (n["within band"] + n["outside band"], f"of unseeded runs, {n['outside band']} outside their band"),
             (n["agrees"] + n["disagrees"], f"claims in words, {n['disagrees']} disagree"),
             (n["shown"], "shown beside"), (n["not measured"], "not measured")]
    return f"{len(table)} {whose}: " + "; ".join(f"{count} {words}" for count, words in parts if count)


def published(model, progress=None):
    """The table of everything published on the release that a model is. Attributes as `checks.check`.

    Columns: part ("arrays", "statements"), quantity, layer, head (None where there is none), ours (NaN where it is not
    measured; note says why), theirs, difference, bound, verdict, statement (role and claim, as published), source, where,
    note. Only "passed" and "failed" decide; a band is what chance and rounding allow an unseeded run, 4 standard
    deviations.

    Raises ArgumentError for a model on which nothing is published, and for half precision.
    """
    release = release_of(model)
    if model.dtype not in ("float32", "float64"):
        raise ArgumentError(f"published numbers are compared in float32 or float64; this model is {model.dtype}")
    claims = statements(release)
    inputs, keys = golden(release)["inputs"], [*golden(release)["arrays"], *claims["ours"]]
    families = families_of(keys)
    read = {}
    for name in progress(families) if progress is not None else families:
        read |= {f"{name} {column}": reading for column, reading in READINGS[name](model, inputs).items()}
    rows = array_rows(release, read) + [statement_row(row, read) for row in claims.itertuples()]
    table = pd.DataFrame(rows, columns=COLUMNS, dtype=object).astype(dict.fromkeys(NUMBERS, float))
    failed = bool((table["verdict"] == "failed").any())
    exact = failed or bool((table["verdict"] == "passed").any())
    whose = "numbers of TransformerLens" if release == "demo" else "published numbers"
    table.attrs = {"passed": not failed, "verdict": "failed" if failed else "passed" if exact else "bands only",
                   "summary": summary(table, whose), "release": release}
    return table
