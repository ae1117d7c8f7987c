"""Writing: all or nothing, nobody else's files replaced, and numbers as JSON and CSV can hold them."""

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import textwrap

import pandas as pd
import pytest
import torch

from inspector import record
from inspector.errors import OutputError


def ours(folder):
    """A folder as a run of this program leaves it."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"tool": "inspector", "files": ["old.txt", "run.json"]}))
    (folder / "old.txt").write_text("old")
    return folder


def leftovers(parent):
    return sorted(p.name for p in parent.iterdir() if p.name.startswith("."))


def test_a_folder_appears_whole(tmp_path):
    with record.folder(tmp_path / "a" / "b") as target:
        (target / "x.txt").write_text("x")
        assert not (tmp_path / "a" / "b").exists()
    assert (tmp_path / "a" / "b" / "x.txt").read_text() == "x"
    assert leftovers(tmp_path / "a") == []


@pytest.mark.parametrize("exchange", [True, False])
def test_an_older_run_is_replaced_whole(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(record, "_exchange", lambda one, other: False)
    goal = ours(tmp_path / "out")
    with record.folder(goal) as target:
        (target / "new.txt").write_text("new")
    assert sorted(p.name for p in goal.iterdir()) == ["new.txt"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("exchange", [True, False])
def test_a_failed_run_leaves_the_older_one_untouched(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(record, "_exchange", lambda one, other: False)
    goal = ours(tmp_path / "out")
    with pytest.raises(ZeroDivisionError), record.folder(goal) as target:
        (target / "new.txt").write_text(str(1 / 0))
    assert sorted(p.name for p in goal.iterdir()) == ["old.txt", "run.json"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("content", [{"notes.txt": "mine"}, {"run.json": "{}"}, {"run.json": "no json"},
                                     {"run.json": '{"tool": "other"}', "x": ""}, {"run.json": "[1]"},
                                     {"run.json": '{"tool": "inspector", "files": ["run.json"]}', "notes.txt": "mine"},
                                     {"run.json": '{"tool": "inspector"}'},
                                     {"run.json": '{"tool": "inspector", "files": 3}'}])
def test_foreign_folders_are_never_replaced(tmp_path, content):
    goal = tmp_path / "out"
    goal.mkdir()
    for name, text in content.items():
        (goal / name).write_text(text)
    with pytest.raises(OutputError, match="did not write"), record.folder(goal):
        pass
    assert {p.name: p.read_text() for p in goal.iterdir()} == content


def test_files_and_links_in_the_way_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("file", "link"):
        with pytest.raises(OutputError, match="not a folder"), record.folder(tmp_path / name):
            pass
    with pytest.raises(OutputError, match="cannot write"), record.folder(tmp_path / "file" / "below"):
        pass
    assert (tmp_path / "file").read_text() == "x"


def test_what_others_put_into_an_older_run_is_never_lost(tmp_path):
    """A second run over its own folder works; with a note or a folder of somebody's in it, it is refused."""
    for _ in range(2):
        with record.folder(tmp_path / "out") as target:
            (target / "sub").mkdir()
            (target / "sub" / "x").write_text("x")
            record.write_text(target / "run.json", record.to_json({"tool": "inspector"}))
    assert json.loads((tmp_path / "out" / "run.json").read_text())["files"] == ["run.json", "sub/x"]
    (tmp_path / "out" / "sub" / "note").write_text("mine")
    with pytest.raises(OutputError, match="did not write"), record.folder(tmp_path / "out"):
        pass
    assert (tmp_path / "out" / "sub" / "note").read_text() == "mine"


def test_the_current_folder_is_never_replaced(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for goal in (".", "", "..", str(tmp_path), "/", "../here"):
        with pytest.raises(OutputError, match="current folder"), record.folder(goal):
            pass


@pytest.mark.parametrize("goal", ["x" * 300, "a\0b", None, "/proc/nothing/x", "~nobody-of-that-name/x"])
def test_goals_that_cannot_be(tmp_path, monkeypatch, goal):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="cannot write"), record.folder(goal):
        pass
    assert list(tmp_path.iterdir()) == []


def test_csv_files_are_whole_and_only_plain_files_are_replaced(tmp_path):
    table = pd.DataFrame({"x": [1]})
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    record.write_csv(table, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == '"x"\n1\n'
    os.mkfifo(tmp_path / "pipe")
    for bad in ("pipe", "", "real.csv/x", "none/x.csv", "y" * 300):
        with pytest.raises(OutputError):
            record.write_csv(table, tmp_path / bad)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.csv", "pipe", "real.csv"]


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "out").mkdir()
    with record.folder(tmp_path / "out") as target:
        (target / "x").write_text("x")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["x"]


def test_what_a_killed_run_left_is_mended(tmp_path):
    """A folder caught between two renames comes back; unfinished ones of dead processes go; those of live ones stay."""
    ours(tmp_path / ".out.old")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".out.tmp-{dead.pid}").mkdir()
    (tmp_path / f".out.tmp-{os.getppid()}").mkdir()
    with pytest.raises(ZeroDivisionError), record.folder(tmp_path / "out"):
        1 / 0  # noqa: B018
    assert (tmp_path / "out" / "old.txt").read_text() == "old"
    assert leftovers(tmp_path) == [f".out.tmp-{os.getppid()}"]


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_command_leaves_nothing(tmp_path, name):
    """A running command gets the signal in the middle of its folder: no trace of it, and the older folder stands."""
    ours(tmp_path / "out")
    script = textwrap.dedent(f"""
        import sys, time
        from inspector import cli, record
        def slow(args):
            with record.folder({str(tmp_path / 'out')!r}) as target:
                (target / "half").write_text("x")
                print("ready", flush=True)
                time.sleep(30)
        cli.RUN["heads"] = slow
        sys.exit(cli.main(["heads"]))
    """)
    # A shell starts background jobs with SIGINT ignored, and children inherit it: here it must count.
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(name)
    _, error = process.communicate(timeout=20)
    assert process.returncode in (130, 143)
    assert b"Traceback" not in error
    assert leftovers(tmp_path) == []
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["old.txt", "run.json"]


def test_json_has_no_nan_and_keeps_text():
    data = {"a": math.nan, "b": [math.inf, 1.5], "c": torch.tensor([[1.0, math.nan]]), "d": "é😀\u2028", "e": (1, None)}
    text = record.to_json(data)
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": [[1.0, None]], "d": "é😀\u2028", "e": [1, None]}
    assert "é😀" in text


def test_csv_reads_back_as_it_was():
    """Tokens that look like missing values or quotes survive; numbers are bare, text is quoted, non-finite is empty."""
    tokens = ["NA", "null", "\r", '"', ",", "", "\n", " nan", "é"]
    table = pd.DataFrame({"token": tokens, "x": [1.5, math.nan, math.inf, -math.inf, 0.1, 1e-300, 2, 3, 4],
                          "n": range(9), "many": [["a", "b"]] + [[]] * 8})
    buffer = io.StringIO(newline="")
    record.to_csv(table, buffer)
    text = buffer.getvalue()
    assert '"a; b"' in text
    back = pd.read_csv(io.StringIO(text, newline=""), keep_default_na=False, lineterminator="\n")
    assert back["token"].tolist() == tokens
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[1][1] == "1.5"
    assert [row[1] for row in rows[2:5]] == ["", "", ""]
    assert float(rows[6][1]) == 1e-300


def test_the_run_record_is_enough_to_run_again(tmp_path):
    import inspector
    model = inspector.load("planted")
    run = inspector.trace(model, "abc", bos=True).run
    assert run["tool"] == "inspector"
    assert run["verb"] == "trace"
    assert run["arguments"]["ids"] == [127, 97, 98, 99]
    assert run["arguments"]["bos"] is True
    assert run["arguments"]["kernel"] == "grid"
    assert run["model"]["source"] == "planted"
    assert len(run["model"]["sha256"]["model.safetensors"]) == 64
    assert run["versions"]["torch"] == torch.__version__.split("+")[0] or run["versions"]["torch"] == torch.__version__
    assert (run["dtype"], run["device"], run["threads"]) == ("float32", "cpu", torch.get_num_threads())
    json.loads(record.to_json(run))
