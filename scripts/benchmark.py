"""Time and memory of what was made to be fast, beside the plain way and beside the peers that are installed.

    python scripts/benchmark.py                          # every subject, on a random model of GPT-2 small's size
    python scripts/benchmark.py scan grids               # some of them
    python scripts/benchmark.py cutting --model demo     # on another model
    python scripts/benchmark.py --out FOLDER             # keep the table: benchmark.md and benchmark.json

It takes about half an hour on two cores; `scan grids` six minutes, 4 GB. Memory is read on Linux only.
All ways of a task get the same ids, are warmed up, and take turns; medians are told. Absolute times move from machine to
machine and from run to run: trust the ratios. Peers: pip install -e '.[peers]'.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import inspector
from inspector.checkpoint.source import find
from scripts.benchmarks.measuring import Setting, as_markdown, machine

SUBJECTS = ("scan", "grids", "cutting", "circuits", "start", "report", "opening", "explorer")


def random_gpt2(folder):
    """A random model of GPT-2 small's size as a checkpoint in a folder."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging
    logging.disable_progress_bar()
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)} (default: all)")
    parser.add_argument("--model", default="random", help="a source, or `random` for GPT-2 small's size (the default)")
    parser.add_argument("--repetitions", type=int, default=5, help="turns of each way (default 5)")
    parser.add_argument("--out", type=Path, help="a folder for benchmark.md and benchmark.json")
    options = parser.parse_args()
    if unknown := set(options.subjects) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}; expected of {', '.join(SUBJECTS)}")
    if options.repetitions < 1:
        parser.error(f"--repetitions is {options.repetitions}; expected at least 1")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)     # before anything is measured: an error here costs nothing
    told = machine(torch.get_num_threads())
    print(", ".join(f"{name}: {value}" for name, value in told.items()), "\n")
    rows = []
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder:
        try:
            # A folder, so that no other tool takes a name like `demo` for one of the hub's.
            source = random_gpt2(folder) if options.model == "random" else str(find(options.model).config.parent)
            for subject in options.subjects or SUBJECTS:
                found = list(import_module(f"scripts.benchmarks.{subject}").measure(Setting(source, options.repetitions)))
                print(as_markdown(found), "\n", flush=True)
                rows += found
        except inspector.InspectorError as error:
            print(f"benchmark: {error}", file=sys.stderr)
            return 2
    if options.out:
        (options.out / "benchmark.md").write_text(as_markdown(rows) + "\n", encoding="utf-8")
        text = json.dumps({"machine": told, "model": options.model, "rows": [asdict(row) for row in rows]}, indent=1)
        (options.out / "benchmark.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
