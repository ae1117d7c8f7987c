"""From scores to verdicts: above a printed threshold *and* above the control, at 1 % after Holm over all heads.

The control of the matching scores (duplicate_token, induction) is the same head on unrepeated sequences, read at the very
same cells: a head that always looks L - 1 back reads 1 on the stripe and 1 on its control, and is no induction head. The
control of the positional scores is the uniform level. Test: one-sided t (Welch 1947 for the two samples), corrected for
the number of heads by Holm 1979.
"""

import numpy as np
from scipy.special import stdtr

from .cells import MATCHING, POSITIONAL

LEVEL = 0.01
# 0.4 is what the ARENA course uses for its detectors ("a bit arbitrary"); the strong induction heads of GPT-2 small lie
# above 0.8 and the next below 0.53, so 0.3 to 0.8 are all defensible. It is an argument of `heads`.
THRESHOLD = 0.4


def mean_se(values):
    """(mean, standard error) over the first axis, the sequences: [sequence, ...] -> two arrays [...]. One alone: NaN."""
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    return values.mean(0), values.std(0, ddof=1) / n**0.5 if n > 1 else np.full(values.shape[1:], np.nan)


def p_value(mean, se, n, control, control_se, control_n):
    """One-sided p of mean > control; arrays of any shape. With one sequence (no spread) nothing is ever shown: p = 1.

    `control_se` None means the control is a known number.
    """
    mean, se, control = (np.asarray(x, dtype=np.float64) for x in (mean, se, control))
    if n < 2 or (control_se is not None and control_n < 2):
        return np.ones(mean.shape)
    other = np.zeros(mean.shape) if control_se is None else np.asarray(control_se, dtype=np.float64)
    a, b = se**2, other**2
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (mean - control) / np.sqrt(a + b)
        df = (a + b) ** 2 / (a**2 / (n - 1) + (b**2 / (control_n - 1) if control_se is not None else 0))
        p = stdtr(np.nan_to_num(df, nan=1.0), -t)
    # No spread at all (a planted head): any difference is certain, none is none.
    p = np.where((a + b) == 0, np.where(mean > control, 0.0, 1.0), p)
    return np.where(np.isnan(mean), 1.0, p)


def holm(p, level=LEVEL):
    """Which of the hypotheses are rejected at `level` by Holm's step-down rule: boolean array of p's shape."""
    flat = np.asarray(p, dtype=np.float64).ravel()
    order = np.argsort(flat, kind="stable")
    small = flat[order] <= level / (len(flat) - np.arange(len(flat)))
    rejected = np.zeros(len(flat), dtype=bool)
    rejected[order] = np.logical_and.accumulate(small)
    return rejected.reshape(np.shape(p))


def verdicts(table, n, control_n, threshold=THRESHOLD, level=LEVEL):
    """A list of verdict names for each row of the heads table, in the order of the scores.

    table: DataFrame with NAME, NAME_se, NAME_uniform and, for matching scores, NAME_control, NAME_control_se.
    """
    found = {}
    for name in (*POSITIONAL, *MATCHING):
        if name in MATCHING:
            p = p_value(table[name], table[name + "_se"], n, table[name + "_control"], table[name + "_control_se"],
                        control_n)
        else:
            p = p_value(table[name], table[name + "_se"], n, table[name + "_uniform"], None, None)
        found[name] = holm(p, level) & (table[name].to_numpy() > threshold)
    return [[name for name in found if found[name][row]] for row in range(len(table))]
