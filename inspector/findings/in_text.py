"""Induction in one text: what the induction heads make of the tokens that occurred before.

At a position whose token occurred before, an induction head looks at what followed the earlier places and raises that
token as the next one ([A][B] ... [A] -> [B]; Elhage et al. 2021, Olsson et al. 2022). For each position i, each follower
token f, and each head: the attention sum_j A[i, j + 1] over the earlier places j that f followed (j + 1 <= i), and the
head's contribution to f's logit above the mean of the vocabulary, with the final LayerNorm frozen at i. And for the heads
together, causally: the model's probability of f as the next token, and the same with all of them cut at once.

A cut head says its mean at each position over random sequences in which no token repeats, so that there is nothing to find;
later layers are free to look elsewhere. Tokens with the BOS id do not count as having occurred before.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch

from ..errors import ArgumentError
from ..model.forward import layers, unembed
from ..model.tracing import trace
from ..record import run_record
from ..showing import Shown
from .cutting import attend, edits_of, mean_z
from .direct import frozen_norm, mean_unembedding, unembedding
from .head_names import head_names, parse_heads
from .prompts import drawable_ids, generator_of, longest_period, refuse_counts, with_bos
from .table import heads as head_table

PLACES = {"position": int, "id": int, "label": str, "earlier": object, "followers": object, "follower_id": int,
          "follower": str, "came": object, "attention": float, "logit": float, "p": float, "p_cut": float}
BY_HEAD = {"position": int, "follower_id": int, "layer": int, "head": int, "attention": float, "logit": float}


@dataclass(frozen=True, repr=False)
class TextInduction(Shown):
    """The repeats of one text and what the induction heads make of them.

    places: a row for each position whose token occurred before and each token that followed an earlier place, in text
    order: position, id, label; earlier, the list of places before that this follower followed, and followers, the positions
    right after them; follower_id, follower (its label); came, whether the text goes on with it (None at the last position);
    attention, the mean over the heads of what each gives to `followers`; logit, the sum over the heads of what each adds
    to the follower's logit; p, the model's probability of the follower as the next token, and p_cut with all the heads cut.
    Without heads attention, logit and p_cut are NaN.
    """

    places: Any             # DataFrame, see above
    by_head: Any            # DataFrame: position, follower_id, layer, head, attention, logit
    heads: tuple            # (layer, head), sorted: the induction heads used; () where none was found
    run: dict               # the run record

    def __repr__(self):
        return (f"TextInduction({self.places['position'].nunique()} positions with an earlier place, {len(self.places)} "
                f"followers; heads {head_names(self.heads) or 'none'})")


def repeats_of(ids, bos_id=None):
    """[(position, follower id, [earlier place])] in text order; followers of a position by their first place. ids: a list.

    Example: [A, B, A, C, A] gives (2, B, [0]), (4, B, [0]), (4, C, [2]).
    """
    found, seen = [], {}
    for position, token in enumerate(ids):
        if token == bos_id:
            continue
        groups = {}
        for place in seen.setdefault(token, []):
            groups.setdefault(ids[place + 1], []).append(place)
        found += [(position, follower, places) for follower, places in groups.items()]
        seen[token].append(position)
    return found


def follower_attention(pattern, repeats):
    """sum_j A[i, j + 1] over the earlier places of each repeat: [*batch, repeat]. pattern: [*batch, query, key]."""
    row = torch.tensor([n for n, (_, _, places) in enumerate(repeats) for _ in places])
    query = torch.tensor([position for position, _, places in repeats for _ in places])
    key = torch.tensor([place + 1 for _, _, places in repeats for place in places])
    cells = pattern[..., query, key]
    return cells.new_zeros(*cells.shape[:-1], len(repeats)).index_add(-1, row, cells)


def unrepeated(model, n, bos, count, seed):
    """(ids [count, n], in words): random sequences in which no token repeats, with BOS in front where `bos`.

    Where the model has too few ids, a token comes again only after all the others have come, in another order: what
    followed it before says nothing. The words name what was done.
    """
    pool, generator = drawable_ids(model), generator_of(seed)
    length = n - bos
    if not len(pool):
        raise ArgumentError("every id of this model is special: there is none to draw a reference sequence from")

    def row():
        orders = [torch.randperm(len(pool), generator=generator) for _ in range(math.ceil(length / len(pool)))]
        return pool[torch.cat(orders)[:length]] if orders else pool[:0]

    words = f"mean at each position over {count} random sequences without a repeat"
    if length > len(pool):
        words = f"mean at each position over {count} random sequences that repeat, in random order, after {len(pool)} tokens"
    return with_bos(model, torch.stack([row() for _ in range(count)]), bos), words


def cut_resid(model, resid_pre, heads, fill):
    """The final residual with heads cut together, [pos, d_model]. resid_pre: [layer, pos, d_model], of the clean run."""
    start = min(layer for layer, _ in heads)
    edits = edits_of(model, [heads], start, fill, {})
    for layer in layers(model, resid_pre[start][None], start=start, kernel=attend, edits=edits):
        last = layer.resid_post                                                              # [1, 1, pos, d_model]
    return last[0, 0]


def probabilities(logits, positions, ids):
    """softmax(logits)[position, id] for lists of positions and ids, float64 on the CPU: [repeat]. logits: [pos, vocab]."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    chosen = wide[list(positions), list(ids)] - wide.logsumexp(-1)[list(positions)]
    return chosen.cpu().double().exp()


def what_heads_give(model, traced, heads, repeats):
    """(attention, logit), each [head, repeat], float64: what each head gives to the followers of each repeat."""
    positions, followers, _ = zip(*repeats, strict=True)
    tokens = sorted(set(followers))
    columns = unembedding(model, tokens) - mean_unembedding(model)                           # [token, d_model]
    column = {token: n for n, token in enumerate(tokens)}
    picked = [column[token] for token in followers]                                          # [repeat]
    attention = torch.empty(len(heads), len(repeats), dtype=torch.float64)
    logit = torch.empty_like(attention)
    for n, (layer, head) in enumerate(heads):
        attention[n] = follower_attention(traced.pattern[layer, head].cpu().double(), repeats)
        written = traced.z[layer, head] @ model.weights.blocks[layer].W_O[head]              # [pos, d_model]
        to_tokens = frozen_norm(model, written, traced.resid_post[-1]) @ columns.T           # [pos, token]
        logit[n] = to_tokens[list(positions), picked]
    return attention, logit


def _table(rows, columns):
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


@torch.no_grad()
def from_trace(model, traced, heads, *, seed=0, n_sequences=16, progress=None):
    """The TextInduction of a text already traced, for given heads (in any form of `parse_heads`; none at all is allowed).

    `n_sequences` random sequences drawn with `seed` make the mean that a cut head says. Raises ArgumentError.
    """
    refuse_counts(n_sequences=(n_sequences, 1))
    heads = parse_heads(model, heads) if len(heads) else ()
    ids, labels = traced.ids.tolist(), traced.labels
    repeats = repeats_of(ids, model.config.bos_token_id)
    reference, words = unrepeated(model, len(ids), traced.bos, n_sequences, seed)
    run = run_record(model, "induction", ids=ids, bos=traced.bos, heads=head_names(heads), fill=words, patterns="free",
                     n_sequences=n_sequences, seed=seed)
    if not repeats:
        return TextInduction(_table([], PLACES), _table([], BY_HEAD), heads, run)

    positions, followers, _ = zip(*repeats, strict=True)
    p, p_cut = probabilities(traced.logits, positions, followers), [math.nan] * len(repeats)
    attention, logit = what_heads_give(model, traced, heads, repeats)                        # [head, repeat]
    together = attention.mean(0), logit.sum(0) if heads else [math.nan] * len(repeats)
    if heads:
        cut = cut_resid(model, traced.resid_pre, heads, mean_z(model, reference, progress=progress))
        p_cut = probabilities(unembed(model, cut), positions, followers)
    places = [(i, ids[i], labels[i], earlier, [place + 1 for place in earlier], token, labels[earlier[0] + 1],
               ids[i + 1] == token if i + 1 < len(ids) else None, *map(float, numbers))
              for (i, token, earlier), *numbers in zip(repeats, *together, p, p_cut, strict=True)]
    by_head = [(i, token, *head, float(attention[n, r]), float(logit[n, r]))
               for r, (i, token, _) in enumerate(repeats) for n, head in enumerate(heads)]
    return TextInduction(_table(places, PLACES), _table(by_head, BY_HEAD), heads, run)


def induction(model, text=None, *, ids=None, bos=False, heads=None, period=None, seed=0, progress=None):
    """What the induction heads make of the repeats of one text: a TextInduction.

    heads: None = those with an induction verdict on drawn repeats of `period` ids (50, or as much as the model can hold;
    `findings.table.heads`); else in any form of `parse_heads`. seed: of the drawn repeats, and of the random sequences
    whose mean a cut head says. On a text without a repeat the tables are empty; without heads `heads` is ().

    Raises TextError as `trace`, ArgumentError as `heads` and `parse_heads`, and for a period beside given heads.
    """
    if heads is not None and period is not None:
        raise ArgumentError("period is for finding the heads, but heads are given: leave one out")
    if heads is not None:
        used = parse_heads(model, heads)
    traced = trace(model, text, ids=ids, bos=bos, progress=progress)
    if heads is None:
        period = longest_period(model, bos) if period is None else period
        table = head_table(model, period=period, bos=bos, seed=seed, progress=progress)
        used = tuple((int(row.layer), int(row.head)) for row in table.itertuples() if "induction" in row.verdict)
    found = from_trace(model, traced, used, seed=seed, progress=progress)
    said = {"text": text, "heads_given": heads is not None, "period": period}
    return replace(found, run={**found.run, "arguments": {**found.run["arguments"], **said}})
