"""Every head's scores without grids, beside tools that make the patterns; then memory, also of texts of 16,384 tokens."""

from dataclasses import replace

import torch

import inspector
from inspector.checkpoint import config as configs
from inspector.checkpoint.source import find
from inspector.findings.protocols import protocol
from inspector.findings.scores import SCORES, pattern_scores, row_sums
from inspector.findings.scoring import cells_of, score_sequences
from inspector.model.forward import embed, layers
from inspector.model.kernels import scan

from .measuring import Measured, fresh, in_turn, missing, peak_above, resident
from .models import at_peak, hugging_face, lens_bridge, repeated_ids

STRIPE = protocol("stripe")
LONG = (1024, 4096, 16384)


def scores(model, ids):
    """All scores with entropy, as `heads` makes them: {score: [sequence, layer, head]}."""
    return score_sequences(model, ids, ids, STRIPE, ids.shape[1] // 2)


def sums_alone(model, ids):
    """The same without the entropy."""
    cells = cells_of(ids, STRIPE, ids.shape[1] // 2)
    kernel = scan(lambda pattern, first_query: {"sums": row_sums(pattern, cells(first_query, pattern.shape[-2]))})
    return [layer.kept["sums"] for layer in layers(model, embed(model, ids), kernel=kernel, finish=False)]


@torch.no_grad()
def their_patterns(model, ids):
    """Hugging Face's patterns of all layers; logits are not asked for."""
    return model.transformer(ids, output_attentions=True, use_cache=False).attentions


@torch.no_grad()
def lens_patterns(model, ids):
    """TransformerLens' patterns of all layers."""
    _, cache = model.run_with_cache(ids, names_filter=lambda name: name.endswith("hook_pattern"))
    return [cache["pattern", layer] for layer in range(model.cfg.n_layers)]


def scores_of(patterns, ids):
    """The same scores read from patterns."""
    return [pattern_scores(pattern, ids) for pattern in patterns]


def peak(tool, source, tokens, dtype="float32"):
    """Bytes above the imports while a tool loads the model and does the task, in this process."""
    if tool == "transformer_lens":
        pass
    if tool != "inspector":
        import transformers  # noqa: F401
    ids = repeated_ids(tokens, configs.read(find(source).config)[0].vocab_size)
    before = resident()

    def work():
        if tool == "inspector":
            model = inspector.load(source, dtype=dtype)
            if tokens > model.config.n_positions:
                model = stretched(model, tokens)
            return scores(model, ids)
        if tool == "transformers":
            return their_patterns(hugging_face(source), ids)
        return lens_patterns(lens_bridge(source), ids)

    return peak_above(before, work)[0]


def stretched(model, n):
    """The model with random position embeddings for n tokens: what longer texts cost does not depend on the values."""
    W_pos = torch.randn(n, model.config.d_model, generator=torch.Generator().manual_seed(0)) * 0.02
    return replace(model, config=replace(model.config, n_positions=n),
                   weights=replace(model.weights, W_pos=W_pos.to(model.weights.W_E)))


def times(setting):
    """Yield the rows of one text of 1,024 tokens, or as many as the model has positions for."""
    ours, half = inspector.load(setting.source), inspector.load(setting.source, dtype="bfloat16")
    reference, lens = hugging_face(setting.source), lens_bridge(setting.source)
    tokens = min(1024, ours.config.n_positions)
    ids = repeated_ids(tokens, ours.config.vocab_size)
    ways = {"inspector": lambda: scores(ours, ids),
            "inspector, without entropy": lambda: sums_alone(ours, ids),
            "inspector, bfloat16": lambda: scores(half, ids),
            "Hugging Face eager, its patterns alone": lambda: their_patterns(reference, ids),
            "Hugging Face eager, then the same scores": lambda: scores_of(their_patterns(reference, ids), ids)}
    if lens is not None:
        ways["TransformerLens, its patterns alone"] = lambda: lens_patterns(lens, ids)
        ways["TransformerLens, then the same scores"] = lambda: scores_of(lens_patterns(lens, ids), ids)
    found = in_turn(ways, setting.repetitions)
    here = scores(ours, ids)
    truth = torch.stack([torch.stack([row[name] for row in scores_of(their_patterns(reference, ids), ids)], 1)
                         for name in SCORES])
    same = max((truth[n] - here[name]).abs().max() for n, name in enumerate(SCORES))
    coarse = max((scores(half, ids)[name] - here[name]).abs().max() for name in SCORES)
    limit, rate = at_peak(ours.config, tokens, "qk")
    limit16, rate16 = at_peak(ours.config, tokens, "qk", torch.bfloat16)
    median = {way: Measured("", way, seconds).median for way, seconds in found.items()}
    notes = {"inspector": f"products alone {limit:.2f} s at {rate / 1e9:.0f} GFLOP/s: {limit / median['inspector']:.0%} of "
                          f"the limit; scores within {same:.0e} of Hugging Face's",
             "inspector, bfloat16": f"products alone {limit16:.2f} s at {rate16 / 1e9:.0f} GFLOP/s; largest difference of a "
                                    f"score from float32's {coarse:.0e}",
             "inspector, without entropy": f"{limit / median['inspector, without entropy']:.0%} of the limit"}
    task = f"all heads' scores, {tokens} tokens"
    for way, seconds in found.items():
        yield Measured(task, way, seconds, note=notes.get(way, ""))
    if lens is None:
        yield Measured(task, "TransformerLens", note=missing("transformer_lens"))


def memory(setting):
    """Yield the rows of fresh processes."""
    ours = inspector.load(setting.source)
    tokens, parameters = min(1024, ours.config.n_positions), inspector.info(ours)["parameters"]["in all"]
    size = f"the weights are {parameters * 4 / 1e6:,.0f} MB in float32"
    task = f"memory of all heads' scores, {tokens} tokens"
    def alone(tool, n=tokens, **how):
        return fresh("scan", "peak", tool=tool, source=setting.source, tokens=n, **how)

    yield Measured(task, "inspector", peak=alone("inspector"), note=size)
    yield Measured(task, "inspector, bfloat16", peak=alone("inspector", dtype="bfloat16"),
                   note="the weights take half of that, and while they are read the file's own pages count too")
    for tool, name in (("transformers", "Hugging Face eager"), ("transformer_lens", "TransformerLens")):
        why = missing(tool)
        yield Measured(task, name, note=why or "", peak=None if why else alone(tool))
    for n in LONG:
        yield Measured("memory of all heads' scores, longer texts", f"inspector, {n:,} tokens", peak=alone("inspector", n))


def measure(setting):
    """Yield the rows."""
    yield from times(setting)
    yield from memory(setting)
