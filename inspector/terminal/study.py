"""The study as text: what was found, the heads with a verdict, the thresholds, the circuit."""

from ..pages.study_words import ROLES, protocol_sentence, sentences, told
from .layout import columns, head_name, number, signed

MEASURES = (("previous_token", "previous"), ("induction", "stripe"), ("induction_control", "control"),
            ("prefix_matching", "prefix"), ("copying_second", "copying"), ("ov_copying_effective", "OV copies"),
            ("qk_matching_composed_effective", "composed"), ("cut_free", "cut"), ("cut_frozen", "frozen"))
SIGNED = ("copying_second", "cut_free", "cut_frozen")


def study_text(study, out=None):
    """What was found, the heads with a verdict, how the threshold changes the lists, the pairs. out: where it went."""
    lines = [protocol_sentence(study), "", *sentences(study)]
    kept = study.table[[bool(words) for words in study.table["verdict"]]]
    shown = [(name, title) for name, title in MEASURES if name in study.table]
    rows = [[head_name(row), *(signed(row[name], 2) if name in SIGNED else number(row[name]) for name, _ in shown),
             ", ".join(ROLES[word][0] for word in told(row["verdict"]))] for _, row in kept.iterrows()]
    if rows:
        lines += ["", columns(rows, ["head", *(title for _, title in shown), "verdict"], left=(0, len(shown) + 1))]
    lists = ("matching", "induction_heads", "anti_induction_heads")
    rows = [[f"{row['threshold']:g}", *(row[name] or "-" for name in lists)] for row in study.thresholds.to_dict("records")]
    lines += ["", columns(rows, ["threshold", "match", "induction heads", "anti-induction heads"], left=(0, 1, 2, 3))]
    if len(study.circuit):
        rows = [[f"{row.layer_from}.{row.head_from} -> {row.layer}.{row.head}", number(row.clean), number(row.q),
                 number(row.k), number(row.logit_v / row.logit if row.logit else float("nan")), number(row.direct),
                 signed(row.k_composition_excess, 4), "yes" if row.agrees else "no"] for row in study.circuit.itertuples()]
        header = ["pair", "stripe", "q cut", "k cut", "v cut", "direct path cut", "K-composition", "agrees"]
        lines += ["", columns(rows, header), "q, k, v cut: only that input of the second head from the run without the "
                                             "first; "
                                             "v cut: the share of its logit left"]
    lines += [f"not measured: {what}: {why}" for what, why in study.left_out.items()]
    return "\n".join([*lines, *(["", str(out)] if out else [])])
