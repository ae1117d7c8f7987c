"""`trace`: everything the model computes on one text, kept."""

from dataclasses import dataclass, field
from itertools import repeat
from types import MappingProxyType
from typing import Any

import torch

from ..checkpoint import tokens
from ..decimals import shortest
from ..errors import ArgumentError
from ..record import folder, run_record, to_csv, to_json, write_tensors, write_text
from ..showing import shown
from .attention import softmax_dtype
from .forward import embed, layers, losses, qkv, refuse_overflow, unembed
from .kernels import Grids, grid, patterns, scan

TENSORS = ("q", "k", "v", "scores", "pattern", "z", "resid_pre", "resid_mid", "resid_post", "logits")


@dataclass(frozen=True, repr=False)
class Trace:
    """One text through the model. Tensors are in the model's dtype (pattern: float32 at least) on its device.

    Above the diagonal `scores` are -inf and `pattern` is exactly 0, so softmax(scores) is the pattern. What `keep` left
    out is None.
    """

    ids: Any                # [pos], int64; BOS included where one was put first
    labels: list            # [pos], a readable label for each token
    texts: list             # [pos], the token's own text
    bos: bool               # whether the first id is the BOS token
    run: dict               # the run record
    q: Any = None           # [layer, head, pos, d_head]
    k: Any = None           # [layer, head, pos, d_head]
    v: Any = None           # [layer, head, pos, d_head]
    scores: Any = None      # [layer, head, query, key]
    pattern: Any = None     # [layer, head, query, key]
    z: Any = None           # [layer, head, pos, d_head]
    resid_pre: Any = None   # [layer, pos, d_model]
    resid_mid: Any = None   # [layer, pos, d_model]
    resid_post: Any = None  # [layer, pos, d_model]
    logits: Any = None      # [pos, vocab]
    model: Any = field(default=None, compare=False)     # the Model that computed it

    def __repr__(self):
        kept = [name for name in TENSORS if getattr(self, name) is not None]
        return f"Trace({len(self.labels)} tokens, {' '.join(kept)}: {' '.join(self.labels[:12])})"

    def _repr_html_(self):
        import pandas as pd
        tokens = token_table(self).drop(columns="token")
        if self.logits is not None:
            tokens["loss"] = [float("nan"), *self.losses.tolist()]
        kept = [(name, str(list(tensor.shape)), str(tensor.dtype).removeprefix("torch."))
                for name in TENSORS if (tensor := getattr(self, name)) is not None]
        hint = "inspector.explore(trace) shows its attention, to touch" if len(kept) == len(TENSORS) else ""
        return shown(f"Trace of {len(self.labels)} token{'' if len(self.labels) == 1 else 's'}",
                     {"tokens": tokens, "tensors": pd.DataFrame(kept, columns=["name", "shape", "dtype"])}, hint)

    @property
    def losses(self):
        """Loss of each token given those before it, in nats: [pos - 1], of tokens 1, 2, ... Needs the logits."""
        if self.logits is None:
            raise ArgumentError("this trace was made without its logits; keep them to have losses")
        return losses(self.logits, self.ids)


def kept_names(keep):
    """The tensors asked for, in the order of TENSORS. Raises ArgumentError for a name that is none of them."""
    if keep is None:
        return TENSORS
    if not isinstance(keep, str | list | tuple):
        raise ArgumentError(f"keep is {keep!r}; expected names of tensors, in a list or joined by commas")
    asked = [name.strip() for name in keep.split(",")] if isinstance(keep, str) else list(keep)
    if unknown := [name for name in asked if name not in TENSORS]:
        raise ArgumentError(f"keep names {', '.join(map(repr, unknown))}; expected of {', '.join(TENSORS)}")
    if not asked:
        raise ArgumentError(f"keep names nothing; expected of {', '.join(TENSORS)}")
    return tuple(name for name in TENSORS if name in asked)


def _room(resid, config, names):
    """Empty grids of all layers, {"scores" or "pattern": [layer, head, query, key]}, for those that are kept."""
    dtypes = {"scores": resid.dtype, "pattern": softmax_dtype(resid.dtype)}
    shape = config.n_layer, config.n_head, len(resid), len(resid)
    return {name: resid.new_empty(shape, dtype=dtype) for name, dtype in dtypes.items() if name in names}


def _kernel(room):
    """(name, kernel that writes each layer's grids where they stay and makes none that is not kept)."""
    if "scores" not in room and "pattern" not in room:
        return "scan", scan(lambda pattern, first_query: {})
    if "scores" not in room:
        places = iter(room["pattern"])
        return "patterns", lambda q, k, v, scale, edit: patterns(q, k, v, scale, edit, out=next(places))
    # Where the pattern is not kept, each layer's is written over the last one's.
    spare = torch.empty_like(room["scores"][0], dtype=softmax_dtype(room["scores"].dtype))
    places = zip(room["scores"], room.get("pattern", repeat(spare)))         # noqa: B905 (repeat never ends)
    return "grid", lambda q, k, v, scale, edit: grid(q, k, v, scale, edit, out=Grids(*next(places)))


def _refuse_overflow(kept, dtype):
    """Raise NumericsError for a last layer that overflowed, where nothing after it was made that would tell."""
    for name, tensor in kept.items():
        # Scores are -inf where masked, and so only their largest counts; NaN passes through both.
        seen = tensor[-1].amax() if name == "scores" else tensor[-1]
        refuse_overflow(seen, f"{name} of layer {len(tensor) - 1}", dtype)


def _refuse_patterns(edits):
    """Raise ArgumentError for an edit that brings a pattern: a trace writes grids that it makes from q and k itself."""
    if brought := sorted(layer for layer, edit in edits.items() if edit.pattern is not None):
        raise ArgumentError(f"the edits of layer(s) {brought} bring a pattern; a trace takes sharpness, keep and fill")


def edits_record(edits):
    """Edits as the run record tells them: sharpness and keep in full, of a fill, which is as large as z, the shape."""
    def told(edit):
        fill = None if edit.fill is None else list(edit.fill.shape)
        found = {"sharpness": edit.sharpness, "keep": edit.keep, "fill": fill}
        return {name: value for name, value in found.items() if value is not None}

    return {layer: told(edit) for layer, edit in sorted(edits.items())}


@torch.no_grad()
def trace(model, text=None, *, ids=None, bos=False, keep=None, edits=MappingProxyType({}), progress=None):
    """Run one text and keep q, k, v, scores, pattern, z, the residual stream and the logits.

    Give a text or ids. `bos` puts the BOS token first unless it is there. `keep` names the tensors to keep (a sequence, or
    joined by commas; None = all): what is not asked for is not made where it can be helped, and is None. `edits`, {layer:
    Edit} with sharpness, keep and fill, change heads on the way (`findings.interventions` makes them from names).
    `progress` wraps the layers (any wrapper like tqdm). Memory: n_layer * n_head * n^2 numbers for the pattern and as many
    for the scores (1,024 tokens of GPT-2 small: 0.6 GB each), written once where they stay.

    Raises TextError as `tokens.encode`, and when the text is longer than the model has positions; ArgumentError for `keep`
    and `edits`.
    """
    _refuse_patterns(edits)
    names, config = kept_names(keep), model.config
    found = tokens.encode(model, text, ids=ids, bos=bos)
    row = torch.tensor(found, device=model.device)
    resid, n = embed(model, row), len(found)
    kept = _room(resid, config, names)
    finish = bool({"z", "resid_mid", "resid_post", "logits"} & set(names))
    kernel_name, kernel = _kernel(kept)
    steps = layers(model, resid, kernel=kernel, edits=edits, finish=finish)
    if progress is not None:
        steps = progress(steps, total=config.n_layer, desc="layers")
    for layer in steps:
        for name in names:
            if name in Grids._fields or name == "logits":
                continue
            tensor = getattr(layer, name)
            if tensor is None:        # v of the last layer, where nothing after the pattern is made
                tensor, = qkv(model, layer.index, layer.resid_pre, parts="v")
            if name not in kept:      # one allocation for all layers: stacking at the end would need twice the memory
                kept[name] = tensor.new_empty((config.n_layer, *tensor.shape))
            kept[name][layer.index] = tensor
    if not finish:
        _refuse_overflow(kept, model.dtype)
    if "logits" in names:
        kept["logits"] = unembed(model, layer.resid_post)
    bos_first = bool(found[0] == config.bos_token_id)
    return Trace(ids=row, labels=tokens.labels(model, found),
                 texts=model.tokenizer.texts(found) if model.tokenizer else [""] * n, bos=bos_first,
                 run=run_record(model, "trace", text=text, ids=found, bos=bos, keep=None if keep is None else list(names),
                                edits=edits_record(edits), kernel=kernel_name), model=model, **kept)


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

    attention.csv is left out beyond 200 tokens unless `attention` asks for it, and where the pattern was not kept. Raises
    OutputError, ArgumentError.
    """
    if attention and trace.pattern is None:
        raise ArgumentError("attention.csv is made of the pattern, which this trace was made without; keep it")
    with folder(out) as target:
        write_tensors(target / "trace.safetensors",
                      {name: tensor.cpu().contiguous() for name in ("ids", *TENSORS)
                       if (tensor := getattr(trace, name)) is not None})
        to_csv(token_table(trace), target / "tokens.csv")
        if trace.pattern is not None and (attention or len(trace.labels) <= ATTENTION_TOKENS):
            to_csv(attention_table(trace.pattern), target / "attention.csv")
        write_text(target / "run.json", to_json(trace.run))
        return sorted(path.name for path in target.iterdir())
