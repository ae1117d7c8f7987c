"""q, k, v and every pattern of a text, kept: beside Hugging Face's patterns, from 16 tokens to 1,024; and memory."""

import torch

import inspector
from inspector.checkpoint import config as configs
from inspector.checkpoint.source import find
from inspector.model.forward import embed, layers
from inspector.model.kernels import patterns

from .measuring import Measured, fresh, in_turn, missing, peak_above, resident
from .models import at_peak, hugging_face, lens_bridge, repeated_ids
from .scan import lens_patterns, their_patterns

KEPT = "q,k,v,pattern"


def layer_by_layer(model, ids):
    """The same, one layer at a time, each dropped: the largest weight of every layer, so that something is used."""
    return [float(layer.kept.amax()) for layer in layers(model, embed(model, ids), kernel=patterns, finish=False)]


@torch.no_grad()
def everything(model, ids):
    """What Hugging Face can return: patterns, hidden states, logits."""
    return model(ids, output_attentions=True, output_hidden_states=True, use_cache=False)


def peak(way, source, tokens):
    """(bytes above the imports, bytes of what is returned), in this process."""
    if way == "Hugging Face":
        import transformers  # noqa: F401
    ids = repeated_ids(tokens, configs.read(find(source).config)[0].vocab_size)
    before = resident()

    def work():
        if way == "Hugging Face":
            return their_patterns(hugging_face(source), ids)
        model = inspector.load(source)
        if way == "layer by layer":
            return layer_by_layer(model, ids[0])
        return inspector.trace(model, ids=ids[0].tolist(), keep=KEPT if way == "kept" else None)

    peak_, found = peak_above(before, work)
    tensors = found if isinstance(found, tuple | list) else [x for x in vars(found).values() if isinstance(x, torch.Tensor)]
    return peak_, sum(getattr(x, "nbytes", 0) for x in tensors)


def times(setting):
    """Yield the rows of each length."""
    ours, reference, lens = inspector.load(setting.source), hugging_face(setting.source), lens_bridge(setting.source)
    longest = min(1024, ours.config.n_positions)
    for tokens in sorted({16, 64, 256, longest} & set(range(longest + 1))):
        row = repeated_ids(tokens, ours.config.vocab_size)
        ids = row[0].tolist()
        ways = {"inspector": lambda ids=ids: inspector.trace(ours, ids=ids, keep=KEPT),
                "Hugging Face eager, its patterns alone": lambda row=row: their_patterns(reference, row),
                "inspector, everything (scores, z, streams, logits)": lambda ids=ids: inspector.trace(ours, ids=ids),
                "Hugging Face eager, patterns, hidden states, logits": lambda row=row: everything(reference, row)}
        if lens is not None:
            ways["TransformerLens, its patterns alone"] = lambda row=row: lens_patterns(lens, row)
        found = in_turn(ways, setting.repetitions * (1 if tokens > 256 else 3))
        theirs = torch.cat(their_patterns(reference, row))
        same = (theirs - inspector.trace(ours, ids=ids, keep="pattern").pattern).abs().max()
        limit, _ = at_peak(ours.config, tokens, "qk")
        share = limit / Measured("", "", found["inspector"]).median
        task = f"q, k, v and all patterns, {tokens} tokens"
        for way, seconds in found.items():
            note = f"patterns within {same:.0e} of Hugging Face's; {share:.0%} of the products' limit"
            yield Measured(task, way, seconds, note=note if way == "inspector" else "")
        if lens is None:
            yield Measured(task, "TransformerLens", note=missing("transformer_lens"))


def memory(setting):
    """Yield the rows of the longest text."""
    longest = min(1024, configs.read(find(setting.source).config)[0].n_positions)
    task = f"memory of q, k, v and all patterns, {longest} tokens"
    for way, name in (("kept", "inspector"), ("layer by layer", "inspector, layer by layer"),
                      ("everything", "inspector, everything"), ("Hugging Face", "Hugging Face eager, its patterns alone")):
        highest, returned = fresh("grids", "peak", way=way, source=setting.source, tokens=longest)
        yield Measured(task, name, peak=highest, note=f"of it returned {returned / 1e6:,.0f} MB")


def measure(setting):
    """Yield the rows."""
    yield from times(setting)
    yield from memory(setting)
