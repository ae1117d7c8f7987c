"""One layer's attention, as pure functions: what a head computes, in the order it computes it.

Every function takes tensors and returns tensors; nothing is stored, and nothing is changed but by `mask_future_`.
Leading batch axes are allowed everywhere and left out of the shape comments. Sources: Vaswani et al. 2017, "Attention Is
All You Need", section 3.2; Radford et al. 2019, GPT-2, section 2.3 (LayerNorm before the block); Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits", for reading a layer as independent heads.
"""

import torch

MASKED = float("-inf")


def layer_norm(x, weight, bias, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (Ba et al. 2016). x: [pos, d_model]."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, epsilon)          # [pos, d_model]


def split_heads(x, n_head):
    """[pos, n_head * d_head] -> [head, pos, d_head]: head h owns columns h*d_head to (h+1)*d_head."""
    return x.unflatten(-1, (n_head, -1)).transpose(-3, -2)                                   # [head, pos, d_head]


def merge_heads(z):
    """The inverse of `split_heads`: [head, pos, d_head] -> [pos, n_head * d_head]."""
    return z.transpose(-3, -2).flatten(-2)                                                   # [pos, d_model]


def project(x, weight, bias, n_head):
    """x @ weight + bias, cut into heads. x: [pos, d_model], weight: [d_model, n_head * d_head]."""
    # One matrix product over all rows: a batched one would be slower and round differently for each batch size.
    flat = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight)
    return split_heads(flat.view(*x.shape[:-1], -1), n_head)                                 # [head, pos, d_head]


def attention_scores(q, k, scale):
    """q . k * scale for every pair of positions, nothing masked yet. q, k: [head, pos, d_head]."""
    products = q @ k.transpose(-1, -2)                                                       # [head, query, key]
    return products if scale == 1 else products.mul_(scale)


def mask_future_(scores, first_query=0):
    """Put -inf wherever key > query: a position cannot see what comes after it. In place, as the name says in torch.

    `first_query` is the position of the first row, for a block of rows cut out of a longer text: keys before it are
    past for every row, and are not touched.
    """
    n_query, n_key = scores.shape[-2:]
    future = torch.ones(n_query, n_key - first_query, dtype=torch.bool, device=scores.device).triu(1)
    scores[..., first_query:].masked_fill_(future, MASKED)
    return scores                                                                            # [head, query, key]


def mask_future(scores, first_query=0):
    """The same on a copy."""
    return mask_future_(scores.clone(), first_query)                                         # [head, query, key]


def softmax_dtype(dtype):
    """The dtype that weights are summed and kept in: float32 for half precision, else the scores' own."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def softmax(scores):
    """Each row's weights, exp(score) over its sum: rows sum to 1, masked cells are exactly 0.

    Half-precision scores are summed in float32.
    """
    return torch.softmax(scores, dim=-1, dtype=softmax_dtype(scores.dtype))                  # [head, query, key]


def mix(pattern, v):
    """Each query's weighted sum of the values. pattern: [head, query, key], v: [head, pos, d_head]."""
    return pattern.to(v.dtype) @ v                                                           # [head, pos, d_head]


def attention(q, k, v, scale, causal=True):
    """(scores, pattern, z) of heads from their q, k, v: the three steps above in a row.

    Example (scores 2, 1, 0 over values (10, 0), (0, 10), (4, 4)): pattern 0.665, 0.245, 0.090 and z (7.01, 2.81).
    """
    scores = attention_scores(q, k, scale)                                                   # [head, query, key]
    if causal:
        scores = mask_future_(scores)
    pattern = softmax(scores)
    return scores, pattern, mix(pattern, v)


def head_outputs(z, W_O):
    """What each head alone writes to the residual stream: z @ W_O[head]. The output bias belongs to no head.

    z: [head, pos, d_head], W_O: [head, d_head, d_model]. The sum over heads plus b_O is the layer's attention output.
    """
    return z @ W_O                                                                           # [head, pos, d_model]


def attention_output(z, W_O, b_O):
    """All heads' outputs added up, plus the output bias, in one matrix product. W_O: [head, d_head, d_model]."""
    rows = merge_heads(z)                                                                    # [pos, d_model]
    flat = torch.addmm(b_O, rows.reshape(-1, rows.shape[-1]), W_O.flatten(0, 1))
    return flat.view(*rows.shape[:-1], -1)                                                   # [pos, d_model]
