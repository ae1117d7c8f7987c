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

from .eigen import eigenvalue_ratio, eigenvalues, least_sum, norm, product, triangle

KINDS = ("q", "k", "v")


class Ends(NamedTuple):
    """The ends of a layer's heads that meet those of other layers, each with the norms of the whole product."""

    out: torch.Tensor         # [head, d_head, d_model], what W_OV writes
    q: torch.Tensor           # [head, d_model, d_head], W_QK as its queries read
    k: torch.Tensor           # [head, d_model, d_head], W_QK as its keys read; W_QK = asks k^T
    v: torch.Tensor           # [head, d_model, d_head], W_OV as its values read
    asks: torch.Tensor        # [head, d_model, d_head], orthonormal columns


def ends(ov, qk):
    """The Ends of a layer's heads from the Products W_V W_O and W_Q W_K^T (`eigen.product`)."""
    return Ends(ov.right, qk.left @ triangle(qk.right), qk.right.mT, ov.left @ triangle(ov.right), qk.left)


def between(out, reading):
    """out @ reading of every pair of heads: [from, to, d_head, d_head]."""
    return torch.einsum("fed,tdk->ftek", out, reading)


def meetings(out, later):
    """{"q", "k", "v": [from, to, d_head, d_head]}: each `Ends.out` of a layer as the heads of later Ends read it."""
    return {kind: between(out, getattr(later, kind)) for kind in KINDS}


def compositions(met, out, later):
    """{"q", "k", "v": [from, to]} of all pairs, from their `meetings`; NaN for a head that is zero."""
    return {kind: norm(met[kind]) / (norm(out)[:, None] * norm(getattr(later, kind))) for kind in KINDS}


def baseline(d_model, d_head, samples, generator):
    """Composition of random heads of these shapes: a DataFrame, a row each for q, k, v, with mean, spread, p99, samples.

    samples: ordered pairs of different heads, among as few heads as give so many (whichever head is shared, a pair's mean
    square is 1 / d_model). spread: standard deviation over them; p99: 99th percentile, interpolated. At d_model 768 and
    d_head 64: 0.0361, spread 0.0004.
    """
    n = next(n for n in itertools.count(2) if n * (n - 1) >= samples)
    W_Q, W_K, W_V, W_O = torch.randn(4, n, d_model, d_head, generator=generator).double()
    heads = ends(product(W_V, W_O.mT), product(W_Q, W_K.mT))
    different = ~torch.eye(n, dtype=torch.bool)
    found = compositions(meetings(heads.out, heads), heads.out, heads)
    drawn = {kind: values[different][:samples] for kind, values in found.items()}
    return pd.DataFrame([{"kind": kind, "mean": float(x.mean()), "spread": float(x.std()), "p99": float(x.quantile(0.99)),
                          "samples": samples} for kind, x in drawn.items()])


class Moved(NamedTuple):
    """What a layer's heads move to where a key stands, seen from the queries' tokens: W^T `Ends.out`."""

    W: torch.Tensor           # [head, d_head, d_model]
    norm: torch.Tensor        # [head], of the whole


def moved(ov, join):
    """A layer's Moved. join: [d_model, d_model], keys' tokens against queries': W_E^T W_E, or of other embeddings."""
    W = (join.mT @ ov.left).mT
    return Moved(W, norm(triangle(W).mT @ ov.right))


def matching_through(met, earlier, later):
    """Eigenvalue ratio of the lookup of a later head through what an earlier one moved to the key: [from, to].

    met: the "k" of the `meetings`; earlier: Moved; later: Ends. With the join W_E^T W_E the product is
    W_E W_QK (W_E W_OV)^T: does a token match the one that the earlier head brings to the key (an induction head's lookup).
    """
    cores = met.mT @ between(earlier.W, later.asks)                                          # [from, to, d_head, d_head]
    d_head, d_model = earlier.W.shape[-2:]
    return eigenvalue_ratio(eigenvalues(cores), least_sum(d_head, d_model, norm(later.k), earlier.norm[:, None]))
