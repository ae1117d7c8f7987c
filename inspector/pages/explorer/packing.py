"""Arrays of numbers as text that a page can carry: bytes of the same rank side by side, deflated, in base64.

Half precision (float16) keeps 11 significant bits: a number is stored within 2^-11 of its own size, once it is brought
near 1 by a power of two that stands beside it.
"""

import base64
import zlib

import numpy as np

ROUNDING = 2.0 ** -11       # the largest relative error of a stored half
LOWEST = -65504.0           # the smallest finite half


def packed(array):
    """An array as text. The lowest bytes of all numbers come first, then the next: alike bytes deflate well.

    Each rank gets codes of its own (a flush ends a block), and only runs are looked for: such numbers hold no other repeats.
    """
    array = np.ascontiguousarray(array)
    planes = np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T)
    squeeze = zlib.compressobj(memLevel=9, strategy=zlib.Z_RLE)
    parts = [squeeze.compress(plane) + squeeze.flush(zlib.Z_PARTIAL_FLUSH) for plane in planes]
    return base64.b64encode(b"".join([*parts, squeeze.flush()])).decode("ascii")


def unit_of(array):
    """The power of two by which an array is divided before it is stored, so that its largest number lies in 512..1,024."""
    largest = float(np.abs(array).max(initial=0))
    return 2.0 ** max(int(np.frexp(largest)[1]) - 10, -1022) if largest else 1.0


def halves(array):
    """(float16 array, unit): array = halves * unit within ROUNDING of each number above 2^-23 of the largest."""
    unit = unit_of(array)
    return (array.astype(np.float64) / unit).astype(np.float16), unit
