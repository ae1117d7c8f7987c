"""Products of rank d_head read through their [d_head, d_head] core: eigenvalues, norms, symmetry.

The nonzero eigenvalues of A B are those of B A. So those of a head's OV circuit W_V W_O are those of W_O W_V, those of
W_E W_V W_O W_U, [vocab, vocab], are those of W_O (W_U W_E) W_V, and those of W_E W_Q W_K^T W_E^T are those of
W_K^T (W_E^T W_E) W_Q: what joins the two ends is one [d_model, d_model] matrix for all heads.

**The ratio** sum Re(l) / sum |l|, from -1 to 1 (Elhage et al. 2021, "Copying" and "Eigenvalue analysis"; the formula as in
TransformerLens' main demo): 1 where every direction comes back as itself, around 0 for random matrices. It knows signs, not
strength: where the eigenvalues are next to nothing beside the matrices they come from (a head that reads one subspace and
writes another has none), it would be a ratio of rounding and of leaks, and is NaN.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

# Below this part of what random matrices of the same norms have, eigenvalues are called nothing.
NOTHING = 0.01


class Product(NamedTuple):
    """left @ right, whose left has orthonormal columns: its norms and singular values are those of right alone."""

    left: torch.Tensor        # [..., m, d_head]
    right: torch.Tensor       # [..., d_head, n]


def product(left, right):
    """The Product of left [..., m, d_head] and right [..., d_head, n], m at least d_head. By QR."""
    columns, rest = torch.linalg.qr(left)
    return Product(columns, rest @ right)


def triangle(right):
    """[..., d_head, d_head]: stands for right [..., d_head, n] where only the norms of X @ right count. By QR."""
    return torch.linalg.qr(right.mT, mode="r").R.mT


def eigenvalues(matrices):
    """Eigenvalues of square matrices, [..., n, n] -> [..., n], complex.

    LAPACK takes small matrices one after another on one core, so each thread that torch may use gets a share of them.
    """
    shares = matrices.flatten(0, -3).tensor_split(torch.get_num_threads())
    with ThreadPoolExecutor(len(shares)) as pool:
        return torch.cat(list(pool.map(torch.linalg.eigvals, shares))).view(matrices.shape[:-1])


def eigenvalue_ratio(eigenvalues, least=0.0):
    """Sum of real parts over sum of absolute values along the last axis; NaN where that sum is not above `least`.

    eigenvalues: [..., n], complex or real. Example: (3, 1 + 1j, 1 - 1j) gives 5 / (3 + 2 sqrt 2) = 0.858.
    """
    total = eigenvalues.abs().sum(-1)
    return torch.where(total > least, eigenvalues.real.sum(-1) / total, torch.nan)


def core_eigenvalues(whole, join):
    """Eigenvalues of left @ right @ join and of every cyclic shift, by right @ join @ left: [..., d_head], complex.

    whole: Product of [..., d_model, d_head] and [..., d_head, d_model]; join: [d_model, d_model].
    """
    return eigenvalues(whole.right @ (join @ whole.left))


def norm(matrix):
    """Frobenius norm of the last two axes."""
    return torch.linalg.matrix_norm(matrix)


def least_sum(d_head, d_model, norm_head, norm_join):
    """The sum of |eigenvalues| that counts as nothing, from the norms of the head's product and of what joins its ends.

    Gaussian factors have about 2/3 of d_head / d_model * norm_head * norm_join where d_head is small beside d_model (their
    core's eigenvalues lie evenly over a disc, Ginibre 1965), and no less than 0.4.
    """
    return NOTHING * d_head / d_model * norm_head * norm_join


def least_of(whole, join):
    """`least_sum` of each head's Product whose ends are joined by `join`: [...]. Shapes as `core_eigenvalues`."""
    d_model, d_head = whole.left.shape[-2:]
    return least_sum(d_head, d_model, norm(whole.right), norm(join))


def ratio_of(whole, join):
    """Eigenvalue ratio of each head's Product whose ends are joined by `join`: [...]. Shapes as `core_eigenvalues`."""
    return eigenvalue_ratio(core_eigenvalues(whole, join), least_of(whole, join))


def symmetric_share(qk):
    """||(W + W^T) / 2||^2 / ||W||^2 of the Product W = W_Q W_K^T: 1 symmetric, 0 antisymmetric, [...].

    It is (1 + tr(W W) / ||W||^2) / 2, and tr(W W) the sum of M * M^T with M = right @ left, [d_head, d_head]. Random factors
    have (1 + 1 / d_model) / 2 in the mean.
    """
    core = qk.right @ qk.left
    return (1 + (core * core.mT).sum((-2, -1)) / norm(qk.right) ** 2) / 2
