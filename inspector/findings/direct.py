"""What the unembedding reads directly: the residual stream of one position as a sum, and what each part adds to a logit.

The final residual r is the sum of what was written to it, and with the centring and the scale of the final LayerNorm
frozen at r the logits are linear in it (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"):

    logit_t = sum_parts part . d_t + ln_f.bias . u_t        d_t = centred(gain * u_t) / sqrt(var(r) + epsilon)

u_t is column t of W_U. What a part does by way of later layers is not in it. Everything behind the forward pass is in
float64 on the CPU.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ..model.attention import head_outputs
from ..model.forward import embed, layers


def double(tensor):
    """A tensor in float64 on the CPU."""
    return tensor.cpu().double()


def unembedding(model, ids=None):
    """Columns of W_U as rows, float64: [id, d_model]. ids None: the whole vocabulary."""
    W_U = model.weights.W_U
    return double(W_U if ids is None else W_U[:, torch.as_tensor(ids, device=W_U.device)]).T


def mean_unembedding(model):
    """The mean of W_U's columns over the vocabulary, float64: [d_model]. What it reads is the mean logit."""
    return model.weights.W_U.cpu().mean(-1, dtype=torch.float64)


def readout(model, columns, resid):
    """Directions of the residual stream that columns of W_U read through a frozen final LayerNorm: [*batch, d_model].

    columns: [*batch, d_model], float64, of `unembedding`, or differences of them. resid: [*batch, d_model] or [d_model], the
    full residual at whose mean and variance LayerNorm is frozen. The contribution of a part x is x . direction.
    """
    gained = columns * double(model.weights.ln_f_weight)
    variance = double(resid).var(-1, correction=0, keepdim=True)
    return (gained - gained.mean(-1, keepdim=True)) / (variance + model.config.layer_norm_epsilon).sqrt()


def contributions(model, written, resid, ids):
    """What a part adds to a token's logit above the mean of the vocabulary: [*batch], float64; ln_f.bias is none of it.

    written: [*batch, d_model], what the part writes; resid: [*batch, d_model], the full final residual there; ids: [*batch].
    """
    ids = torch.as_tensor(ids)
    columns = unembedding(model, ids.flatten()).view(*ids.shape, -1) - mean_unembedding(model)
    return (double(written) * readout(model, columns, resid)).sum(-1)


@dataclass(frozen=True, repr=False)
class Stream:
    """Who wrote the final residual stream of one position; tensors on the CPU, `written` in float64."""

    names: list             # [part], (layer, head, part), with None where there is no layer or head
    written: Any            # [part, d_model]; sums to the last residual. ln_f.bias is written behind it, so not here
    residuals: Any          # [n_layer + 1, d_model], resid_pre of layer 0 and resid_post of each, in the model's dtype
    weight: Any             # [layer, head, key], the row of the pattern
    v: Any                  # [layer, head, key, d_head]

    @property
    def resid(self):
        """[d_model]: the final residual, at which LayerNorm is frozen."""
        return self.residuals[-1]


def stream(model, ids, progress=None):
    """The Stream of the last of the ids: one forward pass. ids: a list of whole numbers. Raises TextError as `embed`."""
    row = torch.tensor(ids, device=model.device)
    resid = embed(model, row)
    weights = model.weights
    names = [(None, None, "token embedding"), (None, None, "position embedding")]
    written = [double(weights.W_E[row[-1]])[None], double(weights.W_pos[len(row) - 1])[None]]
    residuals, weight, v = [resid[-1].cpu()], [], []
    steps = layers(model, resid)
    for layer in progress(steps, total=model.config.n_layer, desc="layers") if progress is not None else steps:
        block = weights.blocks[layer.index]
        n_head = model.config.n_head
        names += [(layer.index, head, "head") for head in range(n_head)]
        names += [(layer.index, None, "b_O"), (layer.index, None, "MLP")]
        heads = head_outputs(double(layer.z[:, -1:]), double(block.W_O))[:, 0]              # [head, d_model]
        mlp = double(layer.resid_post[-1]) - double(layer.resid_mid[-1])                    # [d_model]
        written += [heads, double(block.b_O)[None], mlp[None]]
        residuals.append(layer.resid_post[-1].cpu())
        weight.append(layer.kept.pattern[:, -1].cpu())
        v.append(layer.v.cpu())
    return Stream(names, torch.cat(written), torch.stack(residuals), torch.stack(weight), torch.stack(v))


def part_logits(model, made, columns):
    """What each part adds to each logit, float64: [part + 1, id]; the last row is ln_f.bias. Columns sum to the logits.

    made: the Stream; columns: [id, d_model] of `unembedding`, which for the whole vocabulary of GPT-2 small takes 300 MB.
    """
    through_norm = made.written @ readout(model, columns, made.resid).T                      # [part, id]
    behind_norm = double(model.weights.ln_f_bias) @ columns.T                                # [id]
    return torch.cat([through_norm, behind_norm[None]])                                      # [part + 1, id]
