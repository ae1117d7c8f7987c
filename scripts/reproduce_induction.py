"""How the demo's heads came to be: scores of every training checkpoint, and the phase change as a figure.

    python scripts/reproduce_induction.py             # the runs in build/demo, into reports/induction
    python scripts/reproduce_induction.py --train     # first trains what is absent (an hour or more on two cores)

The runs are folders as `scripts/train_demo.py` leaves them: `layers_4` (the demo) and `layers_1` (the control, which
cannot hold an induction circuit); any further run beside them is scored and drawn too. Written: `heads.csv` (a row a head
and checkpoint), `steps.csv` (a row a checkpoint), `phase_change.png`, `.svg` and `.txt` (its caption), `run.json`, and
`scored/`, the results of each checkpoint, by which a stopped run goes on: a checkpoint is scored again only if it, the seed
or the way of scoring changed.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import train_demo
from tqdm import tqdm

import inspector
from inspector.errors import ArgumentError, InspectorError, OutputError, SourceError
from inspector.findings.copying import copying
from inspector.findings.learning import in_context
from inspector.findings.prompts import draw
from inspector.findings.study import roles
from inspector.pages.captions import phase_caption
from inspector.pages.figures import files
from inspector.pages.study_training import phase_change
from inspector.record import rows_of, to_json, versions, write_csv, write_text

PERIOD, SEQUENCES = 50, 16
WAY = 3                                 # counts up when scoring changes, so that older results are not mixed in
ROWS = ("Dotted: half of the steps. Until there twice that share of the rows repeats, all rows have 64 tokens, and no later "
        "position was ever seen: in-context learning and held-out loss, taken over 256 positions, say little before it, "
        "and the scores read 36 unseen positions of 100.")
LAST = 2400                             # the training script's own number of steps
NEEDED = {"layers_4": "", "layers_1": " --layers 1"}
HEAD_COLUMNS = ["previous_token", "previous_token_se", "induction", "induction_se", "induction_control",
                "induction_control_se", "copying_second", "copying_second_se", "copying_z", "copying_z_se", "verdict"]


# -- the runs --------------------------------------------------------------------------------------------------------

def find_runs(folder):
    """{name: folder} of the runs below a folder, the needed ones first. Raises SourceError that says how to make them."""
    absent = [name for name in NEEDED if not train_demo.checkpoints(folder / name)]
    if absent:
        commands = "; ".join(f"python scripts/train_demo.py{NEEDED[name]} --out {folder / name}" for name in absent)
        raise SourceError(f"no checkpoints in {' and '.join(str(folder / name) for name in absent)}; make them with: "
                          f"{commands} (or give --train)")
    others = sorted(path.name for path in folder.iterdir() if path.name not in NEEDED and (path / "facts.json").is_file()
                    and train_demo.checkpoints(path))
    return {name: folder / name for name in (*NEEDED, *others)}


def facts_of(folder):
    """A run's facts.json. Raises SourceError where it is absent or broken."""
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        return {"layers": int(facts["layers"]), "repeats": float(facts["repeats"]), "steps": int(facts["steps"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{folder / 'facts.json'} cannot be read ({error}); train the run again") from error


def label(facts):
    """A run by what it is: "4 layers", "1 layer", "4 layers, text alone"."""
    return f"{facts['layers']} layer{'s' if facts['layers'] > 1 else ''}" + ("" if facts["repeats"] else ", text alone")


def chosen(runs, steps):
    """[(name, step, folder)] of the checkpoints asked for, all by default. Raises ArgumentError for a step no run kept."""
    found = [(name, step, path) for name, folder in runs.items() for step, path in train_demo.checkpoints(folder).items()]
    kept = sorted({step for _, step, _ in found})
    unknown = sorted(set(steps or ()) - set(kept))
    if unknown:
        raise ArgumentError(f"no run has a checkpoint of step {unknown[0]}; kept: {', '.join(map(str, kept))}")
    return [(name, step, path) for name, step, path in found if not steps or step in steps]


def held_out_of(folder):
    """The held-out windows of a run: [window, CONTEXT]. Raises SourceError where they cannot be read."""
    try:
        return train_demo.windows(np.load(folder / "held_out.npy"), train_demo.SAMPLE)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{folder / 'held_out.npy'} cannot be read ({error}); train the run again") from error


# -- one checkpoint --------------------------------------------------------------------------------------------------

def score(model, held_out, seed):
    """{"step": {column: value}, "heads": [row a head]} of one checkpoint."""
    table = inspector.heads(model, period=PERIOD, n_sequences=SEQUENCES, seed=seed)
    said = copying(model, period=PERIOD, n_sequences=SEQUENCES, seed=seed)
    words = [roles(both, more) for both, more in zip(table["verdict"], said["verdict"], strict=True)]
    table = table.drop(columns="verdict").merge(said.drop(columns="verdict"), on=["layer", "head"], validate="one_to_one")
    table["verdict"] = words
    copies = train_demo.row_losses(model, draw(model, period=PERIOD, n_sequences=SEQUENCES, seed=seed + 1).ids).mean(0)
    text = train_demo.row_losses(model, held_out)
    learned = in_context(text).bands
    step = {"first_copy_loss": float(copies[:PERIOD - 1].mean()), "second_copy_loss": float(copies[PERIOD:].mean()),
            "held_out_loss": float(text.mean()), "in_context": learned.value, "in_context_se": learned.se}
    return {"step": step, "heads": rows_of(table[["layer", "head", *HEAD_COLUMNS]])}


def scored(path, goal, held_out, seed):
    """The results of a checkpoint: from `goal` where they are those of this checkpoint and seed, else made and written."""
    model = inspector.load(path)
    key = {"weights": model.sha256, "seed": seed, "period": PERIOD, "sequences": SEQUENCES, "windows": len(held_out),
           "way": WAY}
    try:
        kept = json.loads(goal.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return kept
    except (OSError, ValueError, KeyError, TypeError):
        pass                                          # never scored, or cut short: scored now
    found = {"key": key, **score(model, held_out, seed)}
    write_text(goal.with_suffix(".tmp"), to_json(found) + "\n")
    goal.with_suffix(".tmp").replace(goal)
    return json.loads(goal.read_text(encoding="utf-8"))


# -- all of it -------------------------------------------------------------------------------------------------------

def reproduce(runs, out, *, steps=None, seed=0, progress=tqdm):
    """Score the checkpoints of the runs, write tables and figure into `out`, and return (steps, heads) as DataFrames."""
    known = {name: facts_of(folder) for name, folder in runs.items()}
    held_out = {name: held_out_of(folder) for name, folder in runs.items()}
    by_step, by_head = [], []
    for name, step, path in progress(chosen(runs, steps), desc="scoring"):
        (out / "scored" / name).mkdir(parents=True, exist_ok=True)
        found = scored(path, out / "scored" / name / f"{path.name}.json", held_out[name], seed)
        where = {"run": label(known[name]), "folder": name, "layers": known[name]["layers"], "step": step}
        by_step.append({**where, **found["step"]})
        by_head += [{**where, **row} for row in found["heads"]]
    step_table, head_table = pd.DataFrame(by_step), pd.DataFrame(by_head)
    write_csv(step_table, out / "steps.csv")
    write_csv(head_table, out / "heads.csv")
    shares = [(label(facts), facts["repeats"]) for facts in known.values()]
    caption = phase_caption(shares, n_sequences=SEQUENCES, period=PERIOD, seed=seed, windows=train_demo.SAMPLE, notes=ROWS)
    turns = {label(facts): facts["steps"] / 2 for facts in known.values()}
    draw_it = partial(phase_change, step_table, head_table, caption=caption, turns=turns)
    for kind, data in files(draw_it).items():
        (out / f"phase_change.{kind}").write_bytes(data)
    write_text(out / "phase_change.txt", caption + "\n")
    run = {"tool": "inspector", "verb": "reproduce_induction", "seed": seed, "steps": steps, "period": PERIOD,
           "n_sequences": SEQUENCES, "runs": known, "versions": versions()}
    write_text(out / "run.json", to_json(run) + "\n")
    return step_table, head_table


def train_absent(folder):
    """Train the needed runs that have not reached their last step, as `train_demo.py` does by default; resumes."""
    for name, layers in (("layers_4", 4), ("layers_1", 1)):
        if LAST not in train_demo.checkpoints(folder / name):
            train_demo.train(folder / name, layers=layers, steps=LAST, seed=0, share=0.25)


def main(arguments=None):
    """Read the arguments, score, draw; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("build/demo"), help="folder of the runs; default build/demo")
    parser.add_argument("--out", type=Path, default=Path("reports/induction"), help="default reports/induction")
    parser.add_argument("--steps", type=int, nargs="+", help="only these checkpoints; default all")
    parser.add_argument("--seed", type=int, default=0, help="of the repeated sequences; losses of the copies: seed + 1")
    parser.add_argument("--train", action="store_true", help="train what is absent first")
    args = parser.parse_args(arguments)
    try:
        if args.train:
            train_absent(args.runs)
        reproduce(find_runs(args.runs), args.out, steps=args.steps, seed=args.seed)
    except InspectorError as error:
        print(f"reproduce_induction: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"reproduce_induction: {OutputError(error)}", file=sys.stderr)
        return 2
    print(f"written: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
