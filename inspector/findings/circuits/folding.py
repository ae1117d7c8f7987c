"""LayerNorm folded into the matrices beside it, so that their products mean what the model computes.

LayerNorm is (x - mean) / std * gain + bias. All but the division by std is linear and folds away:

    what reads     W_Q, W_K, W_V behind ln_1, W_U behind ln_f:   gain * W, then each column minus its mean over d_model
    what writes    W_E, W_pos, W_O:                              each row minus its mean over d_model
    the logits     W_U:                                          each row minus its mean over the vocabulary

A mean over d_model never gets past the next LayerNorm, and a constant on all logits never past the softmax: patterns and
differences of logits are the model's own. As TransformerLens does (`fold_ln`, `center_writing_weights`, `center_unembed`).
The gains' biases go into b_Q, b_K, b_V and a bias on the logits; biases are not kept here.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ...model.forward import embed, layers

TOKENS_AT_ONCE = 1024     # a block's MLP of 3,072 numbers a token: buffers that the allocator keeps and the caches hold


@dataclass(frozen=True, eq=False, repr=False)
class FoldedWeights:
    """The matrices outside the MLPs, float64 on the CPU. `fold` says whether LayerNorm is in them."""

    W_E: Any          # [vocab, d_model]
    W_pos: Any        # [n_positions, d_model]
    W_Q: Any          # [layer, head, d_model, d_head]
    W_K: Any          # [layer, head, d_model, d_head]
    W_V: Any          # [layer, head, d_model, d_head]
    W_O: Any          # [layer, head, d_head, d_model]
    W_U: Any          # [d_model, vocab]
    fold: bool


def centred(x, axis):
    """x minus its mean along an axis."""
    return x - x.mean(axis, keepdim=True)


def _wide(tensor):
    return tensor.detach().to("cpu", torch.float64)


def folded(model, fold=True):
    """The model's FoldedWeights; with `fold=False` the same matrices as they stand in the checkpoint.

    Float64 needs twice the memory of these matrices in a float32 model: 0.8 GB for GPT-2 small.
    """
    weights = model.weights

    def centre(W, axis):                                      # in place: W is fresh here, and may be the vocabulary's
        return W.sub_(W.mean(axis, keepdim=True))

    def reading(W, gain):
        return centre(_wide(gain)[:, None] * W.cpu(), -2) if fold else _wide(W)

    def writing(W):
        return centred(_wide(W), -1) if fold else _wide(W)

    def stack(name):
        return torch.stack([reading(getattr(block, name), block.ln_1_weight) for block in weights.blocks])

    W_U = reading(weights.W_U, weights.ln_f_weight)
    return FoldedWeights(W_E=writing(weights.W_E), W_pos=writing(weights.W_pos), W_Q=stack("W_Q"), W_K=stack("W_K"),
                         W_V=stack("W_V"), W_O=torch.stack([writing(block.W_O) for block in weights.blocks]),
                         W_U=centre(W_U, -1) if fold else W_U, fold=fold)


def effective_embedding(model, fold=True):
    """What layer 1 reads of each token: the residual stream after layer 0 of that token alone, [vocab, d_model], float64.

    Minus its mean over the vocabulary: what all tokens share (the embedding of position 0, biases) tells none from another.
    Alone, a token can only attend to itself: a previous-token head of layer 0 finds the token itself there.
    """
    config = model.config
    rows = torch.empty(config.vocab_size, config.d_model, dtype=torch.float64)
    for ids in torch.arange(config.vocab_size).split(TOKENS_AT_ONCE):
        (layer,) = layers(model, embed(model, ids[:, None]), stop=1)
        alone = _wide(layer.resid_post[:, 0])                                                # [token, d_model]
        rows[ids] = centred(alone, -1) if fold else alone
    return rows.sub_(rows.mean(0))                                                           # [vocab, d_model]
