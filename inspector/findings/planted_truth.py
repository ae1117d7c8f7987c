"""`check --against planted`: the scores of a model whose heads are known, and of the same model with one thing changed.

A score that reads 1 on the planted head shows that it sees what it names; the counterfactuals show that it notices when
the thing is gone. Each row: what was measured, what was planted, their difference, and the bound.
"""

import pandas as pd

from ..demo.planted import PLANTED, fixed_offset, keys_shifted, previous_token_silent
from .table import heads
from .verdicts import THRESHOLD

PERIOD = 50
BOUND = {"float64": 1e-9, "float32": 1e-6}
COARSE = 1e-2           # half precision: the scores are what they are, to two digits


def planted_truth(model, progress=None):
    """The table of planted scores against measured ones, with the counterfactuals. Attributes as `checks.check`."""
    bound = BOUND.get(model.dtype, COARSE)
    rows = []

    def compare(part, quantity, head, ours, theirs, limit):
        difference = abs(ours - theirs)
        rows.append((part, quantity, *head, ours, theirs, difference, limit, "passed" if difference <= limit else "failed"))

    def verdict(part, table, name, expected):
        found = [(int(r.layer), int(r.head)) for r in table.itertuples() if name in r.verdict]
        for head in sorted({*found, *expected}):
            compare(part, f"verdict {name}", head, float(head in found), float(head in expected), 0.0)

    def score(table, head, column):
        return float(table[(table["layer"] == head[0]) & (table["head"] == head[1])][column].iloc[0])

    for part, bos in (("planted", False), ("planted, BOS", True)):
        table = heads(model, period=PERIOD, bos=bos, progress=progress)
        for name, head in PLANTED.items():
            compare(part, name, head, score(table, head, name), 1.0, bound)
            verdict(part, table, name, [head])

    induction = PLANTED["induction"]
    table = heads(previous_token_silent(model), period=PERIOD, progress=progress)
    part = "previous-token head silent"
    compare(part, "induction", induction, score(table, induction, "induction"), score(table, induction, "induction_control"),
            THRESHOLD / 4)
    verdict(part, table, "induction", [])

    table = heads(fixed_offset(model, PERIOD), period=PERIOD, progress=progress)
    part = "fixed offset"
    compare(part, "induction", induction, score(table, induction, "induction"), 1.0, bound)
    compare(part, "induction_control", induction, score(table, induction, "induction_control"), 1.0, bound)
    verdict(part, table, "induction", [])

    table = heads(keys_shifted(model), period=PERIOD, progress=progress)
    part = "keys shifted by one"
    compare(part, "previous_token", induction, score(table, induction, "previous_token"), 1.0, bound)
    verdict(part, table, "previous_token", [PLANTED["previous_token"], induction])
    verdict(part, table, "induction", [])

    table = pd.DataFrame(rows, columns=["part", "quantity", "layer", "head", "ours", "theirs", "difference", "bound",
                                        "verdict"])
    failed = int((table["verdict"] != "passed").sum())
    table.attrs = {"passed": failed == 0, "verdict": "failed" if failed else "passed",
                   "summary": f"{len(table)} comparisons with what was planted; {failed} failed"}
    return table
