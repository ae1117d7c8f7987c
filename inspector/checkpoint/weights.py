"""The weights of a model under the names of the literature (Elhage et al. 2021); axis names as in `model`."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """The weights of one layer. Matrices stand as x @ W; a head's slice is a view, never a copy."""

    ln_1_weight: torch.Tensor     # [d_model]
    ln_1_bias: torch.Tensor       # [d_model]
    W_QKV: torch.Tensor           # [d_model, 3 * n_head * d_head], columns Q | K | V
    b_QKV: torch.Tensor           # [3 * n_head * d_head]
    W_O: torch.Tensor             # [head, d_head, d_model]
    b_O: torch.Tensor             # [d_model]
    ln_2_weight: torch.Tensor     # [d_model]
    ln_2_bias: torch.Tensor       # [d_model]
    W_in: torch.Tensor            # [d_model, d_mlp]
    b_in: torch.Tensor            # [d_mlp]
    W_out: torch.Tensor           # [d_mlp, d_model]
    b_out: torch.Tensor           # [d_model]

    def _part(self, index):
        n_head, d_head, _ = self.W_O.shape
        columns = slice(index * n_head * d_head, (index + 1) * n_head * d_head)
        weight = self.W_QKV[:, columns].unflatten(1, (n_head, d_head)).transpose(0, 1)       # [head, d_model, d_head]
        return weight, self.b_QKV[columns].unflatten(0, (n_head, d_head))                    # [head, d_head]

    @property
    def W_Q(self):
        """[head, d_model, d_head]."""
        return self._part(0)[0]

    @property
    def W_K(self):
        """[head, d_model, d_head]."""
        return self._part(1)[0]

    @property
    def W_V(self):
        """[head, d_model, d_head]."""
        return self._part(2)[0]

    @property
    def b_Q(self):
        """[head, d_head]."""
        return self._part(0)[1]

    @property
    def b_K(self):
        """[head, d_head]."""
        return self._part(1)[1]

    @property
    def b_V(self):
        """[head, d_head]."""
        return self._part(2)[1]


@dataclass(frozen=True, eq=False, repr=False)
class Weights:
    """All weights of a model."""

    W_E: torch.Tensor             # [vocab, d_model]
    W_pos: torch.Tensor           # [n_positions, d_model]
    blocks: tuple                 # one Block a layer
    ln_f_weight: torch.Tensor     # [d_model]
    ln_f_bias: torch.Tensor       # [d_model]
    W_U: torch.Tensor             # [d_model, vocab]; W_E transposed where the config ties them
