"""Products of rank d_head read through their [d_head, d_head] core: eigenvalues, norms, symmetry.

The nonzero eigenvalues of A B are those of B A. So those of a head's OV circuit W_V W_O are those of W_O W_V, those of
W_E W_V W_O W_U, [vocab, vocab], are those of W_O (W_U W_E) W_V, and those of W_E W_Q W_K^T W_E^T are those of
W_K^T (W_E^T W_E) W_Q: what joins the two ends is one [d_model, d_model] matrix for all heads.

**The ratio** sum Re(l) / sum |l|, from -1 to 1 (Elhage et al. 2021, "Copying" and "Eigenvalue analysis"; the formula as in
TransformerLens' main demo): 1 where every direction comes back as itself, around 0 for random matrices. It knows signs, not
strength: where the eigenvalues are next to nothing beside the matrices they come from (a head that reads one subspace and
writes another has none), it would be a ratio of rounding and of leaks, and is NaN.
"""

import torch

# Below this part of what random matrices of the same norms have, eigenvalues are called nothing.
NOTHING = 0.01


def eigenvalue_ratio(eigenvalues, least=0.0):
    """Sum of real parts over sum of absolute values along the last axis; NaN where that sum is not above `least`.

    eigenvalues: [..., n], complex or real. Example: (3, 1 + 1j, 1 - 1j) gives 5 / (3 + 2 sqrt 2) = 0.858.
    """
    total = eigenvalues.abs().sum(-1)
    return torch.where(total > least, eigenvalues.real.sum(-1) / total, torch.nan)


def core_eigenvalues(left, right, join):
    """Eigenvalues of left @ right @ join and of every cyclic shift, by right @ join @ left: [..., d_head], complex.

    left: [..., d_model, d_head], right: [..., d_head, d_model], join: [d_model, d_model].
    """
    return torch.linalg.eigvals(right @ (join @ left))


def reduced(left, right):
    """[..., d_head, n]: what is left of left @ right when orthonormal columns are taken off its left end.

    left: [..., m, d_head], right: [..., d_head, n]. The product with anything on its right has the norms and the singular
    values that left @ right would have there. By QR.
    """
    return torch.linalg.qr(left, mode="r").R @ right


def norm(matrix):
    """Frobenius norm of the last two axes."""
    return torch.linalg.matrix_norm(matrix)


def least_sum(d_head, d_model, norm_head, norm_join):
    """The sum of |eigenvalues| that counts as nothing, from the norms of the head's product and of what joins its ends.

    Gaussian factors have about 2/3 of d_head / d_model * norm_head * norm_join where d_head is small beside d_model (their
    core's eigenvalues lie evenly over a disc, Ginibre 1965), and no less than 0.4.
    """
    return NOTHING * d_head / d_model * norm_head * norm_join


def least_of(left, right, join):
    """`least_sum` of each head's left @ right whose ends are joined by `join`: [...]. Shapes as `core_eigenvalues`."""
    d_model, d_head = left.shape[-2:]
    return least_sum(d_head, d_model, norm(reduced(left, right)), norm(join))


def ratio_of(left, right, join):
    """Eigenvalue ratio of each head's left @ right whose ends are joined by `join`: [...]. Shapes as `core_eigenvalues`."""
    return eigenvalue_ratio(core_eigenvalues(left, right, join), least_of(left, right, join))


def symmetric_share(W_Q, W_K):
    """||(W + W^T) / 2||^2 / ||W||^2 of W = W_Q W_K^T: 1 symmetric, 0 antisymmetric, [...].

    It is (1 + tr(W W) / ||W||^2) / 2, and tr(W W) the sum of M * M^T with M = W_K^T W_Q, [d_head, d_head]. Random factors
    have (1 + 1 / d_model) / 2 in the mean.
    """
    core = W_K.mT @ W_Q
    return (1 + (core * core.mT).sum((-2, -1)) / norm(reduced(W_Q, W_K.mT)) ** 2) / 2
