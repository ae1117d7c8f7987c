"""`trace`: everything the model computes on one text, kept."""

from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import tokens
from ..decimals import shortest
from ..record import folder, run_record, to_csv, to_json, write_tensors, write_text
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


ATTENTION_TOKENS = 200      # attention.csv is written up to here; 1,024 tokens x 144 heads would be 75 million rows


def attention_table(pattern):
    """Every weight at or below the diagonal as a row (layer, head, query, key, weight): a DataFrame.

    pattern: [layer, head, query, key]. A weight has the shortest decimals that read back as the same number.
    """
    import numpy as np
    import pandas as pd
    n_layer, n_head, n, _ = pattern.shape
    query, key = np.tril_indices(n)
    weight = pattern[:, :, query, key].flatten().cpu()
    weight = weight.numpy() if weight.dtype == torch.float64 else weight.float().numpy()
    if weight.dtype != np.float64:
        weight = shortest(weight)       # a float32 as a double would be written with 17 digits
    return pd.DataFrame({"layer": np.repeat(np.arange(n_layer), n_head * len(query)),
                         "head": np.tile(np.repeat(np.arange(n_head), len(query)), n_layer),
                         "query": np.tile(query, n_layer * n_head), "key": np.tile(key, n_layer * n_head),
                         "weight": weight})


def token_table(trace):
    """The tokens as rows (position, id, token, label): a DataFrame."""
    import pandas as pd
    return pd.DataFrame({"position": range(len(trace.labels)), "id": trace.ids.tolist(), "token": trace.texts,
                         "label": trace.labels})


def save(trace, out, attention=False):
    """Write a trace as a folder: trace.safetensors, tokens.csv, attention.csv, run.json; returns the file names.

    attention.csv is left out beyond 200 tokens unless `attention` asks for it. Raises OutputError.
    """
    with folder(out) as target:
        write_tensors(target / "trace.safetensors",
                      {name: getattr(trace, name).cpu().contiguous() for name in Trace.TENSORS})
        to_csv(token_table(trace), target / "tokens.csv")
        if attention or len(trace.labels) <= ATTENTION_TOKENS:
            to_csv(attention_table(trace.pattern), target / "attention.csv")
        write_text(target / "run.json", to_json(trace.run))
        return sorted(path.name for path in target.iterdir())
