"""What position embeddings alone would attend to: the sign of a previous-token head in its weights.

W_pos W_QK W_pos^T is a score for every pair of positions. A head that looks one back by position has its highest diagonal
at offset 1. The profile is the mean of each diagonal i - j = 0, 1, ..., n/2 - 1 over the *same* rows i >= n/2: so every
offset has as many cells, no edge takes part, and what shifts whole rows of scores shifts all offsets alike.
"""

import torch

from ...model.kernels import scan


def profile(scores):
    """Mean score of each offset 0 .. n//2 - 1 over the rows n//2 .. n-1: [head, offset]. scores: [head, query, key]."""
    n = scores.shape[-1]
    rows, offsets = torch.arange(n // 2, n), torch.arange(n // 2)
    return scores[:, rows[:, None], rows[:, None] - offsets].mean(1)


def standing_out(profile):
    """(highest offset, z of offset 1): [head] each. profile: [head, offset].

    z: by how many standard deviations of the other offsets offset 1 lies above their mean. NaN where all offsets score
    alike up to rounding, and where there are fewer than 4.
    """
    if profile.shape[-1] < 4:
        return profile.new_full((2, len(profile)), torch.nan).unbind()
    others = torch.cat([profile[:, :1], profile[:, 2:]], dim=1)
    flat = profile.std(-1) <= 1e-9 * profile.abs().amax(-1)
    z = (profile[:, 1] - others.mean(1)) / others.std(1)
    return torch.where(flat, torch.nan, profile.argmax(-1).double()), torch.where(flat, torch.nan, z)


def layer_norm_scale(W_E, W_pos, epsilon):
    """The std that layer 0's LayerNorm would divide by at each position, tokens drawn evenly: [pos].

    Root of the mean over tokens of |W_E[t] + W_pos[i]|^2 / d_model + epsilon, of folded (centred) embeddings.
    """
    square = torch.linalg.vector_norm(W_E, dim=-1).square().mean() + 2 * W_pos @ W_E.mean(0) + W_pos.square().sum(-1)
    return (square / W_E.shape[1] + epsilon).sqrt()


def previous_share(q, k, scale):
    """Mean over queries 1..n-1 of the softmax's weight on the key before, [head]: what `previous_token` would be.

    q, k: [head, pos, d_head]. NaN for a single position.
    """
    def before(pattern, first_query):
        weight = pattern.diagonal(first_query - 1, -2, -1)
        return {"before": torch.nn.functional.pad(weight, (pattern.shape[-2] - weight.shape[-1], 0))}

    _, kept = scan(before)(q, k, None, scale)
    return kept["before"][..., 1:].mean(-1)                                                  # row 0 has no key before it
