"""`index_page`: the tokens and what the model expected, the heads found, the maps of all scores, the proof."""

import math

from . import cells, tables, words
from .html import number_rule, picture, render, script_json, thinning, value_scale

DIGITS = 17         # pixels from one head number to the next, at least


def token_rows(table, blind_loss):
    """The token table as dicts for the page. A bar is full at `blind_loss`, the loss of a blind guess."""
    rows = table.to_dict("records")
    known = sorted(int(c.removeprefix("next_")) for c in table if c.removeprefix("next_").isdecimal())
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        row["share"] = min(1.0, row["loss"] / blind_loss) if row["position"] else 0.0
        row["label"] = words.directed(row["label"])
        row["next"] = [{"label": words.directed(row[f"next_{n}"]), "p": row[f"next_{n}_p"],
                        "hit": following is not None and row[f"next_{n}_id"] == following["id"]} for n in known]
    return rows


def found_groups(repeats):
    """[{title, means, heads, against}]: the heads with a verdict, grouped by it, highest score first."""
    groups = []
    for score in words.SCORES:
        own = repeats[[score.column in verdict for verdict in repeats["verdict"]]]
        if len(own):
            own = own.sort_values(score.column, ascending=False, kind="stable")
            heads = [{"layer": int(row["layer"]), "head": int(row["head"]), "score": row[score.column],
                      "se": row[score.column + "_se"]} for row in own.to_dict("records")]
            control = score.column + "_control"
            against = (f"On unrepeated tokens, the same cells: at most {words.number(own[control].max())}."
                       if control in own else f"Even attention: {words.number(own[score.column + '_uniform'].iloc[0])}.")
            groups.append({"title": score.title, "means": score.means, "heads": heads, "against": against})
    return groups


def score_maps(table, which, verdicts=None):
    """The maps of all scores over layers and heads. verdicts: {column: [(layer, head)]} to mark."""
    maps = []
    for score in words.SCORES:
        values = tables.grid_of(table, score.column)                                                # [layer, head]
        known = values[~values.isnan()]
        peak = "no value" if not len(known) else f"highest {words.number(float(known.max()))}"
        marks = [{"layer": layer, "head": head} for layer, head in (verdicts or {}).get(score.column, [])]
        maps.append({"title": score.title, "means": score.means, "values": values, "marks": marks,
                     "picture": head_map(values, f"{which}-{score.column}",
                                         f"{score.title} of every head, layers down, heads across: {peak}")})
    return maps


def head_map(values, name, aria, numbers=True):
    """The picture of one number a head. values: [layer, head]."""
    n_layer, n_head = values.shape
    return picture(values, [str(n) for n in range(n_layer)], [str(n) for n in range(n_head)], name, aria,
                   rows="by-layer", columns="by-head", pitch=DIGITS, numbers=numbers)


def question_content(question, found, labels):
    """The question of a preset, answered. found: see `tables.question_table`."""
    table, query, keys = found
    key = question.keys[0]
    best = table.sort_values(key, ascending=False, kind="stable").head(8)
    return {"query": question.query, "key": key, "words": list(question.keys),
            "answer": words.question_words(question, table, len(keys[key]) / (query + 1)),
            "rows": [{"layer": int(row["layer"]), "head": int(row["head"]), "weights": [row[w] for w in question.keys]}
                     for row in best.to_dict("records")],
            "picture": head_map(tables.grid_of(table, key), "question",
                                f"Weight from {question.query} to {key} of every head, layers down, heads across",
                                numbers=False)}


def proof_content(check):
    """The proof in words and rows. check: the table of `inspector.check`, or None where it was left out.

    The state is the colour: "passed" where everything shown was proved, "partly" where the verdict says less than that.
    """
    if check is None:
        return {"state": "none", "word": "not checked", "parts": [],
                "summary": "The proof was left out: these numbers have not been compared with Hugging Face's."}
    word = check.attrs["verdict"]
    state = "failed" if not check.attrs["passed"] else "passed" if word == "passed" else "partly"
    table = tables.proof_table(check)
    table["state"] = ["partly" if (state, verdict) == ("partly", "passed") else verdict for verdict in table["verdict"]]
    parts = [{"name": name, "rows": rows.to_dict("records")} for name, rows in table.groupby("part", sort=False)]
    return {"state": state, "word": word, "summary": check.attrs["summary"], "parts": parts}


def layer_strips(layers):
    """The small grids of each layer for the page. layers: (pattern, value-weighted), both [head, query, key], of each."""
    strips = []
    for layer, (pattern, weighted) in enumerate(layers):
        parts, largest = cells.scaled(weighted)
        uris = [cells.data_uri(cells.encode(cells.strip(grid.cpu()))) for grid in (pattern, parts)]
        strips.append({"layer": layer, "uri": uris[0], "weighted": uris[1], "largest": largest})
    return strips


def index_page(tokens, strips, repeats, on_text, induction, check, facts, files, question=None):
    """The overview, as text.

    tokens: see `tables.token_table`; strips: see `layer_strips`; repeats, on_text: the tables of heads on repeated random
    tokens and on this text; induction: see `induction.section`; check: the table of the proof, or None; facts: see
    `report.facts`; files: [(path, what it is)]; question: (Question, its answer from `tables.question_table`), or None.
    """
    labels = tokens["label"].tolist()
    n_layer, n_head = facts["n_layer"], facts["n_head"]
    found = list(zip(repeats["layer"].tolist(), repeats["head"].tolist(), repeats["verdict"], strict=True))
    verdicts = {score.column: [(layer, head) for layer, head, verdict in found if score.column in verdict]
                for score in words.SCORES}
    queries = on_text.attrs["n_queries"]["induction"]
    sets = [{"id": "on-repeats", "title": "Scores on repeated random tokens",
             "note": f"Layers down, heads across, from 0 to 1. {words.count(repeats.attrs['period'])} distinct random "
                     "tokens, then the same again: only what a head does whatever the words are. Framed: heads found.",
             "maps": score_maps(repeats, "repeats", verdicts)},
            {"id": "on-text", "title": "Scores on this text",
             "note": "The same scores on this text, read with care: one text is one sample. Duplicate token and "
                     + (f"induction are means over the {words.plural(queries, 'token')} that occurred before."
                        if queries else "induction need a token that occurs again; there is none here."),
             "maps": score_maps(on_text, "text")}]
    exact = {m["picture"]["name"]: m["values"] for each in sets for m in each["maps"]}
    answered = None
    if question is not None and question[1] is not None:
        answered = question_content(*question, labels)
        exact["question"] = tables.grid_of(question[1][0], question[0].keys[0])
    thin = "\n".join([thinning("by-layer", n_layer), thinning("by-head", n_head, DIGITS),
                      number_rule(n_head)])
    return render("index.html", facts, here=None, tokens=token_rows(tokens, facts["blind_loss"]), maps=sets,
                  found=found_groups(repeats), n_found=sum(map(bool, repeats["verdict"])), question=answered,
                  threshold=repeats.attrs["threshold"], period=repeats.attrs["period"], proof=proof_content(check),
                  strips=strips, thumb_block=cells.block_size(len(labels), cells.STRIP), files=files, thin=thin,
                  induction=induction, value_scale=value_scale(1, "1: the largest of its layer"),
                  data=script_json({"labels": labels, "maps": {name: plain(v) for name, v in exact.items()}}))


def plain(values):
    """A grid of 0..1 as nested lists rounded to 4 digits, None for NaN; 0 and 1 only where they are exact."""
    def rounded(v):
        return min(max(round(v, 4), 0.0001), 0.9999) if 0 < v < 1 else round(v, 4)

    return [[None if math.isnan(v) else rounded(v) for v in row] for row in values.tolist()]
