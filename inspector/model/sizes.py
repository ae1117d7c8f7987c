"""`info`: what a model is made of, and what a text costs, in shapes, counts and bytes."""

import torch

from ..checkpoint import tokens
from ..errors import ArgumentError
from ..record import run_record


def parameters(model):
    """{part: number of parameters}; the attention of one layer with and without its biases."""
    w, block = model.weights, model.weights.blocks[0]
    count = {
        "token embedding": w.W_E.numel(),
        "position embedding": w.W_pos.numel(),
        "attention, one layer, matrices": block.W_QKV.numel() + block.W_O.numel(),
        "attention, one layer, with biases": block.W_QKV.numel() + block.W_O.numel() + block.b_QKV.numel()
        + block.b_O.numel(),
        "MLP, one layer": block.W_in.numel() + block.b_in.numel() + block.W_out.numel() + block.b_out.numel(),
        "LayerNorms, one layer": 4 * model.config.d_model,
        "final LayerNorm": 2 * model.config.d_model,
        "unembedding of its own": 0 if model.config.tie_word_embeddings else w.W_U.numel(),
    }
    one_layer = (count["attention, one layer, with biases"] + count["MLP, one layer"] + count["LayerNorms, one layer"])
    count["all layers"] = one_layer * model.config.n_layer
    count["in all"] = (count["token embedding"] + count["position embedding"] + count["all layers"]
                       + count["final LayerNorm"] + count["unembedding of its own"])
    return count


def weight_shapes(config):
    """{weight: shape} in the package's words."""
    h, d, e, m = config.n_head, config.d_model, config.d_head, config.d_mlp
    return {"W_E": [config.vocab_size, d], "W_pos": [config.n_positions, d],
            "W_Q, W_K, W_V (each layer)": [h, d, e], "b_Q, b_K, b_V (each layer)": [h, e],
            "W_O (each layer)": [h, e, d], "b_O (each layer)": [d],
            "W_in (each layer)": [d, m], "b_in (each layer)": [m], "W_out (each layer)": [m, d],
            "b_out (each layer)": [d], "LayerNorm weight, bias": [d], "W_U": [d, config.vocab_size]}


def text_shapes(config, n):
    """The table X, Q, K, V, QK^T, pattern, z of one layer for n tokens: rows (name, made from, shape).

    The inner sizes join: X [n, d_model] @ W_Q [d_model, d_head] -> Q [n, d_head], and so on.
    """
    h, d, e = config.n_head, config.d_model, config.d_head
    return [("X", "token + position embeddings (layer 0), residual stream after LayerNorm", [n, d]),
            ("Q", f"X [{n}, {d}] @ W_Q [{d}, {e}], for {h} heads", [h, n, e]),
            ("K", f"X [{n}, {d}] @ W_K [{d}, {e}], for {h} heads", [h, n, e]),
            ("V", f"X [{n}, {d}] @ W_V [{d}, {e}], for {h} heads", [h, n, e]),
            ("QK^T", f"Q [{n}, {e}] @ K^T [{e}, {n}], for {h} heads", [h, n, n]),
            ("pattern", f"softmax of QK^T * scale [{n}, {n}], masked, for {h} heads", [h, n, n]),
            ("z", f"pattern [{n}, {n}] @ V [{n}, {e}], for {h} heads", [h, n, e]),
            ("output", f"z joined [{n}, {h * e}] @ W_O [{h * e}, {d}]", [n, d])]


def cost(config, n, bytes_each):
    """What n tokens cost: scores in all and after the mask, bytes of keys and values, for any n of at least 1."""
    if n < 1:
        raise ArgumentError(f"tokens is {n}; expected at least 1")
    heads, every = config.n_head, config.n_head * config.n_layer
    survive = n * (n + 1) // 2
    return {"tokens": n, "fits": n <= config.n_positions,
            "scores_per_head": n * n, "scores_per_layer": n * n * heads, "scores_per_model": n * n * every,
            "unmasked_per_head": survive, "unmasked_per_layer": survive * heads, "unmasked_per_model": survive * every,
            "grid_bytes": n * n * every * bytes_each,
            "kv_bytes": 2 * config.n_layer * n * config.n_head * config.d_head * bytes_each}


def info(model, text=None, *, ids=None, bos=False, tokens_n=None):
    """What the model is and what a text costs: a dict of plain values.

    Keys: config, parameters, weight_shapes, dtype, tokenizer, sha256, release; with a text or ids also text (ids,
    labels, shapes) and its cost; with `tokens_n` the cost of that many tokens (any number, also more than fit).

    Raises TextError as `tokens.encode`, ArgumentError for tokens_n below 1.
    """
    config = model.config
    each = torch.empty(0, dtype=getattr(torch, model.dtype)).element_size()
    kind = type(model.tokenizer.inner.model).__name__ if model.tokenizer else None
    found = {
        "source": model.files.source,
        "config": {name: getattr(config, name) for name in config.__dataclass_fields__} | {"d_head": config.d_head},
        "parameters": parameters(model),
        "weight_shapes": weight_shapes(config),
        "dtype": model.dtype,
        "tokenizer": {"kind": kind, "vocabulary": model.tokenizer.inner.get_vocab_size()} if kind else None,
        "sha256": model.sha256,
        "release": model.release,
    }
    if text is not None or ids is not None:
        row = tokens.encode(model, text, ids=ids, bos=bos)
        found["text"] = {"ids": row, "labels": tokens.labels(model, row), "shapes": text_shapes(config, len(row)),
                         "cost": cost(config, len(row), each)}
    if tokens_n is not None:
        found["cost"] = cost(config, tokens_n, each)
    found["run"] = run_record(model, "info", text=text, ids=ids, bos=bos, tokens_n=tokens_n)
    return found
