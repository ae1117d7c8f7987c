"""Results as plain data that JSON can hold: what `--json` prints and what the live page's API answers, in one place.

A function a kind of result: `info` gives plain data already, the study has `findings.study.as_json`.
"""

from .model.tracing import TENSORS
from .record import plain, rows_of


def of_table(table):
    """{"run", the other facts in `.attrs`, "rows"} of a table whose run record is in `.attrs["run"]`."""
    facts = {name: value for name, value in table.attrs.items() if name != "run"}
    return {"run": table.attrs["run"], **facts, "rows": rows_of(table)}


def of_heads(table):
    """The table of `heads`; what else its `.attrs` say stands in the run record."""
    return {"run": table.attrs["run"], "rows": rows_of(table)}


def of_check(table):
    """The table of `check`, with its verdict."""
    return {"run": table.attrs["run"], "passed": table.attrs["passed"], "verdict": table.attrs["verdict"],
            "rows": rows_of(table)}


def of_attribution(found):
    """An Attribution: rows (the parts), sources, lens."""
    return {"run": found.run, "question": found.question, "total": found.total, "rows": rows_of(found.parts),
            "sources": rows_of(found.sources), "lens": rows_of(found.lens)}


def of_induction(found):
    """A TextInduction: rows (the places), by_head."""
    return {"run": found.run, "rows": rows_of(found.places), "by_head": rows_of(found.by_head)}


def of_circuits(found):
    """The five tables of `circuits`."""
    tables = {"rows": found.heads, "pairs": found.pairs, "directions": found.directions, "spectra": found.spectra,
              "baseline": found.baseline}
    return {"run": found.run, **{name: rows_of(table) for name, table in tables.items()}}


def of_intervention(found):
    """An Intervention: tokens, next, patterns, copies. The traces are left out."""
    return {"run": found.run, "position": found.position, "tokens": rows_of(found.tokens), "next": rows_of(found.next),
            "patterns": rows_of(found.patterns), "copies": rows_of(found.copies)}


def of_trace(trace):
    """A Trace with the tensors it keeps as nested lists; cells above the diagonal of the scores are null."""
    return {"run": trace.run, "ids": plain(trace.ids), "labels": trace.labels, "texts": trace.texts, "bos": trace.bos,
            **{name: plain(tensor) for name in TENSORS if (tensor := getattr(trace, name)) is not None}}
