"""Small things several tests need."""

import torch

import inspector

from . import models


def random(*shape, seed=0, dtype=torch.float64):
    """A fixed random tensor."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def tiny(folder, *, dtype="float64", layout="safetensors", seed=0, **changes):
    """A tiny adversarial checkpoint, saved and loaded by us."""
    return inspector.load(models.save(models.tiny_model(seed, **changes), folder, layout), dtype=dtype)


def some_ids(model, n, seed=0):
    """n ids of a model's vocabulary, drawn with replacement."""
    return torch.randint(model.config.vocab_size, (n,), generator=torch.Generator().manual_seed(seed))
