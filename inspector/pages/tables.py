"""Tensors to tables: tokens and their losses, links, weights, the question of a preset, the proof in short.

DataFrames out, for the pages and for CSV alike. Axis names as in `inspector.model`.
"""

from itertools import chain

import pandas as pd
import torch

from . import words

IN_CACHE = 2**16    # numbers that statistics are taken of together
NEXT = 5            # next tokens shown for each position


def token_table(ids, labels, texts, logits, label_of):
    """A row a token: position, id, token, label, loss, and the five most likely next tokens with their probabilities.

    ids: [pos]; logits: [pos, vocab]; label_of: id -> label. `loss` is -ln p(this token | those before), in nats, so
    position 0 has none. Columns next_1, next_1_id, next_1_p, ...; fewer where the vocabulary is smaller.
    """
    ids, logits = ids.cpu(), logits.detach().to("cpu", torch.float64)
    log_p = logits.log_softmax(-1)                                                           # [pos, vocab]
    loss = [float("nan"), *(-log_p[:-1].gather(-1, ids[1:, None]).squeeze(-1)).tolist()]
    known = min(NEXT, log_p.shape[-1])
    best = largest(log_p, known)
    table = pd.DataFrame({"position": range(len(ids)), "id": ids.tolist(), "token": list(texts), "label": list(labels),
                          "loss": loss})
    for n in range(known):
        chosen = [ids[n] for ids in best]
        table[f"next_{n + 1}"] = [label_of(i) for i in chosen]
        table[f"next_{n + 1}_id"] = chosen
        table[f"next_{n + 1}_p"] = log_p[range(len(best)), chosen].exp().tolist()
    return table


def largest(values, count):
    """For each row the indices of its largest values, largest first; equal ones in their order (`topk` promises none).

    values: [rows, columns] -> a list of lists. NaN counts as the smallest.
    """
    values = values.masked_fill(values.isnan(), float("-inf"))
    least = values.topk(count).values[:, -1:]
    row, column = (values >= least).nonzero(as_tuple=True)                                   # in reading order
    candidates = [[] for _ in values]
    for r, c, value in zip(row.tolist(), column.tolist(), values[row, column].tolist(), strict=True):
        candidates[r].append((-value, c))
    return [[c for _, c in sorted(each)[:count]] for each in candidates]


def link_table(pattern, labels, layer, weighted, shares, count=10, *, by_value=False):
    """The strongest links of each head whose key is neither the first token nor the query itself, strongest first.

    pattern, weighted (value-weighted), shares (additive): [head, query, key]. Strongest: of the largest weight, or of the
    largest value-weighted cell `by_value`. Columns layer, head, rank, query, key, weight, words, value_weighted, share.
    Equal ones: earlier query first, then earlier key. Links of 0 are none.
    """
    n = pattern.shape[-1]
    open_cells = torch.ones(n, n, dtype=torch.bool).tril(-1)
    open_cells[:, :1] = False
    query, key = open_cells.nonzero(as_tuple=True)                                           # in reading order
    rows = []
    for head, grids in enumerate(zip(pattern, weighted, shares, strict=True)):
        weight, value, share = (grid.detach().cpu()[query, key] for grid in grids)
        strength = value if by_value else weight
        linked = (strength > 0).nonzero().squeeze(-1)
        best = largest(strength[None, linked], min(count, len(linked)))[0] if len(linked) else []
        for rank, at in enumerate(linked[best].tolist(), 1):
            i, j = int(query[at]), int(key[at])
            rows.append((layer, head, rank, i, j, float(weight[at]), words.link(labels[i], labels[j], float(strength[at])),
                         float(value[at]), float(share[at])))
    return pd.DataFrame(rows, columns=["layer", "head", "rank", "query", "key", "weight", "words", "value_weighted",
                                       "share"])


def first_token_shares(pattern):
    """Mean of the cells on the first token over queries 1.. for each head: [..., query, key] -> [...]; NaN for one token.

    Of a pattern: the weight that rests there; of additive shares: how much of what the head writes comes from there.
    """
    return pattern[..., 1:, 0].mean(-1)


def sums_of(values):
    """[(n, sum of squares, mean, sum of squares around it, smallest, largest)] of parts of a tensor that fit the cache."""
    found = []
    for part in values.detach().flatten().split(IN_CACHE):
        wide = part.to("cpu", torch.float64)
        mean = wide.mean()
        away = wide - mean
        found.append((len(wide), wide @ wide, mean, away @ away, *wide.aminmax()))
    return found


def statistics(sums):
    """[norm, mean, std, smallest, largest] of all the numbers of some parts, in float64; std: about the mean, over n.

    sums: see `sums_of`; they are joined as in Chan, Golub and LeVeque 1979, equation 2.1.
    """
    n, squares, means, spread, low, high = torch.tensor(sums, dtype=torch.float64).T
    mean = (n * means).sum() / n.sum()
    variance = (spread.sum() + (n * (means - mean) ** 2).sum()) / n.sum()
    return torch.stack([squares.sum().sqrt(), mean, variance.sqrt(), low.min(), high.max()]).tolist()


def weight_table(weights, layer):
    """A row a weight: layer, weight, shape, numbers, norm (Frobenius), mean, std, smallest, largest.

    weights: {name: tensor}. A matrix with a head axis has a row more for each head, `W_Q 0.3`, with its own norm.
    """
    rows = []
    for name, values in weights.items():
        by_head = name in ("W_Q", "W_K", "W_V", "W_O")
        sums = [sums_of(part) for part in (values if by_head else [values])]
        rows.append((layer, name, None, values.shape, values.numel(), *statistics(list(chain(*sums)))))
        rows += [(layer, name, head, part.shape, part.numel(), *statistics(own))
                 for head, (part, own) in enumerate(zip(values if by_head else (), sums, strict=False))]
    table = pd.DataFrame(rows, columns=["layer", "weight", "head", "shape", "numbers", "norm", "mean", "std", "smallest",
                                        "largest"])
    table["shape"] = [" x ".join(map(str, shape)) for shape in table["shape"]]
    return table.astype({"head": "Int64"})


def histogram(tensor, limit, bins=40):
    """[bins] counts: how the values lie between -limit and +limit."""
    values = tensor.detach().to("cpu", torch.float64).flatten()
    return torch.histc(values, bins=bins, min=-limit, max=limit).long().tolist()


def find_word(texts, word, last=False):
    """Positions of the tokens that spell a word's first (or last) occurrence in a text; empty where there is none.

    texts: the tokens' own texts, which join to the whole. A word stands between characters that are no letters.
    """
    whole = "".join(texts)
    places = [at for at in range(len(whole)) if whole.startswith(word, at)
              and not whole[at - 1:at].isalnum() and not whole[at + len(word):at + len(word) + 1].isalnum()]
    if not places:
        return []
    start = places[-1 if last else 0]
    found, at = [], 0
    for position, text in enumerate(texts):
        if at < start + len(word) and at + len(text) > start and (at + len(text)) > at:
            found.append(position)
        at += len(text)
    return found


def question_table(pattern, texts, question):
    """(table, query position, {key word: positions}): how much each head looks from the query word at each key word.

    pattern: [layer, head, query, key]. A word in several tokens is read at its last one and looked at in all of them:
    their weights are summed. None where a word is not in the text before the query.
    """
    query = find_word(texts, question.query, last=True)
    keys = {word: find_word(texts, word) for word in question.keys}
    if not query or not all(keys.values()) or any(max(at) >= query[-1] for at in keys.values()):
        return None
    n_layer, n_head = pattern.shape[:2]
    table = pd.DataFrame({"layer": [n for n in range(n_layer) for _ in range(n_head)],
                          "head": list(range(n_head)) * n_layer})
    for word, positions in keys.items():
        table[word] = pattern[:, :, query[-1], positions].sum(-1).flatten().detach().cpu().double().numpy()
    return table, query[-1], keys


def grid_of(table, column):
    """A column of a table with a row a head as [layer, head]."""
    values = table.pivot(index="layer", columns="head", values=column).to_numpy(dtype="float64")
    return torch.from_numpy(values.copy())


def proof_table(check):
    """The proof in short: a row for each part and quantity with its largest difference, in its bound's measure.

    Columns part, quantity, places (how many were compared), difference and bound (of the place nearest its bound),
    share (difference / bound), verdict. A difference that is no number is the worst of all.
    """
    share = check["difference"] / check["bound"]
    rows = []
    for (part, quantity), group in check.assign(share=share).groupby(["part", "quantity"], sort=False):
        worst = group.loc[group["share"].fillna(float("inf")).idxmax()]
        verdict = "passed" if (group["verdict"] == "passed").all() else "failed"
        rows.append((part, quantity, len(group), worst["difference"], worst["bound"], worst["share"], verdict))
    return pd.DataFrame(rows, columns=["part", "quantity", "places", "difference", "bound", "share", "verdict"])
