"""How things are timed and how memory is counted: the ways take turns, and memory is read in fresh processes."""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Setting:
    """What is asked of every subject."""

    source: str              # a checkpoint folder or source that every tool can be given
    repetitions: int         # turns of each way


@dataclass(frozen=True)
class Measured:
    """One way to do one task."""

    task: str                # what was asked, with its size
    way: str                 # who did it, and how
    seconds: tuple = ()      # of each turn; empty where only memory was read, or the tool is absent
    peak: int | None = None  # bytes above what the process held after its imports, at its highest; a fresh process
    note: str = ""           # agreement of the results, a limit, why it is absent

    @property
    def median(self):
        """Seconds; NaN where nothing was timed."""
        return statistics.median(self.seconds) if self.seconds else float("nan")


def in_turn(ways, repetitions, warm_up=1):
    """{name: (seconds, ...)}: the ways take turns, so that a busy machine is unfair to none. ways: {name: function}."""
    for _ in range(warm_up):
        for way in ways.values():
            way()
    found = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            found[name].append(time.perf_counter() - start)
    return {name: tuple(seconds) for name, seconds in found.items()}


def missing(package):
    """None where a package is installed, else what to say of a row that needs it."""
    return None if importlib.util.find_spec(package) else f"absent: pip install -e '.[peers]' brings {package}"


# -- fresh processes -------------------------------------------------------------------------------------------------

def resident(field="VmRSS"):
    """Bytes this process holds (VmRSS) or held at its highest (VmHWM), the mapped pages of files included. Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def fresh(module, function, **arguments):
    """What scripts.benchmarks.`module`.`function`(**arguments) returns, called in a process of its own (plain JSON)."""
    code = (f"import json, sys; from scripts.benchmarks import {module} as m; "
            f"print('\\n' + json.dumps(m.{function}(**json.loads(sys.argv[1]))))")
    found = subprocess.run([sys.executable, "-c", code, json.dumps(arguments)], cwd=ROOT, text=True,
                           capture_output=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    if found.returncode:
        raise RuntimeError(f"{module}.{function}({arguments}) failed:\n{found.stderr}")
    return json.loads(found.stdout.splitlines()[-1])


def peak_above(before, work):
    """(bytes above `before` while `work()` ran and what it returned was held, that result).

    `before` is `resident()` after the imports: the weights loaded since then count too.
    """
    Path("/proc/self/clear_refs").write_text("5")          # starts VmHWM afresh (Linux, proc(5))
    result = work()
    return resident("VmHWM") - before, result


# -- the machine, and the table --------------------------------------------------------------------------------------

def machine(threads):
    """What the figures were taken on: {processor, cores, threads, python, versions of what took part}."""
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in about.splitlines() if line.startswith("model name")]
    versions = {}
    for name in ("torch", "transformers", "transformer-lens", "bertviz", "circuitsvis", "matplotlib", "numpy", "pandas"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {"processor": names[0] if names else platform.processor(), "cores": os.cpu_count(), "threads": threads,
            "bfloat16 matrix units": "amx_bf16" in about, "python": platform.python_version(), **versions}


def as_markdown(rows):
    """The rows as a table in Markdown: a line a way; `times` is its median over that of the task's first way."""
    lines = ["| task | way | median s | fastest to slowest | times ours | peak MB | note |", "|---|---|---|---|---|---|---|"]
    first = {}
    for row in rows:
        ours = first.setdefault(row.task, row)
        spread = f"{min(row.seconds):.3f} to {max(row.seconds):.3f}" if row.seconds else ""
        times = f"{row.median / ours.median:.2f}" if row.seconds and row is not ours and ours.seconds else ""
        peak = "" if row.peak is None else f"{row.peak / 1e6:,.0f}"
        median = f"{row.median:.3f}" if row.seconds else ""
        cells = [row.task if row is ours else "", row.way, median, spread, times, peak, row.note]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
