"""The losses of a model with heads cut, for many cuts at once.

A cut is a set of heads (layer, head) whose z something else replaces before W_O. Two independent choices:

    fill        what a cut head says instead: the mean over reference sequences at each position ("mean"), nothing ("zero"),
                or its z on one of the reference sequences ("resample")
    patterns    what later layers may do about it: look elsewhere ("free"), or nothing: their patterns stay those of the
                clean run of the same sequence ("frozen"; pattern-preserving ablation, Olsson et al. 2022, Methods)

Below its lowest layer a cut changes nothing, so every cut starts from the clean residual stream there; and as a cut acts
on z, all cuts of one layer share that layer's q, k, v and pattern and part only at W_O.
"""

from itertools import groupby

import torch

from ..errors import ArgumentError, TextError
from ..model import kernels
from ..model.forward import embed, layers, losses, unembed
from ..model.kernels import Edit, scan

FILLS = ("mean", "zero", "resample")
PATTERNS = ("free", "frozen")
POSITIONS_AT_ONCE = 4096      # cuts x sequences x positions computed together; with more a CPU leaves its caches
LOGITS_AT_ONCE = 2**23        # logits made together: rows enough for a fast product, in buffers that the allocator keeps

# Makes the patterns and keeps none. Where an edit brings the patterns, no score is computed.
attend = scan(lambda pattern, first_query: {})


def refuse_unknown(name, value, known):
    """Raise ArgumentError unless the value is one of the known ones."""
    if value not in known:
        raise ArgumentError(f"{name} is {value!r}; expected one of {', '.join(known)}")


def z_of(model, ids):
    """{layer: z [sequence, head, pos, d_head]} of a clean run."""
    return {layer.index: layer.z for layer in layers(model, embed(model, ids), kernel=attend)}


def mean_z(model, ids, stop=None, progress=None):
    """{layer: z [head, pos, d_head]} below layer `stop` (None = all), the mean over sequences, summed in float64."""
    stop, total = model.config.n_layer if stop is None else stop, {}
    batches = ids.split(max(1, POSITIONS_AT_ONCE // ids.shape[1]))
    steps = (layer for rows in batches for layer in layers(model, embed(model, rows), stop=stop, kernel=attend))
    if progress is not None:
        steps = progress(steps, total=len(batches) * stop, desc="references")
    for layer in steps:
        total[layer.index] = total.get(layer.index, 0) + layer.z.cpu().double().sum(0)
    return {index: (z / len(ids)).to(model.weights.W_E) for index, z in total.items()}


def fills_of(model, reference, fill):
    """A function from rows (a slice of the sequences) to {layer: what a cut head says there}, as the edits want it.

    "mean": [head, pos, d_head], the same for all rows; "resample": [sequence, head, pos, d_head], that of reference row s
    (modulo their number) for sequence s; "zero": nothing. Raises ArgumentError for another name.
    """
    refuse_unknown("fill", fill, FILLS)
    mean = mean_z(model, reference) if fill == "mean" else {}

    def fills(rows):
        if fill == "resample":
            return z_of(model, reference[torch.arange(rows.start, rows.stop) % len(reference)])
        return mean

    return fills


def clean_run(model, ids, patterns="free"):
    """(resid, pattern) of an untouched run: resid[l] is what layer l reads and resid[n_layer] the end; pattern[l] its
    pattern where `patterns` is "frozen", else empty. [sequence, pos, d_model] and [sequence, head, query, key]: all layers'
    patterns at once, 600 MB for a text of 1,024 tokens in GPT-2 small.
    """
    resid, pattern = [embed(model, ids)], {}
    frozen = patterns == "frozen"
    for layer in layers(model, resid[0], kernel=kernels.patterns if frozen else attend):
        resid.append(layer.resid_post)
        if frozen:
            pattern[layer.index] = layer.kept
    return resid, pattern


def edits_of(model, cuts, start, fill, pattern):
    """{layer: Edit} that makes all cuts in one batch, from layer `start` on: keep is [cut, 1, head].

    fill: {layer: what a cut head says}, empty for zero; pattern: {layer: frozen pattern}, empty for free.
    """
    found = {}
    for index in range(start, model.config.n_layer):
        keep = torch.ones(len(cuts), 1, model.config.n_head, device=model.device)
        for row, cut in enumerate(cuts):
            keep[row, 0, [head for layer, head in cut if layer == index]] = 0
        cut_here = bool((keep == 0).any())
        found[index] = Edit(pattern=pattern.get(index), keep=keep if cut_here else None,
                            fill=fill.get(index) if cut_here else None)
    return found


def batches(cuts, n_layer, size):
    """[(lowest layer, [index of cut])], at most `size` cuts each; a cut of no head at all has n_layer."""
    def lowest(index):
        return min((layer for layer, _ in cuts[index]), default=n_layer)

    found = []
    for start, group in groupby(sorted(range(len(cuts)), key=lowest), key=lowest):
        members = list(group)
        found += [(start, members[a:a + size]) for a in range(0, len(members), size)]
    return found


def next_losses(model, resid, ids):
    """One cut's losses at a time, [sequence, pos - 1]. resid: [cut, sequence, pos, d_model]; ids: [sequence, pos].

    The logits of several cuts are made in one product: of few rows alone it reads the unembedding more than it computes.
    """
    per_cut = ids.numel() * model.config.vocab_size
    for chunk in resid.split(max(1, LOGITS_AT_ONCE // per_cut)):
        yield from losses(unembed(model, chunk), ids.expand(len(chunk), *ids.shape))


@torch.no_grad()
def _steps(model, ids, cuts, work, fills, patterns, first):
    """Run the work, a list of (rows of ids, [(start, cuts)]), and yield (rows, cuts, losses) of one batch at a time."""
    for rows, parts in work:
        resid, pattern = clean_run(model, ids[rows], patterns)
        fill = fills(rows)
        for start, members in parts:
            chosen = [cuts[n] for n in members]
            last = resid[start].expand(len(members), *resid[start].shape)
            # The batch begins at z: what goes in is the clean stream itself, once for all cuts.
            for layer in layers(model, resid[start], start=start, kernel=attend,
                                edits=edits_of(model, chosen, start, fill, pattern)):
                last = layer.resid_post                                                      # [cut, sequence, pos, d_model]
            for index, values in zip(members, next_losses(model, last[:, :, first:], ids[rows, first:]), strict=True):
                yield rows, index, values.cpu().double()


def cut_losses(model, ids, cuts, *, fill="mean", reference=None, patterns="free", first=0, at_once=POSITIONS_AT_ONCE,
               progress=None):
    """Loss of each next token with each cut made, in nats: [cut, sequence, n - 1 - first], float64 on the CPU.

    ids: [sequence, pos]. cuts: sets of (layer, head), each computed as if alone; the empty cut is the clean run. first: the
    first query whose prediction counts, so that the losses are those of tokens first + 1 to n - 1. reference: ids of the
    same length, [sequence, pos], of which "mean" takes the mean and "resample" row s (modulo their number) for sequence s;
    "zero" needs none. at_once bounds the memory: cuts x sequences x positions.

    Raises ArgumentError, TextError for fewer than two tokens.
    """
    refuse_unknown("fill", fill, FILLS)
    refuse_unknown("patterns", patterns, PATTERNS)
    count, n = ids.shape
    if n - 1 - first < 1:
        raise TextError(f"{n} tokens leave none to predict after query {first}; give a longer text")
    if fill != "zero" and (reference is None or reference.shape[1] != n):
        shape = None if reference is None else list(reference.shape)
        raise ArgumentError(f"fill {fill!r} needs reference sequences of {n} tokens; got {shape}")
    ids = ids.to(model.device)
    fills = fills_of(model, reference, fill)
    sequences = min(count, max(1, at_once // n))
    parts = batches(cuts, model.config.n_layer, max(1, at_once // (n * sequences)))
    work = [(slice(a, min(a + sequences, count)), parts) for a in range(0, count, sequences)]
    steps = _steps(model, ids, cuts, work, fills, patterns, first)
    if progress is not None:
        steps = progress(steps, total=len(work) * len(cuts), desc="cuts")
    found = torch.empty(len(cuts), count, n - 1 - first, dtype=torch.float64)
    for rows, index, values in steps:
        found[index, rows] = values
    return found
