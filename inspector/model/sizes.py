"""`info`: what a model is made of, and what a text costs, in shapes, counts and bytes."""

from dataclasses import fields

import torch

from ..checkpoint.tokens import encode, labels
from ..errors import ArgumentError
from ..record import run_record


def parameters(model):
    """{part: number of parameters}. The parts of one layer stand once; `all layers` multiplies them."""
    w, block = model.weights, model.weights.blocks[0]
    matrices = block.W_QKV.numel() + block.W_O.numel()
    attention = matrices + block.b_QKV.numel() + block.b_O.numel()
    mlp = block.W_in.numel() + block.b_in.numel() + block.W_out.numel() + block.b_out.numel()
    norms = sum(t.numel() for t in (block.ln_1_weight, block.ln_1_bias, block.ln_2_weight, block.ln_2_bias))
    outside = {
        "token embedding": w.W_E.numel(),
        "position embedding": w.W_pos.numel(),
        "all layers": model.config.n_layer * (attention + mlp + norms),
        "final LayerNorm": w.ln_f_weight.numel() + w.ln_f_bias.numel(),
        "unembedding of its own": 0 if model.config.tie_word_embeddings else w.W_U.numel(),
    }
    one_layer = {
        "attention, one layer, matrices": matrices,
        "attention, one layer, with biases": attention,
        "MLP, one layer": mlp,
        "LayerNorms, one layer": norms,
    }
    return {**one_layer, **outside, "in all": sum(outside.values())}


def weight_shapes(config):
    """{weight: shape} in the package's words."""
    h, d, e, m = config.n_head, config.d_model, config.d_head, config.d_mlp
    return {"W_E": [config.vocab_size, d], "W_pos": [config.n_positions, d],
            "W_Q, W_K, W_V (each layer)": [h, d, e], "b_Q, b_K, b_V (each layer)": [h, e],
            "W_O (each layer)": [h, e, d], "b_O (each layer)": [d],
            "W_in (each layer)": [d, m], "b_in (each layer)": [m], "W_out (each layer)": [m, d],
            "b_out (each layer)": [d], "LayerNorm weight, bias": [d], "W_U": [d, config.vocab_size]}


def text_shapes(config, n):
    """The table X, Q, K, V, QK^T, pattern, z, output of one layer for n tokens: rows (name, made from, shape).

    The sizes join: the last size of each left factor is the first of the right one, X [n, d_model] @ W_Q [d_model,
    d_head] -> Q [n, d_head], once for each head.
    """
    h, d, e = config.n_head, config.d_model, config.d_head
    return [("X", "residual stream after LayerNorm (layer 0: token + position embeddings)", [n, d]),
            ("Q", f"X [{n}, {d}] @ W_Q [{d}, {e}], for {h} heads", [h, n, e]),
            ("K", f"X [{n}, {d}] @ W_K [{d}, {e}], for {h} heads", [h, n, e]),
            ("V", f"X [{n}, {d}] @ W_V [{d}, {e}], for {h} heads", [h, n, e]),
            ("QK^T", f"Q [{n}, {e}] @ K^T [{e}, {n}], for {h} heads", [h, n, n]),
            ("pattern", f"softmax of QK^T * scale [{n}, {n}], masked, for {h} heads", [h, n, n]),
            ("z", f"pattern [{n}, {n}] @ V [{n}, {e}], for {h} heads", [h, n, e]),
            ("output", f"z joined [{n}, {h * e}] @ W_O [{h * e}, {d}]", [n, d])]


def cost(config, n, bytes_each):
    """What n tokens cost, for any n of at least 1, also more than the model has positions for (`fits` says so).

    Scores: n * n a head, of which n * (n + 1) / 2 survive the mask. Bytes, at `bytes_each` a number: `grid_bytes` of one
    grid (the scores or the pattern) of every head, `kv_bytes` of the keys and values of all layers. Raises ArgumentError.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ArgumentError(f"tokens is {n!r}; expected a whole number of at least 1")
    heads, every = config.n_head, config.n_head * config.n_layer
    survive = n * (n + 1) // 2
    return {"tokens": n, "fits": n <= config.n_positions,
            "scores_per_head": n * n, "scores_per_layer": n * n * heads, "scores_per_model": n * n * every,
            "unmasked_per_head": survive, "unmasked_per_layer": survive * heads, "unmasked_per_model": survive * every,
            "grid_bytes": n * n * every * bytes_each,
            "kv_bytes": 2 * every * n * config.d_head * bytes_each}


def info(model, text=None, *, ids=None, bos=False, tokens=None):
    """What the model is and what a text costs: a dict of plain values.

    Keys: source, config, parameters, weight_shapes, dtype, tokenizer, sha256, release, run; with a text or ids also text
    (ids, labels, shapes, cost); with `tokens` the cost of that many tokens (any number, also more than fit).

    Raises TextError as `checkpoint.tokens.encode`, ArgumentError for tokens below 1.
    """
    config = model.config
    each = torch.empty(0, dtype=getattr(torch, model.dtype)).element_size()
    found = {
        "source": model.files.source,
        "config": {field.name: getattr(config, field.name) for field in fields(config)} | {"d_head": config.d_head},
        "parameters": parameters(model),
        "weight_shapes": weight_shapes(config),
        "dtype": model.dtype,
        "tokenizer": None if model.tokenizer is None else {"kind": type(model.tokenizer.inner.model).__name__,
                                                           "vocabulary": model.tokenizer.inner.get_vocab_size()},
        "sha256": model.sha256,
        "release": model.release,
    }
    if text is not None or ids is not None:
        row = encode(model, text, ids=ids, bos=bos)
        found["text"] = {"ids": row, "labels": labels(model, row), "shapes": text_shapes(config, len(row)),
                         "cost": cost(config, len(row), each)}
    if tokens is not None:
        found["cost"] = cost(config, tokens, each)
    found["run"] = run_record(model, "info", text=text, ids=ids, bos=bos, tokens=tokens)
    return found
