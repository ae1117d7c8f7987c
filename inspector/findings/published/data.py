"""The published numbers, as they lie beside this module, and which model they are for."""

import functools
import json
from pathlib import Path

import pandas as pd

from ...checkpoint.releases import RELEASES
from ...errors import ArgumentError

FOLDER = Path(__file__).parent
NAMES = ("gpt2", "distilgpt2", "gpt2-xl", "demo")


@functools.cache
def golden(name):
    """The arrays of one release: a dict with inputs, exact {key: bound}, sequences {key: number}, arrays {key: lists}.

    A key is "family column", as `readings.py` names its measurements; "sequences" is how many the published run averaged.
    """
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def statements(name):
    """The statements on one release with their measures, a DataFrame; text columns, empty where nothing is stated.

    Columns: release, layer, head, role, claim, value, measure, definition, source, where, ours, compare, bound, sequences,
    why.
    """
    def read(file):
        return pd.read_csv(FOLDER / file, dtype=str, keep_default_na=False)

    every = read("statements.csv")
    return every[every["release"] == name].merge(read("measures.csv"), on="measure", how="left", validate="many_to_one")


def _known():
    """{name: (where it comes from, sha256 of its weights file)} of the releases with published numbers."""
    hub = {release.split()[0].rpartition("/")[2]: (release, digest) for digest, release in reversed(RELEASES.items())}
    return {name: ("demo", golden("demo")["sha256"]) if name == "demo" else hub[name] for name in NAMES}


def release_of(model):
    """The name of the release that a model is, by the hash of its weights file.

    Raises ArgumentError for any other model, which says what would do.
    """
    for name in NAMES:
        is_release = model.release is not None and model.release.split()[0].rpartition("/")[2] == name
        if is_release or (name == "demo" and golden("demo")["sha256"] in model.sha256.values()):
            return name
    digests = ", ".join(f"{file} {digest[:12]}..." for file, digest in model.sha256.items())
    wanted = "; ".join(f"{name}: {source}, sha256 {digest}" for name, (source, digest) in _known().items())
    raise ArgumentError(f"nothing is published on {model.files.source!r} ({digests}). Known, by the hash of the weights "
                        f"file: {wanted}. Load one by its hub id, as with --model gpt2, or take --model demo")
