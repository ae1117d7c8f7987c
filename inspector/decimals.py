"""Numbers to decimals in bulk, digit for digit as `repr` and numpy write them one by one, several times faster.

Python and numpy make the text of one number in about a microsecond; a report writes a million. Here numpy's integer
arithmetic makes the digits of whole columns; what it cannot prove right goes the slow way, number by number.
"""

import numpy as np

TENS = 10.0 ** np.arange(23)    # the powers of ten that float64 holds exactly
LEAST = 6                       # a float32 of fewer digits is found among its 6-digit neighbours too
WHOLE, PARTS = 5, 13            # digits before and behind the point of what `texts` writes in bulk: together < 2^63
CHUNK = 100_000                 # rows of a table at a time


def rounded(size, digits, exponent):
    """(values, whether near a tie): float64 numbers > 0 rounded to so many digits. exponent: floor of their log10."""
    places = digits - 1 - exponent
    up, down = TENS[np.maximum(places, 0)], TENS[np.maximum(-places, 0)]
    scaled = size * up / down
    whole = np.rint(scaled)
    return whole / up * down, np.abs(np.abs(scaled - whole) - 0.5) < 1e-4     # both exact steps: correctly rounded


def shortest(values):
    """float32 -> float64 of the same shortest decimals: 0.1, not 0.10000000149011612. Any shape.

    The fewest digits that read back as the very float32, of those the nearest: what numpy prints (Steele and White 1990).
    Powers of two (their neighbours lie unevenly), the very small and large, and near ties go by way of the text.
    """
    values = np.asarray(values, np.float32)
    flat = values.ravel()
    with np.errstate(invalid="ignore"):         # a signalling NaN
        found = flat.astype(np.float64)
    size = np.abs(found)
    plain = (size >= 1e-13) & (size < 1e9) & (flat.view(np.int32) & 0x7FFFFF != 0)
    slow = [np.flatnonzero(~plain & (size != 0))]
    left = np.flatnonzero(plain)
    for digits in range(LEAST, 10):                                            # 9 always suffice
        near, tie = rounded(size[left], digits, np.floor(np.log10(size[left])).astype(np.int64))
        same = near.astype(np.float32) == size[left]
        found[left[same]] = np.copysign(near[same], found[left[same]])
        slow.append(left[same & tie])
        left = left[~same]
    rest = np.concatenate([*slow, left])
    found[rest] = flat[rest].astype("U32").astype(np.float64)
    return found.reshape(values.shape)


def texts(values):
    """float64 [n] -> bytes [n, width]: each number as `repr` writes it, "" quoted for NaN, with zero bytes between.

    In bulk go those of at most 9 digits between 0.0001 and 99,999, and 0; the others one by one.
    """
    size = np.abs(values)
    easy = (size >= 1e-4) & (size < 10 ** WHOLE)
    exponent = np.floor(np.log10(size, where=easy, out=np.zeros(len(values)))).astype(np.int64)
    places = 8 - exponent                                                      # 4 to 12
    whole = np.rint(np.where(easy, size, 0) * TENS[places])
    easy &= whole / TENS[places] == size
    easy |= (size == 0) & ~np.signbit(values)
    number = np.where(easy, whole, 0).astype(np.int64) * (10 ** (PARTS - places))
    digits = np.empty((WHOLE + PARTS, len(values)), np.uint8)
    for at in reversed(range(len(digits))):
        rest = number // 10                                                    # divmod takes three times as long
        digits[at], number = number - 10 * rest, rest
    # Without the zeros in front of a number and behind it, of which one stays before and one behind the point.
    shown = digits + ord("0")
    for outwards in (range(WHOLE - 1), range(WHOLE + PARTS - 1, WHOLE, -1)):
        known = np.zeros(len(values), bool)
        for at in outwards:
            known |= digits[at] > 0
            shown[at] *= known
    sign, point = np.where(values < 0, ord("-"), 0), np.full(len(values), ord("."))
    made = np.concatenate([[sign], shown[:WHOLE], [point], shown[WHOLE:]], dtype=np.uint8, casting="unsafe").T
    hard = np.flatnonzero(~easy)
    if len(hard):
        words = np.array([b'""' if x != x else repr(x).encode() for x in values[hard].tolist()])
        wide = words.view(np.uint8).reshape(len(hard), -1)
        made = np.pad(made, ((0, 0), (0, max(0, wide.shape[1] - made.shape[1]))))
        made[hard] = 0
        made[hard, :wide.shape[1]] = wide
    return made


def counts(values):
    """int64 [n] -> bytes [n, width]: each number as `str` writes it, with zero bytes behind."""
    low, high = int(values.min()), int(values.max())
    known = low >= 0 and high < 2 * len(values) + 1000                         # then each text is made once
    words = np.array([str(n).encode() for n in (range(high + 1) if known else values.tolist())])
    words = words[values] if known else words
    return words.view(np.uint8).reshape(len(values), -1)


def csv_lines(columns):
    """The lines of a table without its head, as bytes. columns: int64 or float64 arrays of one length."""
    lines = []
    for start in range(0, len(columns[0]), CHUNK):
        cells = []
        for values in columns:
            part = values[start:start + CHUNK]
            comma = np.full((len(part), 1), ord(","), np.uint8)
            cells += [counts(part) if part.dtype.kind == "i" else texts(part), comma]
        cells[-1][:] = ord("\n")
        lines.append(np.concatenate(cells, axis=1).tobytes().translate(None, b"\0"))
    return b"".join(lines)
