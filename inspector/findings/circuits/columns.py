"""The columns of `circuits` that one layer's heads fill, each [head]."""

from dataclasses import dataclass
from typing import Any

import torch

from . import positions
from .eigen import core_eigenvalues, eigenvalue_ratio, least_of, norm, ratio_of, reduced, symmetric_share


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


def copying(W_V, W_O, joins, layer):
    """{column: [head]} of OV. The effective embedding is what layers from 1 on read; in layer 0 it is NaN."""
    eigenvalues = core_eigenvalues(W_V, W_O, joins.same)
    return {"ov_copying": eigenvalue_ratio(eigenvalues, least_of(W_V, W_O, joins.same)),
            "ov_copying_vocab": ratio_of(W_V, W_O, joins.write),
            "ov_copying_effective": ratio_of(W_V, W_O, joins.write_effective) if layer else nothing(W_V),
            "ov_positive": (eigenvalues.real > 0).double().mean(-1),
            "ov_norm": norm(reduced(W_V, W_O))}


def matching(W_Q, W_K, joins, composed, layer):
    """{column: [head]} of QK. composed: (join, effective join), both [d_model, d_model], through the earlier heads."""
    W_KT = W_K.mT
    later = {"qk_matching_effective": joins.match_effective, "qk_matching_composed": composed[0],
             "qk_matching_composed_effective": composed[1]}
    return {"qk_matching": ratio_of(W_Q, W_KT, joins.match),
            **{name: ratio_of(W_Q, W_KT, join) if layer else nothing(W_Q) for name, join in later.items()},
            "qk_symmetric": symmetric_share(W_Q, W_K),
            "qk_norm": norm(reduced(W_Q, W_KT))}


def positional(W_Q, W_K, W_pos, divided_by, scale):
    """{column: [head]} of what position embeddings alone attend to. divided_by: [pos], `positions.layer_norm_scale`."""
    scores = positions.positional_scores(W_pos, W_Q, W_K)                                    # [head, query, key]
    offset, z = positions.standing_out(positions.profile(scores))
    return {"positional_offset": offset, "positional_z": z,
            "positional_previous": positions.previous_share(scores * (scale / divided_by[:, None] / divided_by))}
