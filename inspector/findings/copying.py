"""Does a head write the tokens it looks at, or their opposite? Three numbers, each with the level of a head that does not.

All three read the direct path: what the head's output alone adds to the logits, through the final LayerNorm (centred, with
its gain, never its bias) and the unembedding, minus the mean over the vocabulary, which no probability sees.

    copying_ratio    Olsson et al. 2022, Methods, "Head activation evaluators", copying: on 25 distinct ids, no BOS and no
                     repeats, r = ReLU(logit); x = sum over (query, key) of pattern * r of the key's token, over the sum over
                     queries and all tokens of the sequence of r; 2x - 1, from -1 to 1. A head that ignores its input reads
                     2/T - 1 (-0.92 for T = 25), not 0. The paper's sentence admits other readings; this one is ours. NaN
                     where a head raises no token of a sequence.
    copying_z        on repeated prompts, queries of copies 2..m: sum over keys of pattern * logit of the key's token, in
                     standard deviations of the head's logits over the vocabulary. Level 0, signed.
    copying_second   on the same prompts, queries of copies 2..m that have a next token: the head's part of the right next
                     token's logit, in logits: divided by the final LayerNorm's own scale at that position. Level 0, signed.

The first needs no repeats. The other two are read where a head has something to find: at rest, on the first position, what a
head says is not about the token it looks at. A head whose output the unembedding cannot read counts as 0 in both. Because
the vocabulary mean is taken off, raising one token by x puts every other x / vocab below 0: in a tiny vocabulary a head that
copies some other token reads slightly negative in the third.
"""

from typing import NamedTuple

import pandas as pd
import torch

from ..errors import ArgumentError
from ..model.attention import head_outputs
from ..model.forward import embed, layers
from ..record import run_record
from .direct import direct_logits, direct_unembedding, double, final_scale
from .prompts import distinct_rows, draw, drawable_ids, generator_of, longest_period
from .protocols import PROTOCOLS, id_range
from .scoring import POSITIONS_AT_ONCE
from .verdicts import LEVEL, holm, p_value

OLSSON = PROTOCOLS["olsson"]
LEAST_Z = 0.2           # a head whose OV is random reads within 0.1 on 2,048 ids; the demo's induction heads read 1.5 to 2.9
UNREAD = 1e-6           # a head's logits below this part of what its size could give are rounding, not speech


# -- the direct path -------------------------------------------------------------------------------------------------

def vocabulary_spread(z, W_O, gram):
    """Standard deviation over the vocabulary of each head's direct logits: [*batch, head, pos]; 0 where none is read.

    gram: [d_model, d_model], U U^T / vocab of `direct_unembedding`: through it the logits themselves are never made.
    """
    per_head = W_O @ gram @ W_O.transpose(-1, -2)                                            # [head, d_head, d_head]
    variance = ((z @ per_head) * z).sum(-1)                                                  # [head, pos]
    size = head_outputs(z, W_O).square().sum(-1) * gram.trace() / len(gram)
    return torch.where(variance > UNREAD**2 * size, variance, torch.zeros_like(variance)).sqrt()


# -- the three numbers, from patterns and logits -----------------------------------------------------------------------

def copying_ratio(pattern, logits):
    """Olsson's ratio, rescaled to -1..1. pattern: [*batch, head, query, key], logits: the same shape. -> [*batch, head].

    Example: a head that looks at one token and raises that one alone reads 1; one that raises all tokens of the sequence
    alike reads 2/T - 1.
    """
    raised = logits.clamp(min=0)
    return 2 * (pattern * raised).sum((-2, -1)) / raised.sum((-2, -1)) - 1                   # 0 / 0 is NaN: nothing raised


def attended_z(pattern, logits, spread):
    """Mean over queries of the attention-weighted logit of the keys' tokens, in spreads. -> [*batch, head].

    pattern, logits: [*batch, head, query, key]; spread: [*batch, head, query].
    """
    z = (pattern * logits).sum(-1) / spread
    return torch.where(spread > 0, z, torch.zeros_like(z)).mean(-1)


class Said(NamedTuple):
    """What one layer's heads look at and say, for some of the queries; float64 on the CPU."""

    pattern: torch.Tensor         # [sequence, head, query, key]
    logits: torch.Tensor          # [sequence, head, query, key], what the head adds to the logit of the key's token
    spread: torch.Tensor          # [sequence, head, query], over the vocabulary
    resid_post: torch.Tensor      # [sequence, pos, d_model], all positions, as the model has it


def said(model, ids, U, gram, first=0):
    """One Said a layer, for the queries from `first` on. ids: [sequence, pos]; U, gram as in `copying`."""
    columns = U[:, ids].movedim(0, -2)                                                       # [sequence, d_model, pos]
    for layer in layers(model, embed(model, ids)):
        W_O = double(model.weights.blocks[layer.index].W_O)
        z = double(layer.z[..., first:, :])
        spread = vocabulary_spread(z, W_O, gram)
        logits = direct_logits(z, W_O, columns) * (spread > 0)[..., None]
        yield Said(double(layer.kept.pattern[..., first:, :]), logits, spread, layer.resid_post)


def ratios(model, ids, U, gram):
    """Olsson's ratio of every head on unrepeated sequences: [sequence, layer, head]. ids: [sequence, pos]."""
    return torch.stack([copying_ratio(layer.pattern, layer.logits) for layer in said(model, ids, U, gram)], dim=1)


def on_repeats(model, ids, first, U, gram):
    """(copying_z, copying_second), each [sequence, layer, head]. ids: [sequence, pos]; the second copy begins at `first`."""
    z, second = [], []
    for layer in said(model, ids, U, gram, first):
        z.append(attended_z(layer.pattern, layer.logits, layer.spread))
        second.append(layer.logits.diagonal(first + 1, -2, -1))                              # the next token of each query
    scale = final_scale(model, layer.resid_post[:, first:-1])                                # [sequence, query]
    return torch.stack(z, 1), (torch.stack(second, 1) / scale[:, None, None]).mean(-1)


# -- the table ---------------------------------------------------------------------------------------------------------

def _mean_se(values):
    """Mean and standard error over the sequences that have a value: [sequence, layer, head] -> two flat arrays."""
    known = ~values.isnan()
    n, zero = known.sum(0), torch.zeros_like(values)
    mean = torch.where(known, values, zero).sum(0) / n
    squares = torch.where(known, values - mean, zero).square().sum(0)
    return mean.flatten().numpy(), (squares / (n - 1) / n).sqrt().flatten().numpy()


def copying_verdicts(table, n, level=LEVEL, least_z=LEAST_Z):
    """A list of words for each head: "copies" where copying_z and copying_second are both above 0, "suppresses" where
    copying_second is below 0, each at `level` after Holm over all heads of the table. n: number of sequences.

    Enough sequences show any difference from 0, of a head with a random OV too; so copying_z must also be larger than
    `least_z`, in either sign.
    """
    def shown(name, sign):
        return holm(p_value(sign * table[name], table[name + "_se"], n, 0.0, None, None), level)

    heard = table["copying_z"].abs().to_numpy() > least_z
    copies = shown("copying_z", 1) & shown("copying_second", 1) & heard
    suppresses = shown("copying_second", -1) & heard
    return [["copies"] * bool(c) + ["suppresses"] * bool(s) for c, s in zip(copies, suppresses, strict=True)]


@torch.no_grad()
def copying(model, *, prompts=None, n_sequences=16, period=None, seed=0, bos=False, least_z=LEAST_Z, progress=None):
    """How much every head copies what it looks at: a DataFrame, a row a head. Numbers as in the module's docstring.

    prompts: repeated prompts of `prompts.draw`; None = `n_sequences` drawn with `period` (50, or the longest that fits) and
    `bos`. The ratio's 25 ids (fewer where the model holds fewer) come from the range of protocol `olsson`, with no BOS.

    Columns: layer, head; copying_ratio, copying_ratio_se, copying_ratio_level (2/T - 1); copying_z, copying_z_se (standard
    deviations over the vocabulary); copying_second, copying_second_se (logits); verdict (words of `copying_verdicts`).
    Standard errors are over sequences. `.attrs["run"]` is the run record. Weights are taken in float64 on the CPU.

    Raises ArgumentError as `prompts.draw`, and for prompts together with what draws them.
    """
    if prompts is not None and (period is not None or bos or n_sequences != 16):
        raise ArgumentError("prompts are given: period, bos and n_sequences are for drawn ones; only the seed is free")
    if prompts is None:
        prompts = draw(model, period=longest_period(model, bos) if period is None else period, n_sequences=n_sequences,
                       bos=bos, seed=seed)
    low, high = id_range(OLSSON, model)
    pool = drawable_ids(model, low, high)
    length = min(OLSSON.period, model.config.n_positions, len(pool))
    single = distinct_rows(pool, length, len(prompts.ids), generator_of(seed))               # [sequence, pos]
    U = direct_unembedding(model)
    gram = U @ U.T / U.shape[1]                                                              # [d_model, d_model]
    first = prompts.bos + prompts.period
    per_batch = max(1, POSITIONS_AT_ONCE // prompts.ids.shape[1])
    starts = range(0, len(prompts.ids), per_batch)
    found = {"copying_ratio": [], "copying_z": [], "copying_second": []}
    for a in progress(starts) if progress is not None else starts:
        found["copying_ratio"].append(ratios(model, single[a:a + per_batch], U, gram))
        z, second = on_repeats(model, prompts.ids[a:a + per_batch], first, U, gram)
        found["copying_z"].append(z)
        found["copying_second"].append(second)
    n_layer, n_head = model.config.n_layer, model.config.n_head
    columns = {"layer": [n for n in range(n_layer) for _ in range(n_head)], "head": list(range(n_head)) * n_layer}
    for name, values in found.items():
        columns[name], columns[name + "_se"] = _mean_se(torch.cat(values))
        if name == "copying_ratio":
            columns["copying_ratio_level"] = 2 / length - 1
    table = pd.DataFrame(columns)
    table["verdict"] = copying_verdicts(table, len(prompts.ids), least_z=least_z)
    table.attrs["run"] = run_record(model, "copying", period=prompts.period, repeats=prompts.repeats, bos=prompts.bos,
                                    n_sequences=len(prompts.ids), seed=seed, ratio_tokens=length, ratio_ids=[low, high],
                                    level=LEVEL, least_z=least_z, kernel="grid")
    return table
