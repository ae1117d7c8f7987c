"""`report`: a model and a text become a folder of pages, figures and tables that opens anywhere."""

import itertools
import math
import time
from pathlib import Path

from .. import checks, record
from ..checkpoint import tokens
from ..findings.head_names import head_names, parse_heads
from ..findings.in_text import from_trace
from ..findings.prompts import longest_period
from ..findings.study import study as induction_study
from ..findings.table import heads
from ..findings.values import VALUE_TOKENS, additive_shares, value_table, value_weighted
from ..model.tracing import ATTENTION_TOKENS, attention_table, trace
from . import layer_figures, presets, score_figures, tables, words
from .explorer.bundle import bundle, text_scores
from .explorer.page import explorer_page
from .html import model_facts, page_name
from .index import index_page, layer_strips
from .induction import section
from .layer import layer_page, layer_tables
from .study import write_study


def report(model, text=None, *, ids=None, out="reports/report", bos=False, check=True, study=False, compare=None, moves=None,
           period=None, seed=0, progress=None, note=None):
    """Write the report of one text and return its folder.

    It holds index.html, a page for each layer, explorer.html, figures/ (PNG and SVG), tables/ (CSV) and run.json; every page
    opens from disk. `check=False` leaves the proof out, and the page says 'not checked'. `study=True` adds the induction
    study as study.html (seconds on a small model, minutes on GPT-2 small). `compare`: a second text, which the explorer puts
    beside the first; `moves`: the heads whose q, k and v it holds, as for `explore`. `period` and `seed`: the repeated
    random tokens that the heads are scored on, as for `heads` (period: 50, or as much as a small model can hold).
    `progress`: any wrapper like tqdm. `note`: a function that is told in a line what the proof cost; no file says it, for
    the same command gives the same bytes.

    Raises TextError as `trace`, ArgumentError as `heads`, OutputError where the folder cannot be written.
    """
    began = time.perf_counter()
    record.refuse_foreign(out)
    traced = trace(model, text, ids=ids, bos=bos, progress=progress)
    found = traced.ids.tolist()
    beside = [] if compare is None else [trace(model, compare, bos=bos, progress=progress)]
    chosen = None if moves is None else parse_heads(model, moves, least=0)
    period = longest_period(model, bos) if period is None else period
    repeats = heads(model, period=period, bos=bos, seed=seed, progress=progress)
    on_text = heads(model, ids=found)
    before_proof = time.perf_counter()
    proof = checks.check(model, ids=found, progress=progress) if check else None
    proof_cost = time.perf_counter() - before_proof
    how = {"period": period, "seed": seed}
    studied = induction_study(model, ids=found, bos=traced.bos, progress=progress, **how) if study else None
    run = record.run_record(model, "report", text=text, ids=found, bos=bos, check=check, study=study, compare=compare,
                            moves=None if chosen is None else head_names(chosen), kernel="grid", **how)
    run["proof"] = proof.attrs["verdict"] if check else "not checked"
    weights = [layer_weights(block) for block in model.weights.blocks]
    token_table = tables.token_table(traced.ids, traced.labels, traced.texts, traced.logits,
                                     lambda token: tokens.labels(model, [token])[0])
    shared = facts(model, traced, text, token_table, study)
    matching = [(int(row.layer), int(row.head)) for row in repeats.itertuples() if "induction" in row.verdict]
    in_text = from_trace(model, traced, matching, seed=seed)
    made = made_once(traced, weights)
    with record.folder(out) as folder:
        write_tables(folder / "tables", traced, token_table, repeats, on_text, in_text, proof, weights, made, progress)
        write_figures(folder / "figures", traced, repeats, on_text, weights, shared, progress)
        write_pages(folder, traced, token_table, repeats, on_text, in_text, proof, weights, made, shared, text, progress)
        explored = [on_text, *map(text_scores, beside)]
        record.write_text(folder / "explorer.html", explorer_page(
            bundle([traced, *beside], explored, repeats=repeats, moves=chosen, name=shared["model"],
                   table="tables/attention.csv" if shared["full_attention"] else None), shared))
        if studied is not None:
            write_study(folder, studied, shared)
        record.write_text(folder / "run.json", record.to_json(run) + "\n")
    if note is not None:
        whole = f"{time.perf_counter() - began:.1f} s"
        note(f"proof against Hugging Face: {proof_cost:.1f} s of {whole}" if check else f"{whole}, without a proof")
    return Path(out).expanduser()


def facts(model, traced, text, token_table, study=False):
    """What all pages of a report share, as plain values. study: whether there is a page of the study."""
    return {**model_facts(model), "pages": True, "study": study, "explorer": True, "n_tokens": len(traced.ids),
            "bos": traced.bos, "mean_loss": token_table["loss"].mean(), "blind_loss": math.log(model.config.vocab_size),
            "shown_text": words.title(traced.texts, traced.labels) if text is None else words.headline(text),
            "full_attention": len(traced.ids) <= ATTENTION_TOKENS, "most_tokens": ATTENTION_TOKENS,
            "full_values": len(traced.ids) <= VALUE_TOKENS}


def layer_weights(block):
    """{name: tensor} of one layer, in the order of the computation."""
    names = ("ln_1_weight", "ln_1_bias", "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O", "ln_2_weight", "ln_2_bias",
             "W_in", "b_in", "W_out", "b_out")
    return {name: getattr(block, name) for name in names}


def weighted_layer(traced, weights, layer):
    """The value-weighted pattern of one layer, [head, query, key]: made where it is needed, for all would be too much."""
    return value_weighted(traced.pattern[layer], traced.v[layer], weights[layer]["W_O"])


def layer_grids(traced, weights, layer):
    """(pattern, value-weighted pattern, additive shares) of one layer, each [head, query, key] on the CPU."""
    parts = traced.pattern[layer].cpu(), traced.v[layer].cpu(), weights[layer]["W_O"].cpu()
    return parts[0], value_weighted(*parts), additive_shares(*parts)


def made_once(traced, weights):
    """The tables of each layer, which stand in files and on pages alike: see `layer.layer_tables`."""
    return [layer_tables(layer, *layer_grids(traced, weights, layer), traced.labels, each)
            for layer, each in enumerate(weights)]


def write_tables(folder, traced, token_table, repeats, on_text, in_text, proof, weights, made, progress=None):
    """All tables as CSV. made: see `made_once`."""
    import pandas as pd
    folder.mkdir()
    named = {"tokens": token_table, "heads_repeats": repeats, "heads_text": on_text,
             "induction": in_text.places, "induction_heads": in_text.by_head,
             **{name: pd.concat([layer[name] for layer in made]) for name in ("links", "links_values", "weights")}}
    if proof is not None:
        named["check"] = proof
    if len(traced.labels) <= VALUE_TOKENS:
        values = value_table(traced.pattern, traced.v, [each["W_O"] for each in weights])
        named |= {"attention": values.drop(columns=["value_weighted", "share"]), "value_weighted": values}
    elif len(traced.labels) <= ATTENTION_TOKENS:
        named["attention"] = attention_table(traced.pattern)
    for name in progress(named, total=len(named), desc="tables") if progress is not None else named:
        record.to_csv(named[name], folder / f"{name}.csv")


def write_figures(folder, traced, repeats, on_text, weights, shared, progress=None):
    """Two figures of each layer, its pattern as it is and value-weighted, and those of the scores, as PNG and SVG."""
    folder.mkdir()
    drawn = itertools.chain(
        score_figures.files(score_map_figures(repeats, on_text, shared), [score.title for score in words.SCORES],
                            shared["n_layer"], shared["n_head"]),
        layer_figures.files(layer_grid_figures(traced, weights, shared), traced.labels, shared["n_head"]))
    many = 4 + 4 * shared["n_layer"]
    for stem, kind, data in progress(drawn, total=many, desc="figures") if progress is not None else drawn:
        (folder / f"{stem}.{kind}").write_bytes(data)


def score_map_figures(repeats, on_text, shared):
    """(file stem, arguments of `score_figures.marks`) of the figures of the two tables of heads."""
    for name, table, what in (("repeats", repeats, "repeated random tokens"), ("text", on_text, "this text")):
        yield f"scores_{name}", ([tables.grid_of(table, score.column) for score in words.SCORES],
                                 f"{shared['model']}, scores on {what}", protocol_words(table.attrs["run"]["arguments"]))


def layer_grid_figures(traced, weights, shared):
    """(file stem, arguments of `layer_figures.marks`) of the two figures of each layer."""
    for layer, pattern in enumerate(traced.pattern):
        stem, title = page_name(layer, shared["n_layer"]).removesuffix(".html"), f"{shared['model']}, layer {layer}"
        yield stem, (pattern, title, layer)
        yield f"{stem}_values", (weighted_layer(traced, weights, layer), title, layer, True)


def protocol_words(run):
    """16 sequences of 50 ids twice, seed 0; one text has nothing to say. run: the arguments of `heads`."""
    if not run["repeats"]:
        return ""
    return f"{run['n_sequences']} sequences of {run['period']} ids, {run['repeats']} times, seed {run['seed']}"


def write_pages(folder, traced, token_table, repeats, on_text, in_text, proof, weights, made, shared, text, progress=None):
    """The overview and a page for each layer. made: see `made_once`."""
    question = presets.question_of(text)
    answer = question and (question, tables.question_table(traced.pattern, traced.texts, question))
    layers = range(shared["n_layer"])
    strips = layer_strips((traced.pattern[layer], weighted_layer(traced, weights, layer)) for layer in layers)
    record.write_text(folder / "index.html", index_page(
        token_table, strips, repeats, on_text, section(in_text, traced.pattern, traced.labels), proof, shared,
        index_files(shared, proof is not None), answer))
    plain = [table.copy(deep=False) for table in (repeats, on_text)]
    for table in plain:
        table.attrs = {}                    # pandas copies the run record deeply for every row that is picked
    for layer in progress(layers, total=len(layers), desc="pages") if progress is not None else layers:
        own = [table[table["layer"] == layer] for table in plain]
        record.write_text(folder / page_name(layer, len(layers)), layer_page(
            layer, *layer_grids(traced, weights, layer), traced.labels, *own, weights[layer], made[layer], shared,
            layer_files(layer, shared)))


def index_files(shared, checked):
    """[(path, what it is)] of the files that belong to the whole report."""
    found = [("tables/tokens.csv", "tokens, losses, next tokens"),
             ("tables/heads_repeats.csv", "scores on repeats, with spread, control and verdict"),
             ("tables/heads_text.csv", "scores on this text"), *link_files(),
             ("tables/weights.csv", "the weights of each layer in numbers")]
    found += [("tables/induction.csv", "induction in this text, place by place"),
              ("tables/induction_heads.csv", "the same, head by head")]
    found += [("tables/check.csv", "the proof, place by place")] if checked else []
    found += attention_file(shared)
    found += [(f"figures/scores_{name}.{kind}", f"the maps, {kind.upper()}") for name in ("repeats", "text")
              for kind in ("png", "svg")]
    return [*found, ("run.json", "command, versions, model, seeds")]


def layer_files(layer, shared):
    """[(path, what it is)] of the files that belong to one layer."""
    stem = page_name(layer, shared["n_layer"]).removesuffix(".html")
    return [(f"figures/{stem}.png", "this layer, PNG"), (f"figures/{stem}.svg", "this layer, SVG"),
            (f"figures/{stem}_values.png", "value-weighted, PNG"), (f"figures/{stem}_values.svg", "value-weighted, SVG"),
            *attention_file(shared), *link_files(), ("tables/weights.csv", "the weights in numbers")]


def link_files():
    """The tables of links."""
    return [("tables/links.csv", "the strongest links of each head"),
            ("tables/links_values.csv", "the strongest when value-weighted")]


def attention_file(shared):
    """attention.csv and value_weighted.csv where they were written."""
    return [("tables/attention.csv", "every weight, exact")] * shared["full_attention"] + [
        ("tables/value_weighted.csv", "every weight, value-weighted, with additive shares")] * shared["full_values"]
