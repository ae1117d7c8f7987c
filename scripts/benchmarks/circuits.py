"""What the weights say of every head and pair, beside the same numbers from whole matrices, one pair after another.

Of whole [d_model, d_model] matrices a pair takes a second or so: that way is run on a few pairs, and its time is theirs
times the number of all pairs, as its note says.
"""

import time

import torch

import inspector
from inspector.findings.circuits.eigen import eigenvalues
from inspector.findings.circuits.folding import folded
from inspector.findings.circuits.table import circuits

from .measuring import Measured, fresh, peak_above, resident

SAMPLE = 4            # pairs that the whole matrices are made for


def from_whole_matrices(W_QK, W_OV, gram):
    """A pair as a reader would write it from the definitions: (K-composition, matching), both of whole matrices.

    W_OV of the earlier head, W_QK of the later, both [d_model, d_model]; gram: W_E^T W_E, so that not even this way makes
    anything of vocab by vocab.
    """
    norm = torch.linalg.matrix_norm
    values = torch.linalg.eigvals(W_QK @ (gram @ W_OV).mT)
    return float(norm(W_OV @ W_QK.mT) / norm(W_OV) / norm(W_QK)), float(values.real.sum() / values.abs().sum())


def in_fresh_process(source):
    """Peak bytes of `circuits`, the weights included."""
    before = resident()
    peak, _ = peak_above(before, lambda: circuits(inspector.load(source)))
    return peak


@torch.no_grad()
def measure(setting):
    """Yield the rows. The results agree, and by how much stands in the note."""
    model = inspector.load(setting.source)
    w = folded(model)
    gram = w.W_E.mT @ w.W_E
    cores = torch.randn(2, 144, model.config.d_head, model.config.d_head, dtype=torch.float64)
    ours, whole, alone = [], [], []
    for _ in range(min(3, setting.repetitions)):
        start = time.perf_counter()
        table = circuits(model).pairs
        ours.append(time.perf_counter() - start)
        sample = table.iloc[::max(1, len(table) // SAMPLE)].head(SAMPLE)
        start, same = time.perf_counter(), 0.0
        for row in sample.itertuples():
            W_OV = w.W_V[row.layer_from, row.head_from] @ w.W_O[row.layer_from, row.head_from]
            W_QK = w.W_Q[row.layer, row.head] @ w.W_K[row.layer, row.head].mT
            composition, ratio = from_whole_matrices(W_QK, W_OV, gram)
            same = max(same, abs(composition - row.k_composition), abs(ratio - row.matching))
        whole.append((time.perf_counter() - start) / len(sample) * len(table))
        start = time.perf_counter()
        eigenvalues(cores)
        alone.append((time.perf_counter() - start) / 288 * 2 * len(table))       # each pair has two matchings
    task = f"circuits: {len(table):,} pairs of heads, their composition and matching"
    yield Measured(task, "everything that `circuits` says", tuple(ours), fresh("circuits", "in_fresh_process",
                                                                               source=str(setting.source)),
                   note=f"equal to {same:.0e}")
    yield Measured(task, "whole matrices, K-composition and one matching alone", tuple(whole),
                   note=f"extrapolated from {len(sample)} pairs")
    yield Measured(task, "the eigenvalues of as many [d_head, d_head] matrices alone", tuple(alone),
                   note="LAPACK's share: below it only with fewer eigenvalues or more cores")
