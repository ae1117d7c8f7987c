"""Model, proof and head scores as text."""

from numbers import Integral

from ..findings.published.table import in_short
from .layout import columns, head_name, number

SHORT = {"previous_token": "previous", "current_token": "current", "first_token": "first", "duplicate_token": "duplicate",
         "induction": "induction", "prefix_matching": "prefix", "entropy": "entropy"}


def heads_text(table):
    """The heads table: how it was measured, the verdicts, then every head."""
    run = table.attrs["run"]["arguments"]
    if run["repeats"]:
        how = (f"{run['protocol']}: {run['n_sequences']} sequence(s), {run['repeats']} copies of {run['period']} ids, "
               f"{'BOS' if run['bos'] else 'no BOS'}, seed {run['seed']}")
    else:
        n = table.attrs["n_queries"]
        how = (f"one text: {n['previous_token']} queries, {n['induction']} of them on a token seen before "
               "(one text gives no verdict)")
    names = [name for name in SHORT if name in table]
    lines = [how]
    if run["repeats"]:
        found = {name: [head_name(row) for _, row in table.iterrows() if name in row["verdict"]] for name in names}
        lines.append(f"verdict: above {run['threshold']:g} and above the control at 1 % (Holm over all heads)")
        lines += [f"  {name}: {', '.join(heads)}" for name, heads in found.items() if heads] or ["  none"]
        if run["n_sequences"] < 4:
            lines.append(f"  (with {run['n_sequences']} sequence(s) hardly any difference can be shown at 1 %)")
    rows = []
    for _, row in table.iterrows():
        cells = [head_name(row)]
        for name in names:
            cells.append(number(row[name]))
            if name == "induction":
                cells.append(number(row.get("induction_control")))
        rows.append([*cells, " ".join(row["verdict"])])
    header = ["head"]
    for name in names:
        header += [SHORT[name]] + (["control"] if name == "induction" else [])
    uniform = ["uniform"]
    for name in names:
        uniform += [number(table[name + "_uniform"].iloc[0])] + ([""] if name == "induction" else [])
    return "\n".join([*lines, "", columns([*rows, [*uniform, ""]], [*header, "verdict"])])


def check_text(table):
    """The proof: the largest difference of each quantity beside its bound, and the verdict."""
    if "statement" in table:
        return published_text(table)
    rows = []
    worst = table.assign(used=table["difference"] / table["bound"])
    parity = set(table["part"]) <= {"formula", "rounding"}
    keys = ["part", "quantity"] if parity else ["part", "quantity", "layer", "head"]
    for (part, quantity, *_), group in worst.groupby(keys, sort=False, dropna=False):
        row = group.loc[group["used"].idxmax()] if group["used"].notna().any() else group.iloc[0]
        failed = int((group["verdict"] != "passed").sum())
        where = ".".join(str(row[axis]) for axis in ("layer", "head") if isinstance(row[axis], Integral)) or "-"
        rows.append([f"{part} {quantity}", where, f"{row['ours']:.6g}", f"{row['theirs']:.6g}", f"{row['difference']:.2e}",
                     f"{row['bound']:.2e}", "passed" if not failed else f"{failed} of {len(group)} failed"])
    header = ["worst of each", "where", "ours", "theirs", "difference", "bound", "verdict"]
    return "\n".join([columns(rows, header), "", table.attrs["summary"], f"verdict: {table.attrs['verdict']}"])


def published_text(table):
    """Beside the published: each kind of number with how many there are of each verdict, and its largest difference."""
    rows = []
    for row in in_short(table).to_dict("records"):
        numbers = ["-"] * 4 if row["where"] is None else [f"{row[name]:.4f}" for name in ("ours", "theirs")] + [
            f"{row[name]:.1e}" for name in ("difference", "bound")]
        kind = row["kind"] if len(row["kind"]) <= 60 else row["kind"][:57] + "..."
        counts = ", ".join(f"{n} {verdict}" for verdict, n in row["verdicts"].items())
        rows.append([row["part"], kind, row["where"] or "-", *numbers, counts])
    header = ["part", "worst of each", "where", "ours", "theirs", "difference", "bound", "verdicts"]
    end = [table.attrs["summary"], "Every number with its source: --csv or --json.", f"verdict: {table.attrs['verdict']}"]
    return "\n".join([columns(rows, header, left=(0, 1, 2)), "", *end])


def info_text(found):
    """The model's parts and, for a text, what it costs."""
    config = found["config"]
    lines = [f"{found['source']}: {config['n_layer']} layers x {config['n_head']} heads, d_model {config['d_model']}, "
             f"d_head {config['d_head']}, {config['n_positions']:,} positions, vocabulary {config['vocab_size']:,}",
             f"dtype {found['dtype']}; known release: {found['release'] or 'no'}"]
    lines += [f"sha256 {name}: {digest}" for name, digest in found["sha256"].items()]
    tokenizer = found["tokenizer"]
    lines.append(f"tokenizer: {tokenizer['kind']}, {tokenizer['vocabulary']:,} tokens" if tokenizer
                 else "tokenizer: none (give ids)")
    lines += ["", columns([[name, f"{count:,}"] for name, count in found["parameters"].items()], ["part", "parameters"])]
    lines += ["", columns([[name, " x ".join(f"{n:,}" for n in shape)] for name, shape in found["weight_shapes"].items()],
                          ["weight", "shape"])]
    if "text" in found:
        text = found["text"]
        lines += ["", f"text: {len(text['ids'])} tokens: {' '.join(text['labels'])}", "",
                  columns([[name, " x ".join(f"{n:,}" for n in shape), made] for name, made, shape in text["shapes"]],
                          ["tensor", "shape", "made from"], left=(0, 2))]
        lines += ["", _cost_text(text["cost"])]
    if "cost" in found:
        lines += ["", _cost_text(found["cost"])]
    return "\n".join(lines)


def _cost_text(cost):
    fits = "" if cost["fits"] else " (more than this model has positions for)"
    rows = [[part, f"{cost[f'scores_per_{part}']:,}", f"{cost[f'unmasked_per_{part}']:,}"]
            for part in ("head", "layer", "model")]
    return "\n".join([f"{cost['tokens']:,} tokens{fits}", columns(rows, ["per", "scores", "after the mask"]),
                      f"all scores kept: {cost['grid_bytes']:,} bytes; keys and values: {cost['kv_bytes']:,} bytes"])
