"""What changing heads changes on one text, as text."""

from .layout import columns, head_name, number, signed

MOST = 12               # tokens and heads shown


def intervention_text(found):
    """The next token before and after, the tokens and the heads that change most, and the copies where there are some."""
    run = found.run["arguments"]
    done = ", ".join(f"{head} {how if isinstance(how, str) else f'x {how:g}'}" for head, how in run["edits"].items())
    place = found.tokens.iloc[found.position]
    lines = [f"changed: {done or 'nothing'}", f"the next token after position {found.position} ({place['label']}):", ""]
    rows = [[row["label"], number(row["p_before"]), number(row["p_after"]), signed(row["change"]), str(row["rank_before"]),
             str(row["rank_after"])] for _, row in found.next.iterrows()]
    lines += [columns(rows, ["next", "p before", "after", "change", "rank before", "after"])]

    losses = found.tokens.iloc[1:]
    if len(losses):
        most = losses.loc[losses["change"].abs().sort_values(ascending=False, kind="stable").index[:MOST]].sort_index()
        rows = [[str(row["position"]), row["label"], number(row["loss_before"]), number(row["loss_after"]),
                 signed(row["change"])] for _, row in most.iterrows()]
        mean = losses[["loss_before", "loss_after", "change"]].mean()
        rows += [["", f"mean of {len(losses)}", number(mean["loss_before"]), number(mean["loss_after"]),
                  signed(mean["change"])]]
        lines += ["", columns(rows, ["at", "token", "loss before", "after", "change"], left=(1,))]
    if len(found.copies):
        rows = [[str(int(row["copy"])), str(int(row["tokens"])), number(row["loss_before"]), number(row["loss_after"]),
                 signed(row["change"])] for _, row in found.copies.iterrows()]
        lines += ["", columns(rows, ["copy", "tokens", "loss before", "after", "change"], left=())]
    moved = found.patterns[found.patterns["largest"] > 0].sort_values("moved", ascending=False, kind="stable")
    if len(moved):
        rows = [[head_name(row), number(row["moved"]), number(row["largest"])] for _, row in moved.head(MOST).iterrows()]
        lines += ["", columns(rows, ["head", "weight moved", "largest cell"])]
    notes = ["losses in nats" + (f", of the {MOST} tokens whose loss changes most" if len(losses) > MOST else ""),
             f"heads: the {min(MOST, len(moved))} of {len(moved)} whose pattern changes, by the weight that moves"]
    return "\n".join([*lines, "", "; ".join(notes if len(moved) else notes[:1])])
