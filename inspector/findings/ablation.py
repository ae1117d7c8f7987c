"""`ablate`: what a model loses without its heads.

The loss is read on repeated random sequences, where induction alone can help, at the predictions made by the queries of
copies 2..m: the stripe's own queries but the last, which has nothing to predict. So the first token of copy 2, which nobody
can foresee, does not count. What replaces a head and what later layers may do about it: `cutting.py`.
"""

import itertools
import math

import pandas as pd
import torch

from ..checkpoint import tokens
from ..record import run_record
from .cutting import cut_losses
from .head_names import head_names, parse_heads
from .prompts import draw, generator_of, longest_period, refuse_counts
from .verdicts import mean_se


def next_seed(seed):
    """The seed of the reference sequences: another one, and the same whenever the prompts are."""
    return (seed + 1) % 2**63


def shuffles(ids, count, seed, bos_id):
    """The ids of one text in `count` random orders: [count, pos]. A BOS in front stays in front. ids: [pos], int64."""
    generator, fixed = generator_of(seed), int(len(ids) > 0 and int(ids[0]) == bos_id)
    rows = [ids[fixed:][torch.randperm(len(ids) - fixed, generator=generator)] for _ in range(count)]
    return torch.stack([torch.cat([ids[:fixed], row]) for row in rows])


def control_sets(model, chosen, count, seed):
    """At most `count` different random sets with as many heads from each layer as `chosen`: a list of tuples.

    None shares a head with `chosen`, unless a layer has too few others: then all of these are taken, and the rest from
    `chosen`. Where there are no more than `count` such sets, all of them are given. `chosen` itself is never among them.
    """
    generator, pools = generator_of(seed), []
    for layer, group in itertools.groupby(chosen, key=lambda head: head[0]):
        mine = list(group)
        others = [(layer, head) for head in range(model.config.n_head) if (layer, head) not in mine]
        enough = len(others) >= len(mine)
        pools.append(((), others, len(mine)) if enough else (others, mine, len(mine) - len(others)))

    def joined(picks):
        return tuple(sorted(head for (always, _, _), pick in zip(pools, picks, strict=True) for head in (*always, *pick)))

    if math.prod(math.comb(len(pool), k) for _, pool, k in pools) <= count:
        found = [joined(picks) for picks in itertools.product(*(itertools.combinations(pool, k) for _, pool, k in pools))]
        return [each for each in found if each != tuple(chosen)]
    found = {}                                          # a dict keeps the order of drawing
    while len(found) < count:
        orders = [torch.randperm(len(pool), generator=generator).tolist() for _, pool, _ in pools]
        found[joined([[pool[n] for n in order[:k]] for order, (_, pool, k) in zip(orders, pools, strict=True)])] = None
    return list(found)


def the_others(model, chosen):
    """All heads beside `chosen` in its layers, where some layer has too few for a control without `chosen`; else ()."""
    layers = {layer for layer, _ in chosen}
    mine = {layer: sum(head[0] == layer for head in chosen) for layer in layers}
    if all(model.config.n_head >= 2 * mine[layer] for layer in layers):
        return ()
    every = [(layer, head) for layer in sorted(layers) for head in range(model.config.n_head)]
    return tuple(head for head in every if head not in chosen)


def planned_cuts(model, heads, n_controls, seed):
    """[(kind, cut)]: every head alone, or the given set, its members and its controls."""
    if heads is None:
        return [("head", ((layer, head),)) for layer in range(model.config.n_layer) for head in range(model.config.n_head)]
    chosen = parse_heads(model, heads)
    found = [("set", chosen)] if len(chosen) > 1 else []
    found += [("head", (head,)) for head in chosen]
    found += [("control", each) for each in control_sets(model, chosen, n_controls, seed)]
    others = the_others(model, chosen)
    return found + ([("rest", others)] if others and n_controls else [])


def text_losses(model, row, cuts, *, fill, patterns, n_sequences, seed, progress=None):
    """Mean loss of one text's tokens 1, 2, ... with each cut made: [cut], nats. row: the ids of the text.

    Its reference are its own ids in `n_sequences` random orders: the same tokens, and nothing else of the text. "resample"
    is the mean over all of these, one by one.
    """
    ids = torch.tensor(row)
    reference = shuffles(ids, n_sequences, next_seed(seed), model.config.bos_token_id)
    rows = ids.expand(n_sequences if fill == "resample" else 1, -1)
    return cut_losses(model, rows, cuts, fill=fill, reference=reference, patterns=patterns, progress=progress).mean((1, 2))


def ablate(model, heads=None, *, text=None, ids=None, fill="mean", patterns="free", period=None, repeats=2, n_sequences=16,
           bos=False, seed=0, n_controls=20, progress=None):
    """What happens to the loss without heads: a DataFrame with a row for each cut.

    heads: None cuts every head alone. Else (in any form of `parse_heads`) that set together, each member alone, and up to
    `n_controls` random sets of as many heads from the same layers; where a layer has too few others, so that every control
    shares heads with the set, also all the others of its layers together (kind "rest"). fill: what a cut head says instead,
    "mean" (its mean over `n_sequences` reference sequences at each position), "zero", or "resample" (its z on one of them).
    patterns: "free", or "frozen" to those of the clean run of the same input. Reference: sequences drawn the same way with
    seed + 1; for a text, its own ids in random orders. period: None = 50, or as much as the model can hold. text or ids: one
    text on which the loss is read too; `bos` puts BOS first in the sequences and in the text.

    Columns: cut ("1.4" or "1.1 1.2"), kind (head, set, control, rest), layer, head (None for several), n_heads; loss, the
    mean over sequences of the loss in copies 2..m (predictions by these copies' queries), loss_se; change, loss minus the
    clean loss of the same sequences, change_se (standard errors over sequences, of the paired differences; NaN for one
    sequence); text_loss and text_change, the mean over the text's tokens (NaN without a text). All in nats a token.

    `.attrs`: run, period, clean_loss, clean_loss_se, clean_text_loss (None without a text), and of the changes of the
    controls n_controls, control_mean, control_low, control_high (None where there is none), and control_shared, how many
    heads of the set each of them holds.

    Raises ArgumentError, TextError.
    """
    (table,) = ablations(model, [heads], text=text, ids=ids, fill=fill, patterns=patterns, period=period, repeats=repeats,
                         n_sequences=n_sequences, bos=bos, seed=seed, n_controls=n_controls, progress=progress)
    return table


def ablations(model, several, *, text=None, ids=None, fill="mean", patterns="free", period=None, repeats=2, n_sequences=16,
              bos=False, seed=0, n_controls=20, progress=None):
    """The tables of `ablate` for several arguments `heads`, in a list. A cut that they share is made once."""
    refuse_counts(n_controls=(n_controls, 0))
    period = longest_period(model, bos, repeats) if period is None else period
    options = {"period": period, "repeats": repeats, "n_sequences": n_sequences, "bos": bos}
    prompts = draw(model, seed=seed, **options)
    row = None if text is None and ids is None else tokens.encode(model, text, ids=ids, bos=bos)
    plans = [planned_cuts(model, heads, n_controls, seed) for heads in several]
    cuts = list(dict.fromkeys([(), *(cut for plan in plans for _, cut in plan)]))            # the first is the clean run
    how = {"fill": fill, "patterns": patterns, "progress": progress}
    # The text first: one that does not fit is refused before the work on the sequences.
    on_text = None if row is None else text_losses(model, row, cuts, n_sequences=n_sequences, seed=seed, **how)
    loss = cut_losses(model, prompts.ids, cuts, reference=draw(model, seed=next_seed(seed), **options).ids,
                      first=bos + period, **how).mean(-1)                                    # [cut, sequence]
    place, found = {cut: n for n, cut in enumerate(cuts)}, []
    for heads, plan in zip(several, plans, strict=True):
        chosen = [0, *(place[cut] for _, cut in plan)]
        run = run_record(model, "ablate", heads=None if heads is None else head_names(parse_heads(model, heads)), text=text,
                         ids=row, fill=fill, patterns=patterns, seed=seed, reference_seed=next_seed(seed),
                         n_controls=n_controls, kernel="scan", **options)
        found.append(assemble(plan, loss[chosen], None if on_text is None else on_text[chosen], run))
    return found


def shared_heads(plan):
    """How many heads of the set each control holds: the same in all of them. 0 without controls."""
    chosen = {head for kind, cut in plan if kind == "head" for head in cut}
    return max((len(chosen.intersection(cut)) for kind, cut in plan if kind == "control"), default=0)


def assemble(plan, loss, on_text, run):
    """The table of `ablate`. loss: [1 + cut, sequence] and on_text: [1 + cut] or None, the clean run first."""
    single = all(len(cut) == 1 for _, cut in plan)
    (mean, se), (change, change_se) = mean_se(loss[1:].T), mean_se((loss[1:] - loss[0]).T)

    def part(index):
        return pd.Series([cut[0][index] if len(cut) == 1 else None for _, cut in plan], dtype=int if single else object)

    table = pd.DataFrame({
        "cut": [head_names(cut) for _, cut in plan], "kind": [kind for kind, _ in plan], "layer": part(0), "head": part(1),
        "n_heads": [len(cut) for _, cut in plan], "loss": mean, "loss_se": se, "change": change, "change_se": change_se,
        "text_loss": math.nan if on_text is None else on_text[1:].numpy(),
        "text_change": math.nan if on_text is None else (on_text[1:] - on_text[0]).numpy()})
    clean, clean_se = mean_se(loss[0])
    changes = table["change"][table["kind"] == "control"]
    low, mid, high = (None if changes.empty else float(x) for x in (changes.min(), changes.mean(), changes.max()))
    table.attrs = {"run": run, "period": run["arguments"]["period"], "clean_loss": float(clean),
                   "clean_loss_se": float(clean_se), "clean_text_loss": None if on_text is None else float(on_text[0]),
                   "n_controls": len(changes), "control_mean": mid, "control_low": low, "control_high": high,
                   "control_shared": shared_heads(plan)}
    return table
