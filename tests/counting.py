"""What a computation costs, counted: bytes alive at the peak, the largest tensor made, and every operator called.

torch reports no memory of the CPU. A `TorchDispatchMode` sees every operator below autograd and what it returns; a tensor's
bytes count from then until its storage is freed.
"""

import weakref

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Cost(TorchDispatchMode):
    """Use as a context. What was there before it began does not count; views count once, as their storage."""

    def __init__(self):
        super().__init__()
        self.alive = self.peak = self.largest = 0
        self.calls = []              # (operator, shapes of its tensor arguments, shapes of what it returned)
        self._known = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        inputs = [x for x in tree_leaves((args, kwargs or {})) if hasattr(x, "untyped_storage")]
        for tensor in inputs:
            self._see(tensor, 0)
        found = operator(*args, **(kwargs or {}))
        outputs = [x for x in tree_leaves(found) if hasattr(x, "untyped_storage")]
        for tensor in outputs:
            self._see(tensor, tensor.untyped_storage().nbytes())
        self.calls.append((operator.overloadpacket.__name__, [tuple(x.shape) for x in inputs],
                           [tuple(x.shape) for x in outputs]))
        return found

    def _see(self, tensor, size):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known[key] = weakref.finalize(storage, self._forget, key, size)
        self.alive += size
        self.peak, self.largest = max(self.peak, self.alive), max(self.largest, size)

    def _forget(self, key, size):
        self._known.pop(key, None)
        self.alive -= size

    def names(self):
        """The operators called, each once."""
        return {name for name, _, _ in self.calls}
