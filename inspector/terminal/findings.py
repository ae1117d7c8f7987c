"""What weights, cuts, texts and the study say, as text."""

from .layout import columns, head_name, number, signed

MOST = 12               # rows of a ranking
MOST_PLACES = 30        # rows of a text's repeats


def circuits_text(found):
    """The weights' measures of every head, and the pairs that compose most through K."""
    titles = {"ov_copying": "OV copies", "ov_copying_vocab": "in vocab", "ov_copying_effective": "effective",
              "qk_matching": "QK matches", "qk_matching_composed": "composed", "qk_matching_composed_effective": "effective",
              "qk_symmetric": "symmetric", "ov_norm": "|OV|", "qk_norm": "|QK|", "positional_offset": "offset",
              "positional_previous": "on i-1"}
    rows = [[head_name(row), *(number(row[name], 0 if name == "positional_offset" else 2) for name in titles)]
            for _, row in found.heads.iterrows()]
    run, level = found.run["arguments"], found.baseline.set_index("kind").loc["k"]
    lines = [f"LayerNorm {'folded in' if run['fold'] else 'left out'}; OV and QK: the eigenvalues' sum over the sum of "
             "their sizes, from -1 to 1; biases are outside",
             "OV copies: raises what it reads (a head that suppresses can read near 1 too); in the residual basis, through",
             "the embeddings, and through the effective ones (behind layer 0); composed: matches through the previous-token",
             "heads before it; offset: where positions alone look; on i-1: the share they put there", "",
             columns(rows, ["head", *titles.values()])]
    if len(found.pairs):
        best = found.pairs.sort_values("k_composition", ascending=False, kind="stable").head(MOST)
        rows = [[f"{int(r['layer_from'])}.{int(r['head_from'])} -> {head_name(r)}",
                 *(number(r[f"{kind}_composition_excess"], 4) for kind in "kqv"), number(r["matching"])]
                for _, r in best.iterrows()]
        lines += ["", f"K-composition, the strongest of {len(found.pairs)} pairs, minus random factors' mean "
                      f"({level['mean']:.4f}; their 99th percentile lies {level['p99'] - level['mean']:.4f} above):",
                  columns(rows, ["pair", "K", "Q", "V", "matching through it"])]
    return "\n".join(lines)


def ablate_text(table):
    """What each cut costs, the dearest first, and the controls."""
    run, facts = table.attrs["run"]["arguments"], table.attrs
    fill = {"mean": "its mean over other sequences", "zero": "zero", "resample": "what it says on another one"}[run["fill"]]
    lines = [f"{run['n_sequences']} sequence(s), {run['repeats']} copies of {run['period']} ids, "
             f"{'BOS' if run['bos'] else 'no BOS'}, seed {run['seed']}",
             f"a cut head says {fill}; later patterns {run['patterns']}",
             f"loss in copies 2 and on, nothing cut: {number(facts['clean_loss'])} nats"
             + (f"; on the text: {number(facts['clean_text_loss'])}" if facts["clean_text_loss"] is not None else "")]
    own = table[table["kind"] != "control"].sort_values("change", ascending=False, kind="stable")
    names = ["change", "change_se", "loss", *(["text_change"] if facts["clean_text_loss"] is not None else [])]
    rows = [[row["cut"], *(signed(row[name]) if "change" in name and "se" not in name else number(row[name])
                           for name in names)] for _, row in own.iterrows()]
    lines += ["", columns(rows, ["cut", "change", "se", "loss", *(["on the text"] if len(names) > 3 else [])])]
    if facts["n_controls"]:
        lines += ["", f"{facts['n_controls']} random set(s) of as many heads from the same layers: "
                      f"{signed(facts['control_mean'])} on average, from {signed(facts['control_low'])} to "
                      f"{signed(facts['control_high'])}"]
    return "\n".join(lines)


def by_size(table):
    """The rows of a table by the size of their value, largest first."""
    return table.reindex(table["value"].abs().sort_values(ascending=False, kind="stable").index)


def attribute_text(found):
    """Who raises the target, the heads' sources, and the logit lens."""
    ranked = by_size(found.parts)
    rows = [[part_name(row), signed(row["value"])] for _, row in ranked.head(MOST).iterrows()]
    rest = ranked["value"].iloc[MOST:]
    rows += [[f"{len(rest)} others", signed(rest.sum())]] if len(rest) else []
    rows += [["all parts", signed(found.parts["value"].sum())]]
    lines = [f"{found.question}: {signed(found.total)}", "", columns(rows, ["part", "logits"])]
    strongest = by_size(found.sources).head(MOST)
    rows = [[head_name(row), f"{row['key']} {row['label']}", number(row["weight"]), signed(row["value"])]
            for _, row in strongest.iterrows()]
    lines += ["", columns(rows, ["head", "from token", "attention", "logits"], left=(0, 1))]
    rows = [[f"{row['place']} {row['layer']}", signed(row["value"]), number(row["target_p"]), str(row["target_rank"]),
             f"{row['top']} {number(row['top_p'])}"] for _, row in found.lens.iterrows()]
    return "\n".join([*lines, "", columns(rows, ["logit lens", "logits", "target p", "rank", "likeliest"], left=(0, 4))])


def part_name(row):
    """head 1.4, MLP 2, b_O 0, token embedding."""
    layer, head = row["layer"], row["head"]
    if head is not None and head == head:
        return f"head {layer}.{head}"
    return row["part"] if layer is None or layer != layer else f"{row['part']} {layer}"


def induction_text(found):
    """What repeats in the text, what followed before, and what the induction heads make of it."""
    names = ", ".join(f"{layer}.{head}" for layer, head in found.heads)
    lines = [f"induction heads of the model: {names}" if names else "no induction head was found in this model"]
    if not len(found.places):
        return "\n".join([*lines, "no token of the text occurs a second time: there is nothing to induce"])
    falls = (found.places["p"] - found.places["p_cut"].fillna(0)).sort_values(ascending=False, kind="stable")
    shown = found.places.loc[falls.index[:MOST_PLACES]].sort_index()
    rows = [[str(row["position"]), row["label"], ", ".join(map(str, row["followers"])), row["follower"],
             number(row["attention"]), signed(row["logit"]), number(row["p"]), number(row["p_cut"]),
             {True: "yes", False: "no"}.get(row["came"], "text ends")] for _, row in shown.iterrows()]
    header = ["at", "token", "followed at", "by", "attention", "logits", "p", "p, cut", "came"]
    if len(shown) < len(found.places):
        lines += [f"the {len(shown)} of {len(found.places)} followers that lose most without the heads; all of them: "
                  "--csv, --json"]
    return "\n".join([*lines, "", columns(rows, header, left=(1, 2, 3, 8)), "",
                      "at: its position; followed at, by: what came after its earlier places; came: does it now;",
                      "attention and logits: what those heads give the follower; p: its probability; p, cut: without them"])
