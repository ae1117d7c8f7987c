"""A whole report beside plain matplotlib, which draws the patterns of the same layers and nothing else; pages beside peers'.

BertViz and CircuitsVis make one page of all heads' patterns: no scores, links, weights, lengths, losses or files.
"""

import random
import tempfile
from pathlib import Path

import inspector
from inspector.checkpoint import tokens
from inspector.findings.in_text import from_trace
from inspector.pages import report, tables

from .measuring import Measured, in_turn, missing

TOKENS = 64


def plain(patterns, folder, labels=None, kinds=("png",)):
    """A figure a layer, an axes a head, `imshow`, matplotlib's own ticks or a label where ours has one; dpi 150."""
    from matplotlib import pyplot
    pyplot.switch_backend("agg")
    for layer, pattern in enumerate(patterns):
        columns = next(c for c in (4, 3, 2, 1) if len(pattern) % c == 0)
        figure, axes = pyplot.subplots(len(pattern) // columns, columns, figsize=(12, 10), squeeze=False)
        for head, own in enumerate(axes.flat):
            own.imshow(pattern[head], vmin=0, vmax=1)
            own.set_title(f"{layer}.{head}")
            if labels:
                step = -(-len(labels) // 26)
                own.set_xticks(range(0, len(labels), step), labels[::step], rotation=90, fontsize=6)
                own.set_yticks(range(0, len(labels), step), labels[::step], fontsize=6)
        for kind in kinds:
            figure.savefig(Path(folder, f"{layer}.{kind}"), dpi=150)
        pyplot.close(figure)


def written(model, traced, repeats, on_text, folder):
    """Everything that a report writes, without the numbers' making and the proof."""
    folder, weights, made, table, facts, in_text = prepared(model, traced, folder)
    report.write_tables(folder / "tables", traced, table, repeats, on_text, in_text, None, weights, made)
    report.write_figures(folder / "figures", traced, repeats, on_text, weights, facts)
    report.write_pages(folder, traced, table, repeats, on_text, in_text, None, weights, made, facts, None)


def prepared(model, traced, folder):
    """(a new folder, weights, their tables and the links, table of tokens, facts, induction) for the report's writers."""
    weights = [report.layer_weights(block) for block in model.weights.blocks]
    table = tables.token_table(traced.ids, traced.labels, traced.texts, traced.logits,
                               lambda token: tokens.labels(model, [token])[0])
    return (Path(tempfile.mkdtemp(dir=folder)), weights, report.made_once(traced, weights), table,
            report.facts(model, traced, None, table), from_trace(model, traced, []))


def our_pages(model, traced, repeats, on_text, folder):
    """The pages alone: an overview and one a layer. Returns the bytes of each by name."""
    folder, weights, made, table, facts, in_text = prepared(model, traced, folder)
    report.write_pages(folder, traced, table, repeats, on_text, in_text, None, weights, made, facts, None)
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.html"))}


def their_pages(pattern, labels):
    """{tool: a function () -> its page as text, or why it is absent}. pattern: [layer, head, query, key], all heads."""
    attention = tuple(pattern[:, None])                                                      # [1, head, query, key] each
    flat = pattern.flatten(0, 1)                                                             # [layer * head, query, key]

    def bertviz(view):
        import bertviz
        return getattr(bertviz, view)(attention, labels, html_action="return").data

    def circuitsvis(element):
        # What its `attention_heads` and `attention_patterns` call; they make a second page for the network besides.
        from circuitsvis.utils.render import render_local
        return render_local(element, attention=flat, tokens=labels)

    ways = {"BertViz head_view": ("bertviz", lambda: bertviz("head_view")),
            "BertViz model_view": ("bertviz", lambda: bertviz("model_view")),
            "CircuitsVis attention_heads, local": ("circuitsvis", lambda: circuitsvis("AttentionHeads")),
            "CircuitsVis attention_patterns, local": ("circuitsvis", lambda: circuitsvis("AttentionPatterns"))}
    return {name: missing(package) or make for name, (package, make) in ways.items()}


def measure_pages(model, traced, repeats, on_text, folder, repetitions):
    """Yield a row a tool: pages of attention already computed. The note: size, and what stands on them."""
    theirs = their_pages(traced.pattern, traced.labels)
    made = {}

    def ours():
        made["inspector"] = b"".join(our_pages(model, traced, repeats, on_text, folder).values())

    ways = {"inspector": ours}
    for name, make in theirs.items():
        if callable(make):
            ways[name] = lambda name=name, make=make: made.update({name: make().encode()})
    found = in_turn(ways, repetitions)
    holds = {"inspector": f"{1 + len(traced.pattern)} pages: each head's grid as weights and value-weighted, scores, links, "
                          "tokens, the model's weights",
             "BertViz head_view": "patterns as lines; its scripts come from the network",
             "BertViz model_view": "patterns as lines; its scripts come from the network"}
    n_layer, n_head, n, _ = traced.pattern.shape
    task = f"pages of {n} tokens, {n_layer} x {n_head} heads, attention given"
    for name in ("inspector", *theirs):
        if name in found:
            size = f"{len(made[name]) / 1e6:.1f} MB"
            yield Measured(task, name, found[name], note=f"{size}: {holds.get(name, 'patterns as grids')}")
        else:
            yield Measured(task, name, note=theirs[name])


def measure(setting):
    """Yield the rows. All turns in one process, after the imports; at most 3, they are long."""
    model = inspector.load(setting.source)
    drawn = random.Random(0)
    ids = [drawn.randrange(model.config.vocab_size) for _ in range(min(TOKENS, model.config.n_positions))]
    traced = inspector.trace(model, ids=ids)
    repeats, on_text = inspector.heads(model), inspector.heads(model, ids=ids)
    patterns = traced.pattern.numpy()
    costs = []
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder:
        out = Path(folder, "report")
        ways = {
            "inspector: all that is written (figures as PNG and SVG, tables, pages)":
                lambda: written(model, traced, repeats, on_text, folder),
            "inspector: the whole report from the ids, without the proof":
                lambda: inspector.report(model, ids=ids, out=out, check=False),
            "inspector: the whole report with its proof":
                lambda: inspector.report(model, ids=ids, out=out, note=costs.append),
            "matplotlib: imshow a head, its own ticks, PNG": lambda: plain(patterns, folder),
            "matplotlib: the same with our labels": lambda: plain(patterns, folder, traced.labels),
            "matplotlib: with our labels, PNG and SVG": lambda: plain(patterns, folder, traced.labels, ("png", "svg")),
        }
        plain(patterns[:1], folder)
        written(model, traced, repeats, on_text, folder)
        found = in_turn(ways, min(3, setting.repetitions), warm_up=0)
        pages = list(measure_pages(model, traced, repeats, on_text, folder, setting.repetitions))
    task = f"report of {len(ids)} tokens, {len(patterns)} x {len(patterns[0])} heads"
    for way, seconds in found.items():
        yield Measured(task, way, seconds, note=costs[-1] if way.endswith("with its proof") else "")
    yield from pages
