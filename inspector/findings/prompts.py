"""Sequences with a known repeat, and their controls without one.

L distinct ids drawn without replacement, repeated m times, after o BOS tokens (o = 0 or 1): N = o + m L positions. The
control is as many *unrepeated* sequences of the same length. Olsson et al. 2022 ("In-context Learning and Induction
Heads", Methods, "Head activation evaluators") and Elhage et al. 2021 use repeated random tokens: what a head does there
cannot come from what usually follows what in text.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ArgumentError
from .protocols import PROTOCOLS


@dataclass(frozen=True)
class Prompts:
    """Repeated sequences, their controls, and what repeats where."""

    ids: Any            # [sequence, pos], int64
    control: Any        # [sequence, pos], int64, no id twice
    symbols: Any        # [pos] or [sequence, pos], int64: equal symbols mark copies of one token (BOS has its own)
    period: int         # L
    repeats: int        # m
    bos: bool


def special_ids(model):
    """Ids that are never drawn: the tokenizer's special tokens, else the BOS and EOS ids of the config."""
    if model.tokenizer is not None:
        return set(model.tokenizer.special)
    named = [model.config.bos_token_id, model.raw_config.get("eos_token_id")]
    return {i for i in named if isinstance(i, int)}


def drawable_ids(model, low=0, high=None):
    """All non-special ids from `low` up to `high` (not included; None = the whole vocabulary): [n], int64."""
    high = model.config.vocab_size if high is None else high
    if not 0 <= low < high <= model.config.vocab_size:
        raise ArgumentError(f"ids from {low} to {high} asked for; the vocabulary has {model.config.vocab_size}")
    special = special_ids(model)
    return torch.tensor([i for i in range(low, high) if i not in special], dtype=torch.int64)


def refuse_counts(**counts):
    """Raise ArgumentError unless each value is a whole number of at least its bound: name=(value, at least)."""
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"{name} is {value!r}; expected a whole number of at least {least}")


def longest_period(model, bos=False, repeats=2, most=PROTOCOLS["stripe"].period):
    """50, or as much as a small model has positions and ids for. Whoever uses it names it beside the result."""
    refuse_counts(repeats=(repeats, 2))
    n = min(model.config.n_positions - bos, len(drawable_ids(model)))
    return max(2, min(most, n // repeats))


def symbols(period, repeats, bos):
    """[pos]: which token of the block stands at each position; -1 for BOS."""
    row = torch.arange(period).repeat(repeats)
    return torch.cat([torch.tensor([-1]), row]) if bos else row


def with_bos(model, ids, bos):
    """ids with a BOS column in front if asked. Raises ArgumentError where the model has no BOS inside its vocabulary."""
    if not bos:
        return ids
    bos_id = model.config.bos_token_id
    if bos_id is None or not 0 <= bos_id < model.config.vocab_size:
        raise ArgumentError(f"this model has no BOS token inside its vocabulary (bos_token_id {bos_id})")
    return torch.cat([ids.new_full((len(ids), 1), bos_id), ids], dim=1)


def distinct_rows(pool, length, count, generator):
    """Rows of ids drawn without replacement: [count, length]. Raises ArgumentError where there are too few ids."""
    if length > len(pool):
        raise ArgumentError(f"{length} distinct ids cannot be drawn from the {len(pool)} of this model: choose shorter "
                            f"sequences, of at most {len(pool)}")
    return torch.stack([pool[torch.randperm(len(pool), generator=generator)[:length]] for _ in range(count)])


def generator_of(seed):
    """A generator of its own. Raises ArgumentError for a seed that is no whole number from 0 to 2^63 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ArgumentError(f"seed is {seed!r}; expected a whole number from 0 to 2^63 - 1")
    return torch.Generator().manual_seed(seed)


def draw(model, *, period, repeats=2, n_sequences=16, bos=False, seed=0, low=0, high=None, distinct=True):
    """Prompts drawn from a generator of their own: the same seed gives the same sequences, the global one is untouched.

    `distinct` draws without replacement (else a block may hold an id twice, as some published protocols do; controls
    are distinct all the same). Raises ArgumentError for lengths that do not fit the model or the vocabulary.
    """
    refuse_counts(period=(period, 2), repeats=(repeats, 2), n_sequences=(n_sequences, 1))
    n, pool = period * repeats, drawable_ids(model, low, high)
    longest = min(model.config.n_positions - bos, len(pool)) // repeats
    if period > longest:
        raise ArgumentError(f"{repeats} x {period} distinct tokens{' and BOS' if bos else ''} do not fit a model with "
                            f"{model.config.n_positions} positions and {len(pool)} ids to draw from: "
                            + (f"choose a period of at most {longest}" if longest > 1 else "it is too small for repeats"))
    generator = generator_of(seed)
    if distinct:
        blocks = distinct_rows(pool, period, n_sequences, generator)
    else:
        blocks = torch.stack([pool[torch.randint(len(pool), (period,), generator=generator)] for _ in range(n_sequences)])
    ids, control = blocks.repeat(1, repeats), distinct_rows(pool, n, n_sequences, generator)  # [sequence, pos]
    return Prompts(with_bos(model, ids, bos), with_bos(model, control, bos), symbols(period, repeats, bos), period,
                   repeats, bos)


def find_period(ids, bos_id=None):
    """The smallest L for which every row of ids is one block of L ids repeated at least twice; None where there is none.

    ids: [sequence, pos]. A first column of BOS is left out of the block; the last copy may be cut short.
    """
    if bos_id is not None and bool((ids[:, 0] == bos_id).all()):
        ids = ids[:, 1:]
    n = ids.shape[1]
    for period in range(1, n // 2 + 1):
        if bool((ids[:, period:] == ids[:, :-period]).all()):
            return period
    return None
