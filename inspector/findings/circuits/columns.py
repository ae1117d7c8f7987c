"""The columns of `circuits` that one layer's heads fill, each [head]."""

from dataclasses import dataclass
from typing import Any

import torch

from . import positions
from .eigen import core_eigenvalues, eigenvalue_ratio, least_of, norm, ratio_of, symmetric_share


@dataclass(frozen=True, eq=False, repr=False)
class Joins:
    """The [d_model, d_model] matrices that join the ends of the big products; see `eigen`.

    Layer 0 reads W_E; every later layer reads the effective embedding, here F (`folding.effective_embedding`).
    """

    same: Any                     # the identity: the residual basis
    write: Any                    # W_U W_E: tokens read from the embedding, and written
    write_effective: Any          # W_U F
    match: Any                    # W_E^T W_E: keys' tokens against queries'
    match_effective: Any          # F^T F
    match_across: Any             # W_E^T F: keys' tokens as layer 0 reads them against queries' as later layers do


def joins_of(weights, effective):
    """The Joins of FoldedWeights and an effective embedding [vocab, d_model]."""
    W_E, W_U = weights.W_E, weights.W_U
    return Joins(torch.eye(W_E.shape[1], dtype=W_E.dtype), W_U @ W_E, W_U @ effective, W_E.mT @ W_E,
                 effective.mT @ effective, W_E.mT @ effective)


def nothing(W):
    """NaN for each head."""
    return W.new_full(W.shape[:1], torch.nan)


def copying(ov, joins, layer):
    """{column: [head]} of a layer's OV (`eigen.Product`). Layers from 1 on read the effective embedding; layer 0 is NaN."""
    eigenvalues = core_eigenvalues(ov, joins.same)
    return {"ov_copying": eigenvalue_ratio(eigenvalues, least_of(ov, joins.same)),
            "ov_copying_vocab": ratio_of(ov, joins.write),
            "ov_copying_effective": ratio_of(ov, joins.write_effective) if layer else nothing(ov.left),
            "ov_positive": (eigenvalues.real > 0).double().mean(-1),
            "ov_norm": norm(ov.right)}


def matching(qk, joins, composed, layer):
    """{column: [head]} of a layer's QK (`eigen.Product`). composed: (join, effective join), [d_model, d_model], through the
    earlier heads.
    """
    later = {"qk_matching_effective": joins.match_effective, "qk_matching_composed": composed[0],
             "qk_matching_composed_effective": composed[1]}
    return {"qk_matching": ratio_of(qk, joins.match),
            **{name: ratio_of(qk, join) if layer else nothing(qk.left) for name, join in later.items()},
            "qk_symmetric": symmetric_share(qk),
            "qk_norm": norm(qk.right)}


def positional(W_Q, W_K, W_pos, divided_by, scale):
    """{column: [head]} of what position embeddings alone attend to. divided_by: [pos], `positions.layer_norm_scale`."""
    found = []
    for head in range(len(W_Q)):      # a grid of all positions at a time: it stays in the caches
        q, k = (W_pos @ W[head:head + 1] for W in (W_Q, W_K))                                # [1, pos, d_head]
        offset, z = positions.standing_out(positions.profile(q @ k.mT))
        q, k = (part / divided_by[:, None] for part in (q, k))
        found.append((offset, z, positions.previous_share(q, k, scale)))
    columns = (torch.cat(column) for column in zip(*found, strict=True))
    return dict(zip(("positional_offset", "positional_z", "positional_previous"), columns, strict=True))
