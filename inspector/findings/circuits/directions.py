"""The leading directions of each head's OV circuit, and the tokens they read and write.

W_V W_O = sum over ranks of s * read write^T: its singular value decomposition, through QR and one [d_head, d_head] matrix.
A direction has no sign of its own: (read, write) and (-read, -write) are the same. Here + is the side on which the token
read most strongly lies; what lies on the - side of `read` writes the - side of `write`. Among equal singular values the
choice of directions is free.
"""

import torch


def svd(whole):
    """Singular value decomposition of a Product at its rank: (U [..., m, d_head], S [..., d_head], Vh [..., d_head, n]).

    n is at least d_head.
    """
    columns, rest = torch.linalg.qr(whole.right.mT)
    u, s, vh = torch.linalg.svd(rest.mT)
    return whole.left @ u, s, vh @ columns.mT


def spectrum(layer, name, s):
    """Rows (layer, head, circuit, rank, singular value) of one layer. s: [head, d_head]."""
    return [{"layer": layer, "head": head, "circuit": name, "rank": rank, "singular_value": value}
            for head, row in enumerate(s.tolist()) for rank, value in enumerate(row)]


def leading(layer, decomposed, W_E, W_U, n_directions, n_tokens, label):
    """Rows of the first directions of one layer's heads, as `table.circuits` describes them.

    decomposed: (U, S, Vh) of `svd`, [head, ...]; label: id -> text.
    """
    u, s, vh = decomposed
    count = min(n_directions, s.shape[-1])
    # One product for all heads: the vocabulary's matrices are read once a layer.
    read = (W_E @ u[..., :count].mT.flatten(0, 1).T).T.unflatten(0, (-1, count))             # [head, rank, vocab]
    write = (vh[:, :count].flatten(0, 1) @ W_U).unflatten(0, (-1, count))                    # [head, rank, vocab]
    sign = torch.where(read.amax(-1, keepdim=True) >= -read.amin(-1, keepdim=True), 1.0, -1.0)
    share = s.square() / s.square().sum(-1, keepdim=True)
    n_tokens = min(n_tokens, W_E.shape[0])
    sides = {name: (side * sign * scores).topk(n_tokens, dim=-1).indices.tolist()
             for name, side, scores in (("reads", 1, read), ("writes", 1, write),
                                        ("reads_opposite", -1, read), ("writes_opposite", -1, write))}
    return [{"layer": layer, "head": head, "rank": rank, "singular_value": float(s[head, rank]),
             "share": float(share[head, rank]),
             **{name: [label(i) for i in ids[head][rank]] if s[head, rank] > 0 else [] for name, ids in sides.items()}}
            for head in range(len(s)) for rank in range(count)]
