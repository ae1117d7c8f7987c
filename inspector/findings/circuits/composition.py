"""Pairs of heads: how much of what the earlier one writes the later one reads (Elhage et al. 2021, "Composition").

    Q   ||W_OV1 W_QK2||   / (||W_OV1|| ||W_QK2||)      through the later head's queries
    K   ||W_OV1 W_QK2^T|| / (||W_OV1|| ||W_QK2||)      through its keys
    V   ||W_OV1 W_OV2||   / (||W_OV1|| ||W_OV2||)      through its values

(matrices as x @ W, Frobenius norms). Random matrices do not read 0 but about 1 / sqrt(d_model): hence the baseline, the
same numbers of random heads of these shapes, Gaussian factors, from a seed.
"""

import itertools
from typing import NamedTuple

import pandas as pd
import torch

from .eigen import eigenvalue_ratio, least_sum, norm, reduced

KINDS = ("q", "k", "v")


class Ends(NamedTuple):
    """A layer's heads, each product folded into one factor with the norms of the whole (`eigen.reduced`)."""

    out: torch.Tensor         # [head, d_head, d_model], what W_OV writes
    q: torch.Tensor           # [head, d_model, d_head], W_QK as its queries read
    k: torch.Tensor           # [head, d_model, d_head], W_QK as its keys read
    v: torch.Tensor           # [head, d_model, d_head], W_OV as its values read


def ends(W_Q, W_K, W_V, W_O):
    """The Ends of a layer's heads. W_Q, W_K, W_V: [head, d_model, d_head]; W_O: [head, d_head, d_model]."""
    return Ends(reduced(W_V, W_O), reduced(W_K, W_Q.mT).mT, reduced(W_Q, W_K.mT).mT, reduced(W_O.mT, W_V.mT).mT)


def between(out, reading):
    """out @ reading of every pair of heads: [from, to, d_head, d_head]."""
    return torch.einsum("fed,tdk->ftek", out, reading)


def compositions(earlier, later):
    """{"q", "k", "v": [from, to]} of all pairs of two layers' Ends; NaN for a head that is zero."""
    return {kind: norm(between(earlier.out, reading)) / (norm(earlier.out)[:, None] * norm(reading))
            for kind, reading in zip(KINDS, (later.q, later.k, later.v), strict=True)}


def baseline(d_model, d_head, samples, generator):
    """Composition of random heads of these shapes: a DataFrame, a row each for q, k, v, with mean, spread, p99, samples.

    samples: ordered pairs of different heads, among as few heads as give so many (whichever head is shared, a pair's mean
    square is 1 / d_model). spread: standard deviation over them; p99: 99th percentile, interpolated. At d_model 768 and
    d_head 64: 0.0361, spread 0.0004.
    """
    n = next(n for n in itertools.count(2) if n * (n - 1) >= samples)
    W_Q, W_K, W_V, W_O = torch.randn(4, n, d_model, d_head, generator=generator).double()
    heads = ends(W_Q, W_K, W_V, W_O.mT)
    different = ~torch.eye(n, dtype=torch.bool)
    drawn = {kind: found[different][:samples] for kind, found in compositions(heads, heads).items()}
    return pd.DataFrame([{"kind": kind, "mean": float(x.mean()), "spread": float(x.std()), "p99": float(x.quantile(0.99)),
                          "samples": samples} for kind, x in drawn.items()])


class Moved(NamedTuple):
    """What a layer's heads move to where a key stands, seen from the queries' tokens."""

    W: torch.Tensor           # [head, d_model, d_head], join^T W_V
    W_O: torch.Tensor         # [head, d_head, d_model]
    norm: torch.Tensor        # [head], ||join^T W_V W_O||


def moved(W_V, W_O, join):
    """A layer's Moved. join: [d_model, d_model], keys' tokens against queries': W_E^T W_E, or of other embeddings."""
    W = join.mT @ W_V
    return Moved(W, W_O, norm(reduced(W, W_O)))


def matching_through(earlier, W_Q, W_K):
    """Eigenvalue ratio of the lookup of a later head through what an earlier one moved to the key: [from, to].

    earlier: Moved. With the join W_E^T W_E the product is W_E W_QK (W_E W_OV)^T: does a token match the one that the earlier
    head brings to the key (an induction head's lookup). W_Q, W_K: [head, d_model, d_head] of the later layer.
    """
    cores = between(earlier.W_O, W_K).mT @ between(earlier.W.mT, W_Q)                        # [from, to, d_head, d_head]
    d_model, d_head = W_Q.shape[-2:]
    least = least_sum(d_head, d_model, norm(reduced(W_Q, W_K.mT)), earlier.norm[:, None])
    return eigenvalue_ratio(torch.linalg.eigvals(cores), least)
