"""The run record, and the one place that writes files: JSON, CSV and whole folders, all or nothing.

A folder is written beside its goal as `.NAME.tmp-PID` and renamed at the end, so that a reader never sees half of one
and a killed run loses nothing. An older folder is replaced only if it holds a `run.json` of ours.
"""

import csv
import ctypes
import functools
import glob
import json
import math
import os
import platform
import shutil
import sys
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

from . import __version__
from .decimals import csv_lines
from .errors import OutputError

PACKAGES = ("torch", "transformers", "safetensors", "tokenizers", "huggingface_hub", "numpy", "pandas", "matplotlib")


@functools.cache
def versions():
    """{package: version} of what the numbers depend on; a package that is not installed is None."""
    found = {"inspector": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def run_record(model, verb, **arguments):
    """What made a result: enough to make it again. A dict that JSON can hold; no clock and no process number in it."""
    import torch
    return {
        "tool": "inspector",
        "verb": verb,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv and sys.argv[0] else [],
        "arguments": {name: plain(value) for name, value in arguments.items()},
        "model": {"source": model.files.source, "sha256": model.sha256, "release": model.release,
                  "config": model.raw_config},
        "dtype": model.dtype,
        "device": model.device,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": versions(),
    }


def plain(value):
    """A value as JSON can hold it: tensors and arrays as lists, non-finite numbers as null, paths as text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def to_json(data, indent=2):
    """JSON text of plain data; non-finite numbers are null, non-ASCII stays readable, lone surrogates are escaped."""
    text = json.dumps(plain(data), indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def to_csv(table, file):
    """A DataFrame as CSV: text quoted, numbers not, non-finite an empty cell. Read it with keep_default_na=False."""
    import pandas as pd
    clean = table.copy(deep=False)
    clean.attrs = {}                        # pandas copies the run record deeply for every column that is picked
    for name in table.columns:
        if clean[name].dtype == object:
            # As objects again: whole numbers beside an empty cell would else become floats.
            cells = ["; ".join(map(str, v)) if isinstance(v, list | tuple) else v for v in clean[name]]
            clean[name] = pd.Series(cells, index=table.index, dtype=object)
        elif clean[name].dtype.kind == "f":
            clean[name] = clean[name].where(clean[name].abs() != math.inf)
    bulk = len(clean) > 0 and all(kind in ("int64", "float64") for kind in map(str, clean.dtypes))
    shown = clean.head(0) if bulk else clean
    text = shown.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    if bulk:
        text += csv_lines([clean[name].to_numpy() for name in clean]).decode("ascii")
    if hasattr(file, "write"):
        file.write(text)
    else:
        write_text(file, text)


def rows_of(table):
    """A DataFrame as a list of plain dicts, for JSON."""
    return [plain(row) for row in table.to_dict("records")]


# -- folders ---------------------------------------------------------------------------------------------------------

def _ours(folder):
    """Whether everything in a folder was written by one run of this program: its run.json lists the files."""
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return run.get("tool") == "inspector" and set(_files(folder)) <= set(run["files"])
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return False


def _files(folder):
    """Paths of all files below a folder, relative to it, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def _exchange(one, other):
    """Swap two folders in one step where the kernel can (renameat2 with RENAME_EXCHANGE); True when it did."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    at_cwd, exchange = -100, 2
    return call(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange) == 0


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _repair(goal):
    """Mend what a killed run left: its unfinished folder goes, and a folder caught between two renames comes back."""
    old = goal.parent / f".{goal.name}.old"
    if old.is_dir() and not goal.exists():
        old.rename(goal)
    elif old.is_dir() and _ours(old):
        shutil.rmtree(old)
    for left in goal.parent.glob(f".{glob.escape(goal.name)}.tmp-*"):
        pid = left.name.rpartition("-")[2]
        if left.is_dir() and pid.isdecimal() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)




def refuse_foreign(goal):
    """Raise OutputError when `goal` exists and is not a folder that this program wrote, and nobody else wrote into.

    An empty folder is free; the current folder, or one around it, never is.
    """
    try:
        if "\0" in str(goal):
            raise ValueError("a path holds no zero byte")
        path = Path(os.path.abspath(Path(goal).expanduser()))
        if path in (here := Path.cwd(), *here.parents):
            raise OutputError(f"{path} is the current folder or around it; choose a folder below")
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise OutputError(f"{path} exists and is not a folder; choose another --out")
        if path.is_dir() and any(path.iterdir()) and not _ours(path):
            raise OutputError(f"{path} holds files that inspector did not write (its run.json lists those it did); "
                              "choose another --out or empty it")
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise OutputError(f"cannot write {str(goal)[:200]!r}: {getattr(error, 'strerror', None) or error}") from error
    return path


def refuse_special(path):
    """The plain file that `path` names, through links. Raises OutputError where it cannot be written or is no plain file."""
    try:
        target = Path(path).expanduser().resolve()
        if target.exists() and not target.is_file():
            raise OutputError(f"{path} is no plain file; choose another")
        if not target.parent.is_dir():
            raise OutputError(f"cannot write {path}: there is no folder {target.parent}")
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputError(f"cannot write {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}") from error
    return target


def write_csv(table, path):
    """A DataFrame as a CSV file, whole or not at all. Raises OutputError."""
    target = refuse_special(path)
    temporary = target.parent / f".{target.name[:100]}.tmp-{os.getpid()}"
    try:
        to_csv(table, temporary)
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_tensors(path, tensors, metadata=None):
    """Tensors as a safetensors file. Raises OSError, also where the library has an error of its own (a full disk)."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def _list_files(folder):
    """Add the list of files to a folder's run.json, by which the next run knows that nothing else is in it."""
    path = folder / "run.json"
    if path.exists():
        run = json.loads(path.read_text(encoding="utf-8"))
        write_text(path, to_json({**run, "files": _files(folder)}) + "\n")


@contextmanager
def folder(goal):
    """A new folder to write into, which becomes `goal` when the block ends, or vanishes if it fails.

    Raises OutputError when the goal cannot be written or is not ours to replace.
    """
    goal = refuse_foreign(goal)
    temporary = goal.parent / f".{goal.name}.tmp-{os.getpid()}"
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        _repair(goal)
        if temporary.exists():
            shutil.rmtree(temporary)
        temporary.mkdir()
    except OSError as error:
        raise OutputError(f"cannot write {goal}: {error.strerror}") from error
    try:
        yield temporary
        _list_files(temporary)
        if not goal.exists():
            temporary.rename(goal)
        elif not any(goal.iterdir()):
            goal.rmdir()
            temporary.rename(goal)
        elif not _exchange(temporary, goal):
            old = goal.parent / f".{goal.name}.old"
            goal.rename(old)
            temporary.rename(goal)
            shutil.rmtree(old)
    except OSError as error:
        raise OutputError(f"cannot write {goal}: {error.strerror or error}") from error
    finally:
        if temporary.exists():       # a failed run's files or, after an exchange, the older folder
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path, text):
    """Text as UTF-8 with plain newlines."""
    Path(path).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
