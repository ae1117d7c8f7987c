"""The study as text: what was found, the heads with a verdict, the thresholds, the circuit."""

from ..pages.study_words import ROLES, protocol_sentence, sentences, told, unsaid
from .layout import columns, head_name, number, signed

MEASURES = (("previous_token", "previous"), ("induction", "stripe"), ("induction_control", "control"),
            ("prefix_matching", "prefix"), ("copying_second", "copying"), ("ov_copying_effective", "OV eff."),
            ("qk_matching_composed_effective", "QK eff."), ("cut_free", "cut"), ("cut_frozen", "cut, kept"))
SIGNED = ("copying_second", "cut_free", "cut_frozen")
LEGEND = ("stripe: weight on what followed earlier occurrences of the token (at most 1), control: the same cells without "
          "repeats; prefix: Olsson's",
          "prefix matching (at most 0.5); copying: logits added to the right next token; OV eff., QK eff.: does the OV "
          "copy, does the QK match through",
          "the previous-token heads, by the eigenvalues through the effective embedding (-1 to 1; `circuits` has the other "
          "bases); cut: loss in the",
          "repeats without the head, in nats, and with later patterns kept")


def study_text(study, out=None):
    """What was found, the heads with a verdict, how the threshold changes the lists, the pairs. out: where it went."""
    lines = [protocol_sentence(study), "", *sentences(study)]
    kept = study.table[[bool(words) for words in study.table["verdict"]]]
    shown = [(name, title) for name, title in MEASURES if name in study.table]
    rows = [[head_name(row), *(signed(row[name]) if name in SIGNED else number(row[name]) for name, _ in shown),
             ", ".join(ROLES[word][0] for word in told(row["verdict"]))] for _, row in kept.iterrows()]
    if rows:
        lines += ["", columns(rows, ["head", *(title for _, title in shown), "verdict"], left=(0, len(shown) + 1)), *LEGEND]
        if len(study.table) > len(rows):
            lines += [f"{len(study.table) - len(rows)} heads have no verdict and are not shown: --csv has every head"]
    lists = ("matching", "induction_heads", "anti_induction_heads")
    rows = [[f"{row['threshold']:g}", *(row[name] or "-" for name in lists)] for row in study.thresholds.to_dict("records")]
    lines += ["", columns(rows, ["threshold", "match", "induction heads", "anti-induction heads"], left=(0, 1, 2, 3))]
    if len(study.circuit):
        rows = [[f"{row.layer_from}.{row.head_from} -> {row.layer}.{row.head}", number(row.clean),
                 *(number(getattr(row, name + "_left")) for name in ("q", "k", "v", "direct")), row.route,
                 number(row.k_composition_excess, 4), f"{row.k_composition_rank:.0f}", "yes" if row.agrees else "no"]
                for row in study.circuit.itertuples()]
        header = ["pair", "stripe", "q left", "k left", "v left", "direct left", "route", "K-composition", "rank", "agrees"]
        lines += ["", columns(rows, header),
                  "left: what is left, as a share of clean, with only that input of the second head from the run without "
                  "the first: of its stripe",
                  "(q, k, direct path), of its copying (v); K-composition: above random factors' mean, rank among the "
                  "heads of the earlier layer"]
    lines += [f"not measured: {what}: {why}" for what, why in unsaid(study).items()]
    return "\n".join([*lines, *(["", str(out)] if out else [])])
