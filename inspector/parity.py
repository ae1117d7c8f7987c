"""Proof against Hugging Face: our forward pass beside `GPT2LMHeadModel`, eager attention, the same files.

The only module that imports transformers' models, and the only one with hooks (on theirs). transformers loads the files
by itself; its q, k, v, z and residual stream come from hooks on its own modules, its scores from what it hands to softmax.

Two parts. *Formula*: both in float64, every quantity within 1e-10 of its largest absolute value. *Rounding*: our float32
against the reference in float64, no worse than 8 times the reference's own float32 error plus 1e-6 (of the row's root mean
square; of 1 for patterns). A fixed bound would be wrong: at the scores real GPT-2 reaches (27) the reference's own float32
patterns are 2e-6 to 7e-6 off.
"""

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import torch
from torch.overrides import TorchFunctionMode

from .checkpoint.loading import load
from .checkpoint.reading import weight_files
from .errors import SourceError
from .model.attention import split_heads
from .model.forward import embed, layers, unembed
from .model.kernels import grid

PER_HEAD = ("q", "k", "v", "scores", "pattern", "z")
PER_LAYER = ("resid_pre", "resid_mid", "resid_post")
FORMULA = 1e-10         # of the largest absolute value; 1e-13 is reachable
TIMES = 8.0             # our float32 error may be this many times the reference's own
SLACK = 1e-6
COLUMNS = ("part", "quantity", "layer", "head", "ours", "theirs", "difference", "bound", "verdict")


# -- the reference ---------------------------------------------------------------------------------------------------

def past(scores):
    """Scores with the masked cells at 0: theirs hold the dtype's minimum there, ours -inf."""
    return scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), 0)


@contextmanager
def _quiet():
    """Transformers without progress bars and warnings, as it was afterwards."""
    from transformers.utils import logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_reference(files, dtype, device="cpu"):
    """transformers' own model of the same files, eager attention, eval mode. Raises SourceError if it loads incompletely."""
    from transformers import GPT2LMHeadModel
    with tempfile.TemporaryDirectory() as folder, _quiet():
        # Links under the standard names, so that exactly these files are read, whatever else lies beside them.
        Path(folder, "config.json").symlink_to(files.config.resolve())
        if files.weights.name.endswith(".index.json"):
            kind = "model.safetensors" if ".safetensors" in files.weights.name else "pytorch_model.bin"
            Path(folder, kind + ".index.json").symlink_to(files.weights.resolve())
            for shard in weight_files(files.weights):
                Path(folder, shard.name).symlink_to(shard.resolve())
        else:
            kind = "model.safetensors" if files.weights.suffix == ".safetensors" else "pytorch_model.bin"
            Path(folder, kind).symlink_to(files.weights.resolve())
        model, found = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager", dtype=dtype,
                                                       local_files_only=True, output_loading_info=True)
    if found["missing_keys"] or found["mismatched_keys"]:
        raise SourceError(f"transformers loads these files incompletely: {found['missing_keys']} {found['mismatched_keys']}")
    return model.eval().to(device)


class _Softmax(TorchFunctionMode):
    """Sees what is handed to softmax, and what comes out."""

    seen = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.nn.functional.softmax:
            self.seen = args[0], result
        return result


@torch.no_grad()
def run_reference(model, ids, visit):
    """Run transformers' forward on ids [pos]; calls `visit(layer, parts)` after each block; returns the logits [pos, vocab].

    parts: {name: tensor} of q, k, v, scores (as `past`), pattern, z [head, pos, ...] and resid_pre,
    resid_mid, resid_post [pos, d_model].
    """
    n_head = model.config.n_head
    hooks, seen = [], {}

    softmax = _Softmax()
    with ExitStack() as watched:           # only while a block runs: each call of torch is slower under it
        for index, block in enumerate(model.transformer.h):
            def projected(module, args, output):
                for name, part in zip("qkv", output[0].chunk(3, dim=-1), strict=True):
                    seen[name] = split_heads(part, n_head)

            def before_output(module, args):
                seen["z"] = split_heads(args[0][0], n_head)
                scores, seen["pattern"] = (x[0] for x in softmax.seen)
                seen["scores"] = past(scores)

            def before_block(module, args):
                watched.enter_context(softmax)
                seen["resid_pre"] = args[0][0].clone()

            def before_mlp(module, args):
                seen["resid_mid"] = args[0][0].clone()

            def after_block(module, args, output, index=index):
                watched.close()
                seen["resid_post"] = (output if isinstance(output, torch.Tensor) else output[0])[0]
                visit(index, dict(seen))
                seen.clear()

            hooks += [block.attn.c_attn.register_forward_hook(projected),
                      block.attn.c_proj.register_forward_pre_hook(before_output),
                      block.register_forward_pre_hook(before_block),
                      block.ln_2.register_forward_pre_hook(before_mlp),
                      block.register_forward_hook(after_block)]
        try:
            return model(ids[None], use_cache=False).logits[0]
        finally:
            for hook in hooks:
                hook.remove()


# -- ours ------------------------------------------------------------------------------------------------------------

def our_parts(layer):
    """{name: tensor} of one of our layers, named as the reference's."""
    found = {name: getattr(layer, name) for name in ("q", "k", "v", "z", *PER_LAYER)}
    return found | {"scores": past(layer.kept.scores), "pattern": layer.kept.pattern}


# -- differences -----------------------------------------------------------------------------------------------------

def _row(part, quantity, layer, head, ours, theirs, at, difference, bound):
    # A NaN difference compares false and fails.
    return (part, quantity, layer, head, float(ours.flatten()[at]), float(theirs.flatten()[at]), float(difference),
            float(bound), "passed" if difference <= bound else "failed")


def formula_row(quantity, layer, head, ours, theirs, scale):
    """Largest difference against 1e-10 of the scale. NaN counts as the largest."""
    return _largest("formula", quantity, layer, head, ours, theirs, FORMULA * scale)


def _largest(part, quantity, layer, head, ours, theirs, bound):
    difference = (ours - theirs).abs().flatten()
    at = int(difference.argmax())
    return _row(part, quantity, layer, head, ours, theirs, at, difference[at], bound)


def rounding_row(quantity, layer, head, ours, theirs, rounded):
    """Our float32 against the reference in float64, beside the reference's own float32 (`rounded`)."""
    own = (rounded.double() - theirs).abs().max()
    difference = (ours.double() - theirs).abs()
    if quantity == "pattern":
        slack = torch.full_like(difference, SLACK)
    elif quantity == "scores":
        slack = torch.full_like(difference, SLACK) * (1 + theirs.abs().max())
    else:
        slack = SLACK * theirs.square().mean(-1, keepdim=True).sqrt().expand_as(difference)
    at = int((difference - slack).argmax())
    return _row("rounding", quantity, layer, head, ours, theirs, at, difference.flatten()[at],
                TIMES * own + slack.flatten()[at])


def _compare(index, theirs, make):
    """Rows of one layer: per head where there are heads. `make(quantity, head, pick)` gives one row."""
    rows = []
    for quantity in PER_HEAD:
        rows += [make(quantity, head, lambda x, head=head: x[head]) for head in range(len(theirs[quantity]))]
    rows += [make(quantity, None, lambda x: x) for quantity in PER_LAYER]
    return rows


def parity(model, ids, *, float64=True, kernel=grid, progress=None):
    """The table of differences between our forward pass and transformers' on one row of ids [pos].

    Columns: part (formula, rounding), quantity, layer, head (empty where not per head), ours and theirs at the cell that
    differs most, difference, bound, verdict. `float64=False` leaves the formula part out (half the memory). Both sides
    read the model's files anew, in the dtypes the proof needs, whatever dtype `model` has. `kernel` is for tests.

    Configs with `reorder_and_upcast_attn` have no float64 in transformers; both parts are then float32 against float32,
    within 1e-6 of (1 + the largest score). Raises TextError as `embed`.
    """
    upcast = model.config.reorder_and_upcast_attn
    halves = None if model.dtype in ("float32", "float64") else model.dtype
    bar = progress(total=2 * model.config.n_layer, desc="proof") if progress is not None else None

    def load_ours(dtype):
        return model if model.dtype == dtype else load_like(model, dtype)

    def advance():
        if bar is not None:
            bar.update(1)

    stored = {}

    def store(index, parts):
        stored[index] = {name: part.clone() for name, part in parts.items()}
        advance()

    ids = torch.as_tensor(ids, device=model.device)
    ours32 = load_ours("float32")
    run32 = layers(ours32, embed(ours32, ids), kernel=kernel)      # refuses a text that is too long before anything else
    half = load_reference(model.files, torch.float32, model.device)
    half_logits = run_reference(half, ids, store)
    rows = []
    if upcast:
        rows = _upcast_rows(run32, ours32, stored, half_logits, advance)
        if bar is not None:
            bar.close()
        return _table(rows, model, ids, "float32 only", halves)
    del half
    wide = load_reference(model.files, torch.float64, model.device)
    ours64 = load_ours("float64") if float64 else None
    run64 = layers(ours64, embed(ours64, ids), kernel=kernel) if float64 else None
    last = {}

    def visit(index, theirs):
        rounded, narrow = stored.pop(index), our_parts(next(run32))
        last[32] = narrow["resid_post"]
        if float64:
            ours = our_parts(next(run64))
            last[64] = ours["resid_post"]
            rows.extend(_compare(index, theirs, lambda name, head, pick: formula_row(
                name, index, head, pick(ours[name]), pick(theirs[name]), theirs[name].abs().max())))
        rows.extend(_compare(index, theirs, lambda name, head, pick: rounding_row(
            name, index, head, pick(narrow[name]), pick(theirs[name]), pick(rounded[name]))))
        advance()

    logits = run_reference(wide, ids, visit)
    if float64:
        rows.append(formula_row("logits", None, None, unembed(ours64, last[64]), logits, logits.abs().max()))
    rows.append(rounding_row("logits", None, None, unembed(ours32, last[32]), logits, half_logits))
    if bar is not None:
        bar.close()
    return _table(rows, model, ids, "passed" if float64 else "rounding only", halves)


def _upcast_rows(run32, ours32, stored, half_logits, advance):
    """Float32 against float32, for the one switch that transformers cannot run in float64."""
    rows, resid = [], None
    for layer in run32:
        theirs, ours = stored.pop(layer.index), our_parts(layer)
        reach = 1 + theirs["scores"].abs().max()

        def make(name, head, pick, ours=ours, theirs=theirs, layer=layer, reach=reach):
            scale = 1.0 if name == "pattern" else theirs[name].abs().max().clamp(min=1.0)
            return _largest("rounding", name, layer.index, head, pick(ours[name]), pick(theirs[name]), SLACK * reach * scale)

        rows.extend(_compare(layer.index, theirs, make))
        resid = layer.resid_post
        advance()
    bound = SLACK * reach * half_logits.abs().max().clamp(min=1.0)
    return [*rows, _largest("rounding", "logits", None, None, unembed(ours32, resid), half_logits, bound)]


def load_like(model, dtype):
    """The model's own files again, in another dtype."""
    source = model.files.source if model.files.source in ("demo", "planted") else model.files.weights
    return load(source, dtype=dtype, device=model.device)


def _table(rows, model, ids, verdict, halves):
    """The table with its verdict. `halves`: a half-precision dtype the model runs in, which nothing here compared."""
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"layer": "Int64", "head": "Int64"})
    passed = bool((table["verdict"] == "passed").all())
    used = table["difference"] / table["bound"].where(table["bound"] > 0)
    parts = []
    for part, values in used.groupby(table["part"]):
        worst = values.max()
        parts.append(f"{part}: largest difference {worst:.2g} of its bound" if worst == worst else f"{part}: no difference")
    failed = table[table["verdict"] == "failed"]
    if len(failed):
        parts.append(f"{len(failed)} of {len(table)} comparisons failed, in: " + ", ".join(failed["quantity"].unique()))
    if halves:
        verdict = "passed in float32 and float64" if verdict == "passed" else verdict
        parts.append(f"the files were proved, not the {halves} numbers made of them")
    table.attrs = {"passed": passed, "verdict": verdict if passed else "failed",
                   "summary": f"{len(table)} comparisons with transformers (eager) on {len(ids)} tokens; "
                              + "; ".join(parts)}
    return table
