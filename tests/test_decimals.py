"""Numbers to decimals in bulk: the very same text as numpy, Python and pandas make one by one."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from inspector import decimals, record

HARD = [0.0, -0.0, 1, -1, 0.1, 0.5, 1e-4, 9.9999e-5, 99999.0, 99999.5, 100000.0, 1e16, 1e22, 1e-45, 1e-300, 0.123456789,
        0.1234567891, 1 / 3, 12345.6789, 99999.9999, 123456789.0, 1.0000000001, 0.00012345678912, 9.99999999, 9.9999999949,
        -0.25, 10, 100, 1000, np.nan]
SMALL = np.array([0, -0.0, 1e-45, -1e-45, 1e-38, 1e-13, 9.9e-14, 1, 1e9, 3.4e38, np.nan, np.inf, -np.inf, 0.998046875],
                 np.float32)


def one_by_one(values):
    """The way that `shortest` replaces: numpy's text of each float32, read as a double."""
    return np.asarray(values, np.float32).astype("U32").astype(np.float64)


def float32s():
    """Arrays of float32 that ask for every number of digits: all powers of two, any bits, fractions, rounded decimals."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2 ** 32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return {"hard": SMALL, "powers of two": (2.0 ** np.arange(-149, 128)).astype(np.float32),
            "any bits": bits[np.isfinite(bits)], "weights": np.exp(random.normal(-6, 6, 200_000)).astype(np.float32),
            "signed": random.normal(0, 3, 100_000).astype(np.float32),
            "fractions": (random.integers(0, 2 ** 24, 100_000) / 2.0 ** random.integers(0, 40, 100_000)).astype(np.float32),
            "rounded": np.array([round(x, n) for n in range(1, 8) for x in random.random(5_000)], np.float32)}


@pytest.mark.parametrize("kind", float32s())
def test_the_shortest_decimals_are_numpy_s_own(kind):
    values = float32s()[kind]
    found, expected = decimals.shortest(values), one_by_one(values)
    np.testing.assert_array_equal(found.view(np.int64)[~np.isnan(found)], expected.view(np.int64)[~np.isnan(expected)])
    assert (np.isnan(found) == np.isnan(values)).all()


def test_a_shape_stays_and_the_input_is_unchanged():
    values = np.array([[0.1, 0.2], [0.3, 1e-30]], np.float32)
    kept = values.copy()
    assert decimals.shortest(values).tolist() == [[0.1, 0.2], [0.3, 1e-30]]
    assert (values == kept).all()


def doubles():
    random = np.random.default_rng(1)
    whole = random.integers(-10 ** 9, 10 ** 9, 50_000)
    return {"hard": np.array(HARD), "full": random.random(50_000), "decimal": whole / 10.0 ** random.integers(0, 14, 50_000),
            "short": decimals.shortest(random.normal(0, 30, 50_000)), "one": np.array([0.5]), "rows": np.arange(250_001) / 8}


@pytest.mark.parametrize("kind", doubles())
def test_lines_are_what_pandas_writes(kind):
    """Whole numbers, negative and great ones, and floats of any length, over more than one block of rows."""
    values = doubles()[kind]
    table = pd.DataFrame({"layer": np.arange(len(values)) // 7, "x": values, "n": (np.arange(len(values)) - 3) * 10 ** 12})
    expected, found = io.StringIO(), io.StringIO()
    table.to_csv(expected, index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    record.to_csv(table, found)
    assert found.getvalue() == expected.getvalue()


def test_a_file_and_a_buffer_get_the_same(tmp_path):
    table = pd.DataFrame({'a "b"': [1, 2], "x": [0.1, np.inf]})
    buffer = io.StringIO()
    record.to_csv(table, buffer)
    record.to_csv(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == buffer.getvalue().encode() == b'"a ""b""","x"\n1,0.1\n2,""\n'
    record.to_csv(table.head(0), tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_bytes() == b'"a ""b""","x"\n'
