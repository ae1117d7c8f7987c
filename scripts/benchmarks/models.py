"""The same checkpoint in every tool, the ids that all are given, and what the matrix products alone would take."""

import time

import torch

from .measuring import missing


def repeated_ids(n, vocab_size):
    """[1, n]: n / 2 distinct ids, twice; from a generator of its own."""
    half = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0))[:n // 2]
    return half.repeat(2)[None]


def hugging_face(source):
    """GPT2LMHeadModel with eager attention, float32: the reference."""
    from transformers import GPT2LMHeadModel
    from transformers.utils import logging
    logging.disable_progress_bar()
    return GPT2LMHeadModel.from_pretrained(source, attn_implementation="eager", dtype=torch.float32).eval()


def lens_bridge(source):
    """TransformerLens' bridge to the same weights, nothing folded or centred (its fastest); None where it is absent.

    It makes the logits whatever is asked of it: `stop_at_layer` and `return_type=None` leave its work the same.
    """
    if missing("transformer_lens"):
        return None
    from transformer_lens.model_bridge import TransformerBridge
    return TransformerBridge.boot_transformers(source, hf_model=hugging_face(source), tokenizer=None, device="cpu")


def products(config, n, last_layer):
    """The matrix products of a pass over n tokens as (rows, inner, columns, how often); attention up to the diagonal.

    last_layer: "qk" where the last layer ends at its pattern, else "all".
    """
    d, m, layers = config.d_model, config.d_mlp, config.n_layer
    full = layers - (last_layer == "qk")
    attention = n // 2          # keys that a query sees, on average
    found = [(n, d, 3 * d, full), (n, d, d, full), (n, d, m, full), (n, m, d, full),
             (n, config.d_head, attention, config.n_head * layers), (n, attention, config.d_head, config.n_head * full)]
    return found if last_layer == "all" else [*found, (n, d, 2 * d, 1)]


def at_peak(config, n, last_layer, dtype=torch.float32):
    """Seconds that those products take at the rate of the fastest of a few large ones: the machine's limit."""
    left, right = torch.randn(2048, 768, dtype=dtype), torch.randn(768, 3072, dtype=dtype)
    best = 0
    for _ in range(15):
        start = time.perf_counter()
        left @ right
        best = max(best, 2 * 2048 * 768 * 3072 / (time.perf_counter() - start))
    return sum(2 * a * b * c * times for a, b, c, times in products(config, n, last_layer)) / best, best
