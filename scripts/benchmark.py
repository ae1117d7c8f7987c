"""Time what was made to be fast against the plain way to do it, in one run on one machine.

    python scripts/benchmark.py ablate                   # cutting every head, against a fresh forward pass for each

A benchmark is a function that takes a model and returns [(what, seconds of each repetition)]; the first row is the plain
way, and every other row is printed as a ratio to it. `BENCHMARKS` lists them.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

import inspector
from inspector.findings.cutting import attend, cut_losses
from inspector.findings.prompts import draw, longest_period
from inspector.model.forward import embed, layers, losses, unembed
from inspector.model.kernels import Edit


def timed(ways, repetitions):
    """[(name, [seconds])]: the ways take turns, so that a busy machine is unfair to none. ways: {name: function}."""
    found = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            found[name].append(time.perf_counter() - start)
    return list(found.items())


# -- ablate ----------------------------------------------------------------------------------------------------------

def from_scratch(model, ids, cuts, first):
    """The loss with each cut, one fresh forward pass for each: what `cut_losses` saves. [cut, sequence, token]."""
    found = []
    for cut in cuts:
        edits = {}
        for layer, head in cut:
            keep = torch.ones(model.config.n_head)
            keep[head] = 0
            edits[layer] = Edit(keep=keep)
        *_, last = layers(model, embed(model, ids), kernel=attend, edits=edits)
        found.append(losses(unembed(model, last.resid_post[:, first:]), ids[:, first:]).double())
    return torch.stack(found)


def ablate(model, sequences, repetitions):
    """Cutting every head alone: one by one from scratch, one by one from the shared prefix, and in batches."""
    period = longest_period(model)
    ids = draw(model, period=period, n_sequences=sequences).ids
    cuts = [((layer, head),) for layer in range(model.config.n_layer) for head in range(model.config.n_head)]
    how = {"fill": "zero", "first": period}
    same = (from_scratch(model, ids, cuts[::5], period) - cut_losses(model, ids, cuts[::5], **how)).abs().max()
    bound = 2 * model.config.n_layer / (model.config.n_layer + 1)
    print(f"  {len(cuts)} cuts of {sequences} sequence(s) of {ids.shape[1]}, {model.dtype} on {model.device}, "
          f"{torch.get_num_threads()} thread(s)\n"
          f"  both ways agree to {same:.0e} nats; the shared prefix alone can give {bound:.2f} times")
    return timed({
        "a fresh forward pass for each head": lambda: from_scratch(model, ids, cuts, period),
        "from the clean prefix, one at a time": lambda: cut_losses(model, ids, cuts, at_once=ids.numel(), **how),
        "from the clean prefix, in batches": lambda: cut_losses(model, ids, cuts, **how),
        "the same, later patterns frozen": lambda: cut_losses(model, ids, cuts, patterns="frozen", **how),
    }, repetitions)


BENCHMARKS = {"ablate": ablate}


# -- models ----------------------------------------------------------------------------------------------------------

def random_gpt2():
    """A random model of GPT-2 small's size, as a checkpoint in a temporary folder, loaded by us."""
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder:
        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(Path(folder))
        return inspector.load(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--model", action="append", help="a source, or `random` for GPT-2 small's size (default: demo)")
    parser.add_argument("--sequences", type=int, default=4, help="repeated sequences that are run (default 4)")
    parser.add_argument("--repetitions", type=int, default=3, help="of each way; medians are printed (default 3)")
    options = parser.parse_args()
    try:
        for source in options.model or ["demo"]:
            model = random_gpt2() if source == "random" else inspector.load(source)
            print(f"{source}: {model.config.n_layer} layers of {model.config.n_head} heads, d_model {model.config.d_model}")
            rows = BENCHMARKS[options.benchmark](model, options.sequences, options.repetitions)
            plain = statistics.median(rows[0][1])
            for name, seconds in rows:
                median = statistics.median(seconds)
                print(f"  {name:40} {median:9.3f} s   {plain / median:5.2f} times")
    except inspector.InspectorError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
