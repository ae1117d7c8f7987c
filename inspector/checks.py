"""`check`: ours beside a truth, as a table of ours, theirs, difference, bound, verdict."""

import torch

from .checkpoint import tokens
from .errors import ArgumentError
from .record import run_record

TRUTHS = ("huggingface", "planted", "published")
OWN_PROMPTS = {"planted": "the planted model is", "published": "a published release is"}
DEFAULT_TOKENS = 32


def default_ids(model):
    """Ids to prove a model on where the user gives none: up to 32, drawn over the whole vocabulary from seed 0."""
    n = min(DEFAULT_TOKENS, model.config.n_positions)
    return torch.randint(model.config.vocab_size, (n,), generator=torch.Generator().manual_seed(0)).tolist()


def check(model, text=None, *, ids=None, bos=False, against="huggingface", float64=True, progress=None):
    """A table that proves or refutes the model's numbers on one text (or on 32 drawn ids).

    against "huggingface": every quantity of every layer and head beside transformers' eager forward pass (`parity`).
    against "planted": the scores of the planted model beside what was planted, with its counterfactuals; takes no text.
    against "published": what others published on this very release (by the hash of its weights), beside ours
    (`findings.published`, which adds the columns statement, source, where, note); takes no text.

    Columns: part, quantity, layer, head, ours, theirs, difference, bound, verdict ("passed" or "failed"; more words where
    published numbers can only be shown beside).
    `.attrs`: "passed" (bool), "verdict" ("passed", "failed", or what was left out: "rounding only", "float32 only", "bands
    only"), "summary" (one sentence), "run".

    Raises ArgumentError, TextError; SourceError where the reference cannot be loaded.
    """
    if against not in TRUTHS:
        raise ArgumentError(f"against is {against!r}; expected one of {', '.join(TRUTHS)}")
    if against != "huggingface" and (text is not None or ids is not None or bos or not float64):
        raise ArgumentError(f"{OWN_PROMPTS[against]} checked on its own prompts, in its own dtype: give no text, no ids, "
                            "no BOS and no float64 switch")
    if against == "planted":
        if model.files.source != "planted":
            raise ArgumentError(f"against 'planted' checks the planted model; this one is {model.files.source!r} "
                                "(use --model planted)")
        from .findings.planted_truth import planted_truth
        table = planted_truth(model, progress=progress)
        row = None
    elif against == "published":
        from .findings.published.table import published
        table, row = published(model, progress=progress), None
    else:
        from .parity import parity
        if bos and text is None and ids is None:
            raise ArgumentError("BOS is put before a text or ids: give one")
        row = default_ids(model) if text is None and ids is None else tokens.encode(model, text, ids=ids, bos=bos)
        table = parity(model, row, float64=float64, progress=progress)
    table.attrs["run"] = run_record(model, "check", text=text, ids=row, bos=bos, against=against, float64=float64)
    return table
