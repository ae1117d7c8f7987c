"""Cutting every head alone: one by one from scratch, one by one from the shared prefix, and in batches."""

import torch

import inspector
from inspector.findings.cutting import attend, cut_losses
from inspector.findings.prompts import draw, longest_period
from inspector.model.forward import embed, layers, losses, unembed
from inspector.model.kernels import Edit

from .measuring import Measured, in_turn


def from_scratch(model, ids, cuts, first):
    """The loss with each cut, one fresh forward pass for each: what `cut_losses` saves. [cut, sequence, token]."""
    found = []
    for cut in cuts:
        edits = {}
        for layer, head in cut:
            keep = torch.ones(model.config.n_head)
            keep[head] = 0
            edits[layer] = Edit(keep=keep)
        *_, last = layers(model, embed(model, ids), kernel=attend, edits=edits)
        found.append(losses(unembed(model, last.resid_post[:, first:]), ids[:, first:]).double())
    return torch.stack(found)


def measure(setting):
    """Yield the rows. The results agree, and by how much stands in the note."""
    model = inspector.load(setting.source)
    period = longest_period(model)
    ids = draw(model, period=period, n_sequences=1).ids
    cuts = [((layer, head),) for layer in range(model.config.n_layer) for head in range(model.config.n_head)]
    how = {"fill": "zero", "first": period}
    same = (from_scratch(model, ids, cuts[::5], period) - cut_losses(model, ids, cuts[::5], **how)).abs().max()
    bound = 2 * model.config.n_layer / (model.config.n_layer + 1)
    found = in_turn({
        "from the clean prefix, in batches": lambda: cut_losses(model, ids, cuts, **how),
        "from the clean prefix, one at a time": lambda: cut_losses(model, ids, cuts, at_once=ids.numel(), **how),
        "the same in batches, later patterns frozen": lambda: cut_losses(model, ids, cuts, patterns="frozen", **how),
        "a fresh forward pass for each head": lambda: from_scratch(model, ids, cuts, period),
    }, setting.repetitions, warm_up=0)
    task = f"the loss without each of {len(cuts)} heads, {ids.shape[1]} tokens"
    notes = {"from the clean prefix, in batches": f"equal to {same:.0e} nats",
             "a fresh forward pass for each head": f"the shared prefix alone can give {bound:.2f} times"}
    for way, seconds in found.items():
        yield Measured(task, way, seconds, note=notes.get(way, ""))
