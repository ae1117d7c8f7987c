"""`section`: induction in a text for the overview, as arcs beside its tokens and as a table.

The arcs stand in one column: a row a token that an arc leaves or reaches, and the tokens between folded into lines of
text. So no arc crosses a word, labels of every script lie level, and the page needs no script to draw it.
"""

import math

import pandas as pd
import torch

from . import words

FLOOR = 0.05        # attention below which no arc is drawn
MOST_ARCS = 300     # the strongest
IN_SIGHT = 30       # rows of the table before the fold
MOST_ROWS = 300     # rows of the table in all; the rest is in the CSV
LISTED = 5          # positions named in a cell


def arcs_of(places, pattern, heads):
    """A row an arc: position, key, follower_id, came, attention; text order. From a token to what followed an earlier one.

    places: the table of `findings.in_text`; pattern: [layer, head, query, key]; heads: [(layer, head)]. `attention` is the
    mean over the heads of what each gives to that one key.
    """
    rows = [(place.position, key, place.follower_id, place.came) for place in places.itertuples() for key in place.followers]
    table = pd.DataFrame(rows, columns=["position", "key", "follower_id", "came"])
    if not len(table):
        return table.assign(attention=0.0)
    query, key = (torch.from_numpy(table[name].to_numpy().copy()) for name in ("position", "key"))
    given = [pattern[layer, head].cpu().double()[query, key] for layer, head in heads]
    return table.assign(attention=torch.stack(given).mean(0).numpy())


def drawn_arcs(arcs, floor=FLOOR, most=MOST_ARCS):
    """The arcs to draw: those of at least `floor`, and of these the strongest `most`; in text order."""
    strong = arcs[arcs["attention"] >= floor].sort_values("attention", ascending=False, kind="stable")
    return strong.head(most).sort_index()


def lines_of(n, involved):
    """[[position, ...]]: the lines of a text of n tokens, each of `involved` on its own and the rest run together."""
    lines = []
    for position in range(n):
        if position in involved or not lines or lines[-1][0] in involved:
            lines.append([position])
        else:
            lines[-1].append(position)
    return lines


def guess_of(places, position, listed):
    """What followed a token's earlier places, as a dict: the one that gets most attention, and how many others there are.

    listed: {(position, follower id)} of the rows that the page's table has.
    """
    own = places[places["position"] == position]
    best = own.loc[own["attention"].idxmax()].to_dict()
    return {**best, "follower": words.directed(best["follower"]), "others": len(own) - 1,
            "listed": (position, best["follower_id"]) in listed}


def diagram(places, arcs, labels, listed):
    """The lines of the picture: [{"line", "tokens", "arcs", "guess", "involved"}]; `arcs` leave the line's one token.

    Lines count from 2, under a line of headings. An arc has `line` and `to`, its upper end, its `attention`, `came`, and
    `width`, 0..1: arcs that reach further swing out further.
    """
    involved = {*arcs["position"], *arcs["key"]}
    lines = lines_of(len(labels), involved)
    line_of = {position: at for at, line in enumerate(lines, 2) for position in line}
    longest = max((line_of[arc.position] - line_of[arc.key] for arc in arcs.itertuples()), default=0) or 1
    shown = []
    for at, line in enumerate(lines, 2):
        own = [{"line": at, "to": line_of[arc.key], "key": arc.key, "attention": arc.attention, "came": arc.came,
                "width": math.sqrt((at - line_of[arc.key]) / longest)}
               for arc in arcs[arcs["position"] == line[0]].itertuples()]
        tokens = [{"position": i, "label": words.directed(labels[i])} for i in line]
        shown.append({"line": at, "tokens": tokens, "arcs": own, "involved": line[0] in involved,
                      "guess": guess_of(places, line[0], listed) if own else None})
    return shown


def place_rows(places, most=MOST_ROWS):
    """The rows of the table as dicts, those first whose probability falls most when the heads are cut."""
    fall = (places["p"] - places["p_cut"]).fillna(float("-inf"))
    rows = places.assign(fall=fall).sort_values("fall", ascending=False, kind="stable").head(most).to_dict("records")
    return [{**row, "label": words.directed(row["label"]), "follower": words.directed(row["follower"]),
             "earlier": words.positions(row["earlier"], LISTED),
             "came": {True: "yes", False: "no"}.get(row["came"], "text ends")} for row in rows]


def said(places, heads, n):
    """What was found, in one or two sentences. n: tokens of the text."""
    if not len(places):
        return "No token of this text occurs again, so there is nothing here for an induction head to find."
    again = places["position"].nunique()
    opening = f"{words.plural(again, 'token').capitalize()} of {words.count(n)} occurred before."
    if not heads:
        return (f"{opening} But no head of this model got an induction verdict on repeated random tokens: there is no "
                "attention to draw, and none to cut.")
    came = places[places["came"].map(lambda value: value is True)]
    if not len(came):
        return f"{opening} The text never goes on as it did there."
    return (f"{opening} {words.plural(len(came), 'time').capitalize()} the text goes on as it did before: there the model "
            f"gives the token that follows {words.number(came['p'].mean())} on average, and "
            f"{words.number(came['p_cut'].mean())} with its induction heads cut.")


def section(found, pattern, labels):
    """What the template shows of a TextInduction: sentence, heads, lines of the picture, rows of the table.

    found: anything with places, heads and run as `findings.in_text.TextInduction` has; pattern: [layer, head, query, key];
    labels: [pos].
    """
    names = [(layer, head, words.head_name(layer, head)) for layer, head in found.heads]
    content = {"said": said(found.places, found.heads, len(labels)), "heads": names, "floor": FLOOR, "lines": [], "rows": [],
               "rest": [], "left_out": 0, "fill": found.run["arguments"]["fill"], "hidden": 0, "most": MOST_ARCS}
    if not len(found.places) or not found.heads:
        return content
    arcs = arcs_of(found.places, pattern, found.heads)
    drawn, rows = drawn_arcs(arcs), place_rows(found.places)
    listed = {(row["position"], row["follower_id"]) for row in rows}
    return {**content, "lines": diagram(found.places, drawn, labels, listed) if len(drawn) else [],
            "hidden": len(arcs) - len(drawn), "rows": rows[:IN_SIGHT], "rest": rows[IN_SIGHT:],
            "left_out": len(found.places) - len(rows)}
