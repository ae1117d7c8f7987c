"""`trace`: everything the model computes on one text, kept."""

from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import tokens
from ..record import run_record
from .forward import embed, layers, losses, unembed


@dataclass(frozen=True, repr=False)
class Trace:
    """One text through the model. Tensors are in the model's dtype (pattern: float32 at least) on its device.

    Above the diagonal `scores` are -inf and `pattern` is exactly 0, so softmax(scores) is the pattern.
    """

    ids: Any                # [pos], int64; BOS included where one was put first
    labels: list            # [pos], a readable label for each token
    texts: list             # [pos], the token's own text
    q: Any                  # [layer, head, pos, d_head]
    k: Any                  # [layer, head, pos, d_head]
    v: Any                  # [layer, head, pos, d_head]
    scores: Any             # [layer, head, query, key]
    pattern: Any            # [layer, head, query, key]
    z: Any                  # [layer, head, pos, d_head]
    resid_pre: Any          # [layer, pos, d_model]
    resid_mid: Any          # [layer, pos, d_model]
    resid_post: Any         # [layer, pos, d_model]
    logits: Any             # [pos, vocab]
    bos: bool               # whether the first id is the BOS token
    run: dict               # the run record

    TENSORS = ("ids", "q", "k", "v", "scores", "pattern", "z", "resid_pre", "resid_mid", "resid_post", "logits")

    def __repr__(self):
        n_layer, n_head, n, _ = self.pattern.shape
        return f"Trace({n} tokens, {n_layer} layers x {n_head} heads: {' '.join(self.labels[:12])})"

    @property
    def losses(self):
        """Loss of each token given those before it, in nats: [pos - 1], of tokens 1, 2, ..."""
        return losses(self.logits, self.ids)


@torch.no_grad()
def trace(model, text=None, *, ids=None, bos=False, progress=None):
    """Run one text and keep q, k, v, scores, pattern, z, the residual stream and the logits.

    Give a text or ids. `bos` puts the BOS token first unless it is there. `progress` wraps the layers (any wrapper like
    tqdm). Memory: 2 * n_layer * n_head * n^2 numbers for the grids (1,024 tokens of GPT-2 small: 1.2 GB).

    Raises TextError as `tokens.encode`, and when the text is longer than the model has positions.
    """
    found = tokens.encode(model, text, ids=ids, bos=bos)
    row = torch.tensor(found, device=model.device)
    resid = embed(model, row)
    steps = layers(model, resid)
    if progress is not None:
        steps = progress(steps, total=model.config.n_layer, desc="layers")
    kept = {}
    for layer in steps:
        parts = {"q": layer.q, "k": layer.k, "v": layer.v, "scores": layer.kept.scores, "pattern": layer.kept.pattern,
                 "z": layer.z, "resid_pre": layer.resid_pre, "resid_mid": layer.resid_mid, "resid_post": layer.resid_post}
        for name, tensor in parts.items():
            if name not in kept:      # one allocation for all layers: stacking at the end would need twice the memory
                kept[name] = tensor.new_empty((model.config.n_layer, *tensor.shape))
            kept[name][layer.index] = tensor
    bos_first = bool(found[0] == model.config.bos_token_id)
    return Trace(ids=row, labels=tokens.labels(model, found),
                 texts=model.tokenizer.texts(found) if model.tokenizer else [""] * len(found),
                 logits=unembed(model, kept["resid_post"][-1]), bos=bos_first,
                 run=run_record(model, "trace", text=text, ids=found, bos=bos, kernel="grid"), **kept)
