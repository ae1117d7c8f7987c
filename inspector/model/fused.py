"""A third way through a layer's attention, for half precision on the CPU: torch's fused operator, and log-sum-exps.

The operator never writes the pattern down. It returns z and each row's lse_i = ln sum_j exp(s_ij), from which follow

    any cell       A_ij = exp(s_ij - lse_i), with s_ij = q_i . k_j * scale
    the entropy    H_i = lse_i - sum_j A_ij s_ij, and sum_j A_ij s_ij = scale * q_i . (sum_j A_ij k_j)

so that mixing the keys along with the values gives the entropy: both go through in one call, as one value twice as wide.
Inside, products and sums are float32, where plain torch rounds every score to the dtype; but what comes out, the mixed keys
too, is rounded. Where q and keys are so large that this could move an entropy by more than ROUNDING, the whole layer is done
by the plain kernel that stands in for it.

The operator is private to torch (`aten::_scaled_dot_product_flash_attention_for_cpu`), so it is used only where it wins
10 % or more: in half precision it takes half of the plain scan's time, in float32 as long (measured once by hand). Where it
is missing, for other dtypes, devices, edits and statistics, `kernels.scan` does the work.
"""

import torch

from ..errors import ArgumentError
from .kernels import UNTOUCHED

ROUNDING = 0.5        # nats, the worst that rounding the mixed keys could do to a row: scores of about 250 in bfloat16
OPERATOR = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


def usable(model):
    """Whether `fused` is there for this model, and faster than `scan`."""
    return OPERATOR is not None and model.dtype in ("bfloat16", "float16") and torch.device(model.device).type == "cpu"


def fused(reduce, plain):
    """A kernel that keeps what `reduce(q, k, scale, lse, expected)` returns, a dict of tensors [*batch, head, query, ...].

    lse and expected, [*batch, head, query] in float32: of each row, ln of the sum of exp(score), and the mean score under
    the row's own weights. plain: the kernel for layers whose numbers are too large for that. Takes no edits: ArgumentError.
    """
    def kernel(q, k, v, scale, edit=UNTOUCHED):
        if edit != UNTOUCHED:
            raise ArgumentError("the fused kernel takes no edits; use scan")
        batch, shape = q.shape[:-3], q.shape[-3:]
        q4, k4 = q.reshape(-1, *shape), k.reshape(-1, *shape)                                # [batch, head, pos, d_head]
        if v is None:
            mixed, lse = OPERATOR(q4, k4, k4, 0.0, True, scale=scale)
            z, keys = None, mixed
        else:
            def wide(x):      # queries, keys and values must be of one width; zeros add nothing to a score
                return torch.nn.functional.pad(x, (0, x.shape[-1]))
            mixed, lse = OPERATOR(wide(q4), wide(k4), torch.cat([v.reshape(-1, *shape), k4], dim=-1), 0.0, True, scale=scale)
            z, keys = mixed[..., :shape[-1]].reshape(v.shape), mixed[..., shape[-1]:]
        terms = q4.to(lse.dtype) * keys                                                      # [batch, head, query, d_head]
        expected = terms.sum(-1) * scale                                                     # [batch, head, query]
        most = terms.abs_().sum(-1).max() * scale * torch.finfo(q.dtype).eps / 2
        if not most <= ROUNDING:             # NaN too
            return plain(q, k, v, scale)
        return z, reduce(q, k, scale, lse.view(*batch, *shape[:2]), expected.view(*batch, *shape[:2]))

    return kernel
