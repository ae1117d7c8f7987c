"""`layer_page`: every head of one layer as a grid, its scores, its strongest links in words, the layer's weights."""

from . import cells, tables, words
from .html import number_rule, picture, render, script_json, spark, thinning

ROWS = (*words.SCORES, words.Score("entropy", "entropy, nats", ""))


def score_rows(repeats, text):
    """The score table of one head. repeats, text: its row in the two tables of heads, as dicts."""
    return [{"title": title, "repeats": repeats[column], "se": repeats.get(column + "_se", float("nan")),
             "text": text[column], "found": column in repeats["verdict"]} for column, title, _ in ROWS]


def link_rows(links, labels, head):
    """The links of one head with their labels, as dicts."""
    own = links[links["head"] == head].to_dict("records")
    return [{**row, "query_label": words.directed(words.bare(labels[row["query"]])),
             "key_label": words.directed(words.bare(labels[row["key"]]))} for row in own]


def weight_rows(weights, table):
    """The rows of the weights table with a histogram each. weights: {name: tensor}; table: see `tables.weight_table`."""
    rows = []
    for row in table[table["head"].isna()].to_dict("records"):
        counts, limit = tables.histogram(weights[row["weight"]])
        rows.append({**row, "path": spark(counts), "bins": len(counts), "limit": limit})
    return rows


def head_norms(table):
    """{"names", "rows"}: the norm of each head's part of W_Q, W_K, W_V and W_O."""
    own = table[table["head"].notna()]
    names = list(dict.fromkeys(own["weight"]))
    return {"names": names, "rows": [{"head": int(head), "norms": group["norm"].tolist()}
                                     for head, group in own.groupby("head", sort=True)]}


def summary(heads):
    """What was found in a layer, in one sentence. heads: [(head name, verdict)]."""
    found = {}
    for name, verdict in heads:
        for role in verdict:
            found.setdefault(role, []).append(name)
    said = [f"{words.verdict_words([role])} in {words.listing(names)}" for role, names in found.items()]
    return f"Found here: {'; '.join(said)}." if said else "No head of this layer got a verdict."


def layer_page(layer, pattern, labels, repeats, on_text, weights, facts, files):
    """The page of one layer, as text.

    pattern: [head, query, key]; labels: [pos]; repeats, on_text: the layer's rows of the two tables of heads;
    weights: {name: tensor}; facts: see `report.facts`; files: [(path, what it is)].
    """
    n = pattern.shape[-1]
    block = cells.block_size(n)
    shown = cells.pool(cells.mask(pattern), block)                                           # [head, query, key]
    links = tables.link_table(pattern, labels, layer)
    shares = tables.first_token_shares(pattern).tolist()
    table = tables.weight_table(weights, layer)
    heads = []
    for head, (own, text) in enumerate(zip(repeats.to_dict("records"), on_text.to_dict("records"), strict=True)):
        name = words.head_name(layer, head)
        aria = (f"Attention of head {name} over {words.plural(n, 'token')}: {words.percent(shares[head])} on the first "
                "token. Strongest other links: " + "; ".join(links[links["head"] == head]["words"].head(3)))
        grid = picture(shown[head], labels, labels, f"grid-L{layer}H{head}", aria,
                       rows="by-token", columns="by-token", numbers=True)
        heads.append({"head": head, "picture": grid, "verdict": own["verdict"], "scores": score_rows(own, text),
                      "links": link_rows(links, labels, head), "first_token": shares[head]})
    names = {words.head_name(layer, head): share for head, share in enumerate(shares)}
    return render("layer.html", facts, here=layer, heads=heads, block=block, files=files,
                  summary=summary([(words.head_name(layer, h["head"]), h["verdict"]) for h in heads]),
                  first_token=words.first_token_words(names), weights=weight_rows(weights, table),
                  head_norms=head_norms(table), thin="\n".join([thinning("by-token", n), number_rule(n)]),
                  data=script_json({"labels": labels, "maps": {}}))
