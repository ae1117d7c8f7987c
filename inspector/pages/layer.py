"""`layer_page`: every head of one layer as a grid, its scores, its strongest links in words, the layer's weights."""

from . import cells, tables, words
from .html import number_rule, picture, render, script_json, spark, thinning, value_scale, with_values

ROWS = (*words.SCORES, words.Score("entropy", "entropy, nats", ""))


def score_rows(repeats, text):
    """The score table of one head. repeats, text: its row in the two tables of heads, as dicts."""
    return [{"title": title, "repeats": repeats[column], "se": repeats.get(column + "_se", float("nan")),
             "text": text[column], "found": column in repeats["verdict"]} for column, title, _ in ROWS]


def link_rows(links, labels, n_head):
    """[head, link]: the links of each head with their labels, as dicts."""
    rows = [[] for _ in range(n_head)]
    for row in links.to_dict("records"):
        rows[row["head"]].append({**row, "query_label": words.directed(words.bare(labels[row["query"]])),
                                  "key_label": words.directed(words.bare(labels[row["key"]]))})
    return rows


def weight_rows(weights, table):
    """The rows of the weights table with a histogram each. weights: {name: tensor}; table: see `tables.weight_table`."""
    rows = []
    for row in table[table["head"].isna()].to_dict("records"):
        limit = max(-row["smallest"], row["largest"]) or 1.0
        counts = tables.histogram(weights[row["weight"]], limit)
        rows.append({**row, "path": spark(counts), "bins": len(counts), "limit": limit})
    return rows


def head_norms(table):
    """{"names", "rows"}: the norm of each head's part of W_Q, W_K, W_V and W_O."""
    own = table[table["head"].notna()]
    names = list(dict.fromkeys(own["weight"]))
    norms = own["norm"].to_numpy().reshape(len(names), -1).T                                 # [head, name]
    return {"names": names, "rows": [{"head": head, "norms": each} for head, each in enumerate(norms.tolist())]}


def summary(heads):
    """What was found in a layer, in one sentence. heads: [(head name, verdict)]."""
    found = {}
    for name, verdict in heads:
        for role in verdict:
            found.setdefault(role, []).append(name)
    said = [f"{words.verdict_words([role])} in {words.listing(names)}" for role, names in found.items()]
    return f"Found here: {'; '.join(said)}." if said else "No head of this layer got a verdict."


def layer_tables(layer, pattern, weighted, shares, labels, weights):
    """{"links", "links_values", "weights"}: tables of one layer. Arguments as of `layer_page`."""
    links = {name: tables.link_table(pattern, labels, layer, weighted, shares, by_value=name == "links_values")
             for name in ("links", "links_values")}
    return {**links, "weights": tables.weight_table(weights, layer)}


def layer_page(layer, pattern, weighted, shares, labels, repeats, on_text, weights, made, facts, files):
    """The page of one layer, as text.

    pattern, weighted (value-weighted), shares (additive): [head, query, key]; labels: [pos]; repeats, on_text: the layer's
    rows of the two tables of heads; weights: {name: tensor}; made: see `layer_tables`; facts: see `report.facts`;
    files: [(path, what it is)].
    """
    n = pattern.shape[-1]
    block = cells.block_size(n)
    shown = cells.pool(cells.mask(pattern), block)                                           # [head, query, key]
    parts, largest = cells.scaled(weighted)
    values = cells.pool(cells.mask(parts), block)                                            # [head, query, key]
    links = {kind: link_rows(made[name], labels, len(pattern)) for kind, name in (("weights", "links"),
                                                                                  ("values", "links_values"))}
    rests, written = (tables.first_token_shares(grids).tolist() for grids in (pattern, shares))
    heads = []
    for head, (own, text) in enumerate(zip(repeats.to_dict("records"), on_text.to_dict("records"), strict=True)):
        name = words.head_name(layer, head)
        own_links = {kind: found[head] for kind, found in links.items()}
        strongest = {kind: "; ".join(row["words"] for row in found[:3]) for kind, found in own_links.items()}
        aria = (f"Attention of head {name} over {words.plural(n, 'token')}: {words.percent(rests[head])} on the first "
                f"token. Strongest other links: {strongest['weights']}. Value-weighted: {strongest['values']}")
        grid = picture(shown[head], labels, labels, f"grid-L{layer}H{head}", aria,
                       rows="by-token", columns="by-token", numbers=True)
        heads.append({"head": head, "picture": with_values(grid, values[head], largest), "verdict": own["verdict"],
                      "scores": score_rows(own, text), "first_token": rests[head], "first_share": written[head],
                      "links": own_links})
    names = {words.head_name(layer, head): share for head, share in enumerate(rests)}
    return render("layer.html", facts, here=layer, heads=heads, block=block, files=files,
                  summary=summary([(words.head_name(layer, h["head"]), h["verdict"]) for h in heads]),
                  first_token=words.first_token_words(names), weights=weight_rows(weights, made["weights"]),
                  head_norms=head_norms(made["weights"]),
                  value_scale=value_scale(largest, f"{words.compact(largest)}: the layer's largest"),
                  thin="\n".join([thinning("by-token", n), number_rule(n)]),
                  data=script_json({"labels": labels, "maps": {}}))
