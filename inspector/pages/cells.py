"""Grids of numbers as small PNG files: one grey level a cell, masked cells transparent.

A weight w in 0..1 is stored as round(255 * sqrt(w)): 8 linear bits would turn every weight under 0.2 % into 0, and that
is most of a sharp pattern. Read back, (level / 255)^2 is within sqrt(w) / 255 + 4e-6 of w, so within 0.004. The exact
weights stand in the tables beside the pages. The page colours the levels (see `palette`).
"""

import base64
import struct
import zlib

import numpy as np
import torch

LARGEST = 256       # cells a side; longer texts are shown in blocks, or a screen would drop rows without a word
STRIP = 40          # cells a side of the small grids on the overview


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels, dpi=None):
    """PNG bytes (2nd edition). pixels: uint8 [rows, columns, channels]; 2: grey and alpha, 3: colour, 4: colour and alpha.

    dpi: pixels an inch, for what is to be printed; such pictures are large, their rows alike: each is stored as what
    differs from the row above (filter 2), and little time is spent on squeezing that.
    """
    rows, columns, channels = pixels.shape
    flat = pixels.reshape(rows, -1)
    lines = np.empty((rows, 1 + flat.shape[1]), np.uint8)               # each line begins with its filter type
    lines[:, 0] = 0
    if dpi:
        lines[1:, 0] = 2
        lines[0, 1:] = flat[0]
        np.subtract(flat[1:], flat[:-1], out=lines[1:, 1:])
    else:
        lines[:, 1:] = flat
    header = struct.pack(">IIBBBBB", columns, rows, 8, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)      # 8 bits a channel
    size = _chunk(b"pHYs", struct.pack(">IIB", *[round(dpi / 0.0254)] * 2, 1)) if dpi else b""
    return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + size
            + _chunk(b"IDAT", zlib.compress(lines, 1 if dpi else 6)) + _chunk(b"IEND", b""))


def encode(values):
    """A grid as PNG bytes. values: [rows, columns] in 0..1; NaN is a masked cell and becomes transparent."""
    array = values.detach().to("cpu", torch.float64).numpy()
    levels = np.sqrt(np.clip(np.nan_to_num(array), 0, 1)) * 255
    return png(np.stack([levels.round(), np.where(np.isnan(array), 0, 255)], axis=-1).astype(np.uint8))


def mask(pattern):
    """The pattern with NaN in the cells above the diagonal, which no query may see. [..., query, key]."""
    n = pattern.shape[-1]
    future = torch.ones(n, n, dtype=torch.bool, device=pattern.device).triu(1)
    return pattern.masked_fill(future, float("nan"))


def scaled(weighted):
    """(values in 0..1, the largest number): grids without an upper limit, as value-weighted ones, on their own scale.

    weighted: [head, query, key], 0 or above. Where all are 0 the largest is 0, and so are the values.
    """
    largest = float(weighted.max())
    return weighted / largest if largest else weighted, largest


def block_size(n, largest=LARGEST):
    """How many tokens one drawn cell stands for, a side: 1 up to `largest` tokens."""
    return -(-n // largest)


def pool(values, block):
    """The largest value of each block x block cells; NaN only where all of them are. [..., rows, columns]."""
    if block == 1:
        return values
    rows, columns = values.shape[-2:]
    padded = torch.nn.functional.pad(values.nan_to_num(float("-inf"), neginf=float("-inf")),
                                     (0, -columns % block, 0, -rows % block), value=float("-inf"))
    tiles = padded.unflatten(-1, (-1, block)).unflatten(-3, (-1, block))
    largest = tiles.amax(dim=(-1, -3))                                  # [..., rows / block, columns / block]
    return largest.masked_fill(largest == float("-inf"), float("nan"))


def strip(pattern, side=STRIP, gap=2):
    """All heads of a layer in one small grid, left to right, with empty columns between. pattern: [head, query, key]."""
    small = pool(mask(pattern), block_size(pattern.shape[-1], side))    # [head, query, key]
    wide = torch.nn.functional.pad(small, (0, gap * bool(small.shape[-1] > 8) or 1), value=float("nan"))
    return wide.transpose(0, 1).flatten(1)[:, :-1]                      # [query, head * (key + gap)]


def data_uri(data):
    """PNG bytes as an address that needs no file."""
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")
