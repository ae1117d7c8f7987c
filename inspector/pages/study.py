"""The study as files: a page, figures for papers, tables. `write_study` puts them into a folder that a report may share."""

from functools import partial
from pathlib import Path

from .. import record
from ..findings.protocols import PROTOCOLS
from ..findings.published.table import in_short
from ..findings.study import SOURCES
from . import cells, figures, study_words, words
from .html import model_facts, render
from .study_curves import loss_by_position
from .study_graphs import circuit, composition_web
from .study_maps import SHARES, matching_against_copying, score_maps, threshold_figure

# The measures shown side by side in the maps and on the page; all others stand in the CSV.
MAPS = ("induction", "prefix_matching", "previous_token", "copying_z", "copying_second", "ov_copying_effective",
        "qk_matching", "qk_matching_composed_effective", "cut_free")
COLUMNS = (("previous_token", "previous"), ("induction", "stripe"), ("induction_control", "its control"),
           ("prefix_matching", "prefix matching"), ("copying_ratio", "copying ratio"), ("copying_z", "copying z"),
           ("copying_second", "copying, logits"), ("ov_copying", "OV copies"), ("ov_copying_vocab", "OV copies, vocabulary"),
           ("ov_copying_effective", "OV copies, effective"), ("qk_matching", "QK matches"),
           ("qk_matching_composed", "QK composed"), ("qk_matching_composed_effective", "QK composed, effective"),
           ("cut_free", "cut, nats"), ("cut_frozen", "cut, patterns kept"))
TABLES = {"heads": "every head, every measure, with spread and control", "thresholds": "the lists from 0.3 to 0.8",
          "circuit": "the pairs tested", "sets": "roles cut together, beside random sets", "loss": "loss by position",
          "pairs": "composition of every pair of heads", "directions": "leading OV directions with their tokens",
          "spectra": "all singular values", "baseline": "composition of random factors", "cuts": "every cut behind the sets",
          "published": "ours beside the published"}
MEANS = (
    ("previous", "weight on the token before; at most 1"),
    ("stripe", "weight on what followed earlier occurrences of the token, in the repeats; at most 1. Its control: the same "
               "cells on tokens that do not repeat"),
    ("prefix matching", "the same by the protocol of Olsson et al. 2022, mean over all earlier copies of four; at most 0.5"),
    ("copying ratio", "Olsson et al. 2022: share of the raise that goes to the attended token, from −1 to 1; a head that "
                      "ignores its input reads {level}"),
    ("copying z", "logit of the attended token, in standard deviations over the vocabulary; 0 for a head that does not "
                  "copy"),
    ("copying, logits", "what the head adds to the right next token in the repeats, above the mean of the vocabulary; "
                        "signed"),
    ("OV copies, QK matches", "sum of the eigenvalues of the head's own weights over the sum of their sizes, from −1 to 1: "
                              "in the residual basis, through the embeddings, or through the effective ones (what stands "
                              "there behind layer 0); composed: through the previous-token heads before it. A head that "
                              "suppresses can read near 1 in OV: GPT-2’s 11.10 does"),
    ("cut", "rise of the loss in the repeats, in nats, when the head says its mean instead; patterns kept: later heads "
            "look where they looked before. Heads that stand in for each other lose little alone"),
)


def drawn(study):
    """[(stem, title, draw)] of the study's figures; draw(kind) gives a matplotlib Figure that carries its caption."""
    run, table = study.run, study.table
    measured = {**run, "arguments": {name: value for name, value in run["arguments"].items() if name != "fold"}}
    olsson = "prefix_matching" in table and table[["prefix_matching", "copying_ratio"]].notna().all(axis=1).any()
    maps = [column for column in MAPS if column in table and table[column].notna().any()]
    return [
        ("circuit", "The circuit", partial(circuit, study.circuit, table, study.circuit.attrs["run"])),
        ("matching_copying", "Matching against copying",
         partial(matching_against_copying, table, measured, threshold=run["arguments"]["threshold"])),
        *([("prefix_copying", "Prefix matching against copying", partial(
            matching_against_copying, table, by_olsson(run), x="prefix_matching", y="copying_ratio", threshold=None,
            title="The two scores of Olsson et al. 2022"))] if olsson else []),
        ("measures", "Every head, every measure", partial(score_maps, table, maps, run)),
        ("loss_by_position", "Loss by position", partial(
            loss_by_position, study.loss, study.loss.attrs["run"], vocab_size=run["model"]["config"]["vocab_size"])),
        ("composition", "Composition", partial(composition_web, study.circuits.pairs, table, study.circuits.run)),
        ("thresholds", "Thresholds", partial(threshold_figure, table, study.thresholds, measured)),
    ]


def by_olsson(run):
    """A study's run record as that of its prefix matching, for the caption."""
    rule = PROTOCOLS["olsson"]
    return {**run, "arguments": {"protocol": "olsson", "n_sequences": rule.n_sequences, "period": rule.period,
                                 "repeats": rule.repeats, "bos": rule.bos, "seed": run["arguments"]["seed"]}}


def tables_of(study):
    """{name: DataFrame} of everything that the study measured."""
    found = {"heads": study.table, "thresholds": study.thresholds, "circuit": study.circuit, "sets": study.sets,
             "loss_by_position": study.loss, "pairs": study.circuits.pairs, "directions": study.circuits.directions,
             "spectra": study.circuits.spectra, "baseline": study.circuits.baseline}
    found |= {f"cuts_{role}_{patterns}": table for (role, patterns), table in study.cuts.items()}
    return found if study.published is None else found | {"published": study.published}


def chips(study, role):
    """[(layer, head, how much)] of the heads of a role; of those that copy or suppress, what they add in logits."""
    speaks = role in ("copies", "suppresses")
    added = study.table.set_index(["layer", "head"])["copying_second"]
    return [(*head, words.signed(added[head], 3) if speaks else "") for head in study.found[role]]


def head_rows(study, columns):
    """The table of all heads for the page: [{layer, head, roles, cells (texts), found}]."""
    rows = []
    for row in study.table.to_dict("records"):
        roles = [study_words.ROLES[word][0] for word in study_words.told(row["verdict"])]
        shown = [(words.number if column in (*SHARES, "induction_control") else words.signed)(row[column])
                 for column, _ in columns]
        rows.append({"layer": int(row["layer"]), "head": int(row["head"]), "roles": roles, "cells": shown,
                     "found": any(word.endswith("induction_head") or word == "previous_token" for word in row["verdict"])})
    return rows


def used_thresholds(study):
    """[(argument, the value used, source of the default)]."""
    run = study.run["arguments"]
    return [(name, f"{run[name]:g}" + ("" if run[name] == default else f" (default {default:g})"), source)
            for name, default, source in SOURCES]


def published_content(published):
    """{"short": a row for each kind of number, "statements": all of them beside ours}, or None where there is nothing."""
    if published is None:
        return None
    return {"short": in_short(published).to_dict("records"),
            "statements": published[published["part"] == "statements"].to_dict("records")}


def study_page(study, facts, images, titles, files):
    """The page of a study, as text.

    facts: see `report.facts`; images: {stem: PNG bytes} and titles: {stem: title} of `drawn`; files: [(path, what it is)].
    """
    columns = [(column, title) for column, title in COLUMNS if column in study.table]
    level = words.signed(study.table["copying_ratio_level"].iloc[0])
    return render("study.html", facts, here="study", thin="", data="{}",
                  sentences={"verdict": study_words.verdict_sentences(study),
                             "circuit": study_words.circuit_sentences(study),
                             "sets": study_words.set_sentences(study), "learning": study_words.learning_sentence(study),
                             "published": study_words.published_sentence(study),
                             "protocol": study_words.protocol_sentence(study)},
                  found=[{"title": title, "means": means, "heads": chips(study, role)}
                         for role, (title, means) in study_words.ROLES.items() if role in study.found],
                  one_sequence=study.run["arguments"]["n_sequences"] < 2,
                  n_found=len(study.found.get("induction_head", ())), columns=columns, rows=head_rows(study, columns),
                  means=[(name, text.format(level=level)) for name, text in MEANS],
                  thresholds=study.thresholds.to_dict("records"), sources=used_thresholds(study),
                  published=published_content(study.published), left_out=study_words.unsaid(study),
                  images={stem: cells.data_uri(data) for stem, data in images.items()},
                  titles=titles, files=files)


def write_study(folder, study, facts):
    """Write a study into an open folder: study.html, figures/study_*.png and .svg, tables/study_*.csv."""
    for name in ("figures", "tables"):
        (folder / name).mkdir(exist_ok=True)
    images, titles, files = {}, {}, []
    for name, table in tables_of(study).items():
        path = f"tables/study_{name}.csv"
        record.to_csv(table, folder / path)
        files.append((path, TABLES[name.partition("_")[0]]))
    for stem, title, draw in drawn(study):
        made = figures.files(draw)
        images[stem], titles[stem] = made["png"], title
        for kind, data in made.items():
            path = f"figures/study_{stem}.{kind}"
            (folder / path).write_bytes(data)
            files.append((path, f"{title}, {kind.upper()}"))
    record.write_text(folder / "study.html", study_page(study, facts, images, titles, files))


def save_study(model, study, out):
    """Write a study as a folder of its own: study.html, figures/, tables/, run.json. Raises OutputError."""
    with record.folder(out) as folder:
        write_study(folder, study, {**model_facts(model), "pages": False, "study": True, "explorer": False})
        record.write_text(folder / "run.json", record.to_json(study.run) + "\n")
    return Path(out).expanduser()
