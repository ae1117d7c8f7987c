"""`load`: a source becomes a frozen Model, whole and verified, or an error that says what is wrong."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch

from ..errors import ArgumentError
from . import config as configs
from .reading import read_weights
from .releases import RELEASES
from .source import Files, find, weight_files
from .tokens import Tokenizer, read_tokenizer
from .weights import Weights

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, repr=False, eq=False)
class Model:
    """A GPT-2 ready to run. dtype and device belong to the weights; no other function takes them."""

    config: configs.Config
    weights: Weights
    tokenizer: Tokenizer | None
    files: Files
    raw_config: dict               # config.json as it stands
    dtype: str
    device: str

    def __repr__(self):
        c = self.config
        return (f"Model({self.files.source!r}, {c.n_layer} layers x {c.n_head} heads, d_model {c.d_model}, "
                f"{self.dtype} on {self.device})")

    @cached_property
    def sha256(self):
        """{weights file name: sha256}, read from disk on first use."""
        return {path.name: _digest(path) for path in weight_files(self.files.weights)}

    @cached_property
    def release(self):
        """Which known release the weights file is, by its hash; None for any other file, and for shards."""
        digests = list(self.sha256.values())
        return RELEASES.get(digests[0]) if len(digests) == 1 else None


def _digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(source, *, dtype="float32", device="cpu"):
    """A Model from `demo`, `planted`, a hub id, a checkpoint folder, or a weights file beside its config.json.

    dtype: float32 (default), float64 (for proofs), bfloat16 or float16 (fast, coarse). Safetensors already in that
    dtype are memory-mapped, not copied. Only a hub id ever looks at the network, and only for what huggingface_hub's
    cache does not hold; HF_HUB_OFFLINE=1 forbids it.

    Raises SourceError (not found, unreadable), ConfigError (not GPT-2's arithmetic), WeightsError (incomplete,
    misshapen, not finite), ArgumentError (dtype, device).
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ArgumentError(f"dtype is {str(dtype)[:80]!r}; expected one of {', '.join(DTYPES)}")
    try:
        usable = not torch.empty(0, dtype=DTYPES[name], device=device).is_meta
        reason = "it holds no numbers"
    except Exception as error:            # each device that is absent has an error of its own
        usable, reason = False, str(error).splitlines()[0][:200]
    if not usable:
        raise ArgumentError(f"device {str(device)[:80]!r} cannot be used here: {reason}; expected cpu, or cuda or mps where "
                            "there is one")
    files = find(source)
    config, raw = configs.read(files.config)
    weights = read_weights(files, config, dtype=DTYPES[name], device=device)
    return Model(config, weights, read_tokenizer(files), files, raw, name, str(device))
