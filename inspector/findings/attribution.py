"""`attribute`: which part of the model raises the logit of a token, at one position of one text.

Direct logit attribution (Elhage et al. 2021; Wang et al. 2022, "Interpretability in the Wild"): the parts are the token
embedding, the position embedding, each head (z W_O), each layer's b_O, each MLP, and ln_f.bias, read as in `direct.py`.
They sum to every logit. A head's part is split further by source token, A[i, j] v_j W_O, with b_V inside v.

Logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens"): each layer's residual through the final LayerNorm,
now with its own statistics, and W_U.
"""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from ..checkpoint import tokens
from ..errors import ArgumentError, TextError
from ..model.forward import unembed
from ..record import run_record
from ..showing import Shown
from .direct import double, frozen_norm, mean_unembedding, part_logits, stream, unembedding


def part_table(model, made, target, against):
    """The parts as rows (layer, head, part, value, to_target, to_against), all in logits. target, against: [d_model]."""
    found = part_logits(model, made, torch.stack([target, against])).numpy()                 # [part + 1, 2]
    layer, head, part = zip(*made.names, (None, None, "ln_f.bias"), strict=True)
    return pd.DataFrame({"layer": pd.Series(layer, dtype=object), "head": pd.Series(head, dtype=object), "part": part,
                         "value": found[:, 0] - found[:, 1], "to_target": found[:, 0], "to_against": found[:, 1]})


def source_table(model, made, column, ids, labels):
    """Each head's part by source token, as rows (layer, head, key, id, label, weight, value). column: [d_model]."""
    # LayerNorm is frozen, so it may act on W_O: no tensor has both a key and d_model.
    read = [frozen_norm(model, block.W_O, made.resid) @ column for block in model.weights.blocks]     # [head, d_head] each
    values = torch.stack([(double(v) @ r[..., None]).squeeze(-1) for v, r in zip(made.v, read, strict=True)])
    n_layer, n_head, n = values.shape
    index = pd.MultiIndex.from_product([range(n_layer), range(n_head), range(n)], names=["layer", "head", "key"])
    table = index.to_frame(index=False)
    table["id"], table["label"] = list(ids) * (n_layer * n_head), list(labels) * (n_layer * n_head)
    table["weight"] = made.weight.flatten().numpy()
    table["value"] = (double(made.weight) * values).flatten().numpy()
    return table


def difference(logits, target, against):
    """The target's logit minus that of `against` (None: minus the vocabulary mean), float64: [*batch, vocab] -> [*batch]."""
    wide = double(logits)
    return wide[..., target] - (wide.mean(-1) if against is None else wide[..., against])


def rank(logits, token):
    """1 for the most likely token, 2 for the next, ...; [*batch, vocab] -> [*batch]. Equal logits share the better rank."""
    return (logits > logits[..., token, None]).sum(-1) + 1


def lens_table(model, logits, target, against):
    """The logit lens as rows, a layer each: see `Attribution.lens`. logits: [n_layer + 1, vocab]; target, against: ids."""
    p = torch.softmax(double(logits), dim=-1).numpy()
    top = logits.argmax(-1).tolist()
    return pd.DataFrame({
        "layer": [0, *range(len(p) - 1)], "place": ["resid_pre", *["resid_post"] * (len(p) - 1)],
        "value": difference(logits, target, against).numpy(),
        "target_p": p[:, target], "target_rank": rank(logits, target).tolist(),
        "against_p": math.nan if against is None else p[:, against],
        "against_rank": [None] * len(p) if against is None else rank(logits, against).tolist(),
        "top_id": top, "top": [tokens.labels(model, [token])[0] for token in top], "top_p": p.max(-1)})


def token_of(model, token, name):
    """The id of one token, given as its text or its id. Raises TextError for a text of several tokens, or a wrong id."""
    if not isinstance(token, str):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise TextError(f"{name} is {token!r}; expected the text of one token, or its id")
        tokens.refuse_unusable([int(token)], model.config.vocab_size)
        return int(token)
    if model.tokenizer is None:
        raise TextError(f"{name} is the text {token!r}, but {model.files.source} has no tokenizer: give the token's id")
    ids = tokens.encode(model, token)
    if len(ids) != 1:
        spaced = " " + token
        one = len(tokens.encode(model, spaced)) == 1
        raise TextError(f"{name} {token!r} is {len(ids)} tokens of this model: {' | '.join(tokens.labels(model, ids))}; "
                        f"expected one{f': {spaced!r}, with its space, is' if one else ' (or give its id)'}")
    return ids[0]


def place_of(position, n):
    """A position as counted from 0. Raises ArgumentError for one outside the text."""
    if isinstance(position, bool) or not isinstance(position, int) or not -n <= position < n:
        raise ArgumentError(f"position is {position!r}; the text has {n} tokens: expected a whole number from 0 to {n - 1}, "
                            f"or from -{n} to -1 counted from the end")
    return position % n


@dataclass(frozen=True, repr=False)
class Attribution(Shown):
    """Who raises the target's logit, at one position. Values are logits: the target's minus `against`'s."""

    parts: Any              # DataFrame: layer, head (None where there is none), part, value, to_target, to_against
    sources: Any            # DataFrame: layer, head, key, id, label, weight, value; sums over keys to the head's value
    lens: Any               # DataFrame: layer, place, value, target_p, target_rank, against_p, against_rank, top_id, top,
                            # top_p; a row for what layer 0 reads and one for what each layer leaves
    total: float            # what the model says: its logit of the target minus that of `against` or the vocabulary mean
    target: int             # the id
    against: int | None     # the id; None = the mean over the vocabulary
    position: int           # counted from 0; the logits are those of the token after it
    question: str           # what was asked, in words
    run: dict               # the run record

    def __repr__(self):
        return f"Attribution({self.question}: {self.total:+.3f})"


@torch.no_grad()
def attribute(model, text=None, *, ids=None, bos=False, target=None, against=None, position=-1, progress=None):
    """Split the logit of `target` minus that of `against`, as the next token after `position`, into who wrote it.

    target, against: a text that is one token of the model (" Mary", with its space) or an id. target None: the model's most
    likely next token; `question` says so. against None: the mean over the vocabulary. position: counted from 0, or from the
    end if negative; what comes after it plays no part, and is not computed. In float64 the parts sum to `total` within
    1e-10; in float32 up to the model's own rounding.

    In the lens, `value` is the difference of logits, `_p` a probability, and `_rank` 1 for the most likely token; the last
    row is the model itself.

    Raises TextError as `tokens.encode` and for a target that is not one token, ArgumentError for a position outside the
    text and a target that equals `against`.
    """
    found = tokens.encode(model, text, ids=ids, bos=bos)
    place = place_of(position, len(found))
    wanted = None if target is None else token_of(model, target, "target")
    other = None if against is None else token_of(model, against, "against")
    made = stream(model, found[:place + 1], progress)
    logits = unembed(model, made.residuals.to(model.device)).cpu()                           # [n_layer + 1, vocab]
    asked, wanted = wanted is not None, int(logits[-1].argmax()) if wanted is None else wanted
    name, other_name = (None if i is None else tokens.labels(model, [i])[0] for i in (wanted, other))
    if wanted == other:
        raise ArgumentError(f"target and against are the same token, {name} (id {wanted})"
                            + ("" if asked else ", which is the most likely next one; name a target"))
    labels = tokens.labels(model, found)
    column = unembedding(model, [wanted])[0]
    base = mean_unembedding(model) if other is None else unembedding(model, [other])[0]
    question = (f"logit of {name}{'' if asked else ', the most likely next token,'} minus "
                f"{'the mean of the vocabulary' if other is None else other_name}, after position {place} ({labels[place]})")
    return Attribution(
        parts=part_table(model, made, column, base),
        sources=source_table(model, made, column - base, found[:place + 1], labels[:place + 1]),
        lens=lens_table(model, logits, wanted, other),
        total=float(difference(logits[-1], wanted, other)),
        target=wanted, against=other, position=place, question=question,
        run=run_record(model, "attribute", text=text, ids=found, bos=bos, target=wanted, target_given=asked, against=other,
                       position=place))
