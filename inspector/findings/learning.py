"""In-context learning: how much a model gains from what it has read so far.

Token n is the one at position n, counted from 0 as everywhere here; it is also the n-th token predicted, so its loss stands
in column n - 1 of the losses. Olsson et al. 2022 ("In-context Learning and Induction Heads", Methods) take the loss of the
500th token minus that of the 50th, mean over 10,000 examples of 512 tokens. Single tokens differ by nats, so fewer windows
need the mean over a band of 20 tokens; and no number is stated while its standard error is above 0.1 nats.
"""

from dataclasses import dataclass

import pandas as pd
import torch

from ..checkpoint import tokens
from ..errors import ArgumentError, TextError
from ..record import run_record
from .ablation import next_seed
from .cutting import cut_losses
from .head_names import head_names, parse_heads
from .prompts import draw, longest_period, refuse_counts, special_ids, with_bos
from .verdicts import mean_se

EARLY, LATE, BAND = (41, 60), (481, 500), 20        # the bands of tokens, first and last
FIFTIETH, FIVE_HUNDREDTH = (50, 50), (500, 500)
CONTEXT = 512                                       # tokens in a window, as published
MOST_SE = 0.1                                       # nats


@dataclass(frozen=True)
class Difference:
    """Mean loss of the late tokens minus that of the early ones, in nats: below 0 where context helps."""

    early: tuple            # (first, last) token
    late: tuple
    value: float            # mean over windows; NaN where the windows are too short
    se: float               # standard error over windows of the paired differences; NaN for a single window

    @property
    def headline(self):
        """The value, or None while its standard error exceeds 0.1 nats or is unknown: too few windows to say a number."""
        return self.value if self.se <= MOST_SE else None

    def __str__(self):
        if self.value != self.value:
            return f"not measured: the windows end before token {self.late[1]}"
        if self.se != self.se:
            return "not stated: one window gives no standard error"
        if self.headline is None:
            return f"not stated: the standard error is {self.se:.2f} nats, above {MOST_SE}"
        return f"{self.value:+.3f} ± {self.se:.3f} nats"


@dataclass(frozen=True)
class InContext:
    """In-context learning over windows of text."""

    bands: Difference       # the mean of 20 tokens minus that of tokens 41..60
    published: Difference   # token 500 minus token 50
    n_windows: int
    n_tokens: int           # in each window


def difference(losses, early, late):
    """The Difference between two bands of tokens. losses: [window, n - 1], of tokens 1, 2, ..."""
    if losses.shape[1] < late[1]:
        return Difference(early, late, float("nan"), float("nan"))
    first, second = (losses[:, a - 1:b].double().mean(1) for a, b in (early, late))
    value, se = mean_se(second - first)
    return Difference(early, late, float(value), float(se))


def in_context(losses):
    """`InContext` of losses [window, n - 1] in nats: column j is the loss of token j + 1 of each window.

    Late are tokens 481..500, or the last 20 of windows that end before token 500. Each window must lie within one document.
    Raises ArgumentError for windows of fewer than 81 tokens, whose bands would overlap.
    """
    losses = torch.as_tensor(losses)
    least = EARLY[1] + BAND
    if losses.dim() != 2 or len(losses) < 1 or losses.shape[1] < least:
        raise ArgumentError(f"losses have shape {list(losses.shape)}; expected [window, token] with at least {least} losses "
                            "in each window")
    last = losses.shape[1]
    late = LATE if last >= LATE[1] else (last - BAND + 1, last)
    return InContext(difference(losses, EARLY, late), difference(losses, FIFTIETH, FIVE_HUNDREDTH), len(losses), last + 1)


def windows(ids, size, ends=()):
    """The full windows of `size` ids that hold none of the ids `ends`, side by side: [window, size], int64.

    An id of `ends` (the end of a text) closes a document, so that no window reaches into the next one.
    """
    found, start = [], 0
    for stop in [*(n for n, i in enumerate(ids) if i in ends), len(ids)]:
        found += [ids[a:a + size] for a in range(start, stop - size + 1, size)]
        start = stop + 1
    return torch.tensor(found, dtype=torch.int64).reshape(-1, size)


def learned_in(model, text=None, *, ids=None, size=None, bos=False, progress=None):
    """In-context learning on one long text, or on ids of several with their special ids between them: an `InContext`.

    The text is cut into windows of `size` tokens (None = 512, or as many as the model has positions for) side by side, none
    reaching over a special id; with `bos` each begins with BOS, which counts. The rest of each document is left out. Windows
    of one document are alike, so that the standard errors are, if anything, too small.

    Raises TextError where no window fits into the text, ArgumentError for a size under 81 or above the positions.
    """
    limit = model.config.n_positions
    size = min(CONTEXT, limit) if size is None else size
    refuse_counts(size=(size, EARLY[1] + BAND + 1))
    if size > limit:
        raise ArgumentError(f"size is {size}; this model has positions for {limit}")
    row = tokens.encode(model, text, ids=ids)
    cut = windows(row, size - bos, special_ids(model))
    if not len(cut):
        raise TextError(f"no document of the text ({len(row)} tokens in all) holds a window of {size - bos} tokens: give a "
                        f"longer text (or, in Python, a smaller size: at least {EARLY[1] + BAND + 1})")
    clean = cut_losses(model, with_bos(model, cut, bos), [()], fill="zero", progress=progress)[0]
    return in_context(clean)                                                                 # [window, size - 1]


def loss_by_position(model, heads=None, *, fill="mean", patterns="free", period=None, repeats=2, n_sequences=16, bos=False,
                     seed=0, progress=None):
    """The loss along repeated sequences, and along them with heads cut together: a DataFrame with a row a predicted token.

    Arguments as for `ablate`. Columns: position (of the token predicted, from 1), copy (which copy of the block it is in,
    from 1; the first token of copy 2 cannot be foreseen), loss, loss_se and, with heads, loss_cut, loss_cut_se: nats, mean
    and standard error over sequences. `.attrs`: run, period.

    Raises ArgumentError.
    """
    period = longest_period(model, bos, repeats) if period is None else period
    options = {"period": period, "repeats": repeats, "n_sequences": n_sequences, "bos": bos}
    prompts = draw(model, seed=seed, **options)
    chosen = () if heads is None else parse_heads(model, heads)
    found = cut_losses(model, prompts.ids, [(), chosen][:1 + bool(chosen)], fill=fill, patterns=patterns, progress=progress,
                       reference=draw(model, seed=next_seed(seed), **options).ids)           # [cut, sequence, token]
    position = torch.arange(1, prompts.ids.shape[1])
    table = pd.DataFrame({"position": position.numpy(), "copy": ((position - int(bos)) // period + 1).numpy()})
    for name, values in zip(("loss", "loss_cut"), found, strict=False):
        table[name], table[name + "_se"] = mean_se(values)
    table.attrs = {"run": run_record(model, "loss_by_position", heads=head_names(chosen), fill=fill, patterns=patterns,
                                     seed=seed, reference_seed=next_seed(seed), kernel="scan", **options), "period": period}
    return table
