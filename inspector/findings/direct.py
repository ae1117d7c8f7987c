"""What the unembedding reads directly: the residual stream of one position as a sum, and what each part adds to a logit.

The final residual r is the sum of what was written to it, and with the centring and the scale of the final LayerNorm
frozen at r the logits are linear in it (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"):

    logit_t = sum_parts u_t . norm(part) + u_t . ln_f.bias          norm(x) = gain * (x - mean(x)) / sqrt(var(r) + epsilon)

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


def final_scale(model, resid_final):
    """sqrt(variance + epsilon) of the final LayerNorm at each position: [*batch, pos], float64."""
    variance = double(resid_final).var(-1, correction=0)
    return (variance + model.config.layer_norm_epsilon).sqrt()


def frozen_norm(model, x, resid):
    """A part of the residual through the final LayerNorm, frozen at the whole, without its bias: [*batch, d_model], float64.

    x: [*batch, d_model]; resid: [*batch, d_model] or [d_model], the full residual whose standard deviation divides x. Linear
    in x: the parts of a residual add up to the whole, normalised.
    """
    x = double(x)
    return (x - x.mean(-1, keepdim=True)) / final_scale(model, resid)[..., None] * double(model.weights.ln_f_weight)


def direct_unembedding(model):
    """What one write to the residual stream does to the logits: [d_model, vocab], float64 on the CPU.

    x @ this = (x - mean of x) * ln_f gain @ W_U minus its mean over the vocabulary; the LayerNorm's scale stays outside.
    """
    weights = model.weights
    U = double(weights.ln_f_weight)[:, None] * double(weights.W_U)           # [d_model, vocab]
    U -= U.mean(1, keepdim=True)
    U -= U.mean(0, keepdim=True)
    return U


def direct_logits(z, W_O, columns):
    """What each head adds to given tokens' logits, above its mean over the vocabulary, before the final scale.

    z: [*batch, head, pos, d_head], W_O: [head, d_head, d_model], columns: [*batch, d_model, token] of
    `direct_unembedding`. Returns [*batch, head, pos, token]. Divided by `final_scale` these are logits.
    """
    return z @ (W_O @ columns[..., None, :, :])                                              # [head, pos, token]


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
    bias = double(model.weights.ln_f_bias)
    return torch.cat([frozen_norm(model, made.written, made.resid), bias[None]]) @ columns.T
