"""The command line: bad input ends in one line and exit code 2; output is clean; exit codes mean what they say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import inspector
from inspector.cli import main

from . import models

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(models.tiny_folder(tmp_path_factory.mktemp("cli"), n_positions=64))


def run(capsys, *argv):
    """(exit code, stdout, stderr) of one command, in this process."""
    try:
        code = main(list(argv))
    except SystemExit as stop:
        code = stop.code
    out = capsys.readouterr()
    return code, out.out, out.err


def one_line(error):
    return error.startswith("inspector") and error.endswith("\n") and error.count("\n") == 1


BAD = {
    "unknown verb": ["nothing"],
    "unknown option": ["heads", "--nothing"],
    "no such model": ["heads", "--model", "/no/such/folder"],
    "model is a folder of something else": ["info", "--model", str(ROOT / "tests")],
    "empty model": ["info", "--model", ""],
    "no text": ["trace", "--model", "{model}", "--out", "{out}"],
    "empty text": ["trace", "", "--model", "{model}", "--out", "{out}"],
    "two texts": ["trace", "a", "--ids", "1", "--model", "{model}", "--out", "{out}"],
    "three texts": ["trace", "a", "--ids", "1", "--file", "x", "--model", "{model}", "--out", "{out}"],
    "no such file": ["trace", "--file", "/no/such/file", "--model", "{model}", "--out", "{out}"],
    "a folder for a file": ["trace", "--file", "/", "--model", "{model}", "--out", "{out}"],
    "bytes that are no text": ["trace", "--file", "{latin}", "--model", "{model}", "--out", "{out}"],
    "a surrogate": ["trace", "a\udcff", "--model", "{model}", "--out", "{out}"],
    "ids that are no numbers": ["check", "--ids", "1 two", "--model", "{model}"],
    "ids outside": ["check", "--ids", "1 99999", "--model", "{model}"],
    "negative ids": ["check", "--ids=-1", "--model", "{model}"],
    "no ids": ["check", "--ids", "", "--model", "{model}"],
    "too long": ["check", "--ids", " ".join(["1"] * 65), "--model", "{model}"],
    "dtype": ["heads", "--dtype", "int8", "--model", "{model}"],
    "device": ["heads", "--device", "nowhere", "--model", "{model}"],
    "period too long": ["heads", "--period", "33", "--model", "{model}"],
    "period no number": ["heads", "--period", "long", "--model", "{model}"],
    "protocol": ["heads", "--protocol", "mine", "--model", "{model}"],
    "threshold": ["heads", "--period", "9", "--threshold", "7", "--model", "{model}"],
    "against": ["check", "--against", "nobody", "--model", "{model}"],
    "not the planted model": ["check", "--against", "planted", "--model", "{model}"],
    "tokens": ["info", "--tokens", "0", "--model", "{model}"],
    "out is a file": ["trace", "a", "--model", "{model}", "--out", "{file}"],
    "out is foreign": ["trace", "a", "--model", "{model}", "--out", "{foreign}"],
    "out below a file": ["trace", "a", "--model", "{model}", "--out", "{file}/x"],
    "csv nowhere": ["heads", "--period", "9", "--model", "{model}", "--csv", "/no/such/folder/x.csv"],
    "csv name too long": ["heads", "--period", "9", "--model", "{model}", "--csv", "x" * 300],
    "csv below a file": ["heads", "--period", "9", "--model", "{model}", "--csv", "{file}/x.csv"],
    "csv is a folder": ["check", "a", "--model", "{model}", "--csv", "{foreign}"],
    "out name too long": ["trace", "a", "--model", "{model}", "--out", "x" * 300],
    "out is the current folder": ["trace", "a", "--model", "{model}", "--out", "."],
    "seed too large": ["heads", "--seed", "99999999999999999999999", "--period", "9", "--model", "{model}"],
    "seed negative": ["heads", "--seed", "-1", "--period", "9", "--model", "{model}"],
    "seed of a report": ["report", "a b", "--seed", str(2**64), "--model", "{model}", "--out", "{out}"],
    "a text and a seed": ["heads", "the cat", "--seed", "9", "--model", "{model}"],
    "a text and repeats": ["heads", "the cat", "--repeats", "3", "--model", "{model}"],
    "BOS before nothing": ["check", "--bos", "--model", "{model}"],
    "planted with BOS": ["check", "--bos", "--against", "planted", "--model", "planted"],
    "planted without float64": ["check", "--no-float64", "--against", "planted", "--model", "planted"],
    "a device of another kind": ["info", "--device", "privateuseone", "--model", "{model}"],
    "empty text with BOS": ["trace", "", "--bos", "--model", "{model}", "--out", "{out}"],
    "no such head": ["ablate", "--heads", "9.9", "--period", "9", "--model", "{model}"],
    "a head by one number": ["ablate", "--heads", "1", "--period", "9", "--model", "{model}"],
    "no head": ["ablate", "--heads", "", "--period", "9", "--model", "{model}"],
    "fill": ["ablate", "--fill", "noise", "--period", "9", "--model", "{model}"],
    "patterns": ["ablate", "--patterns", "thawed", "--period", "9", "--model", "{model}"],
    "controls": ["ablate", "--n-controls", "-1", "--period", "9", "--model", "{model}"],
    "an edit of no head": ["intervene", "--ids", "1 2", "--edits", "9.9=zero", "--model", "{model}"],
    "an edit that is none": ["intervene", "--ids", "1 2", "--edits", "0.0", "--model", "{model}"],
    "an edit below 0": ["intervene", "--ids", "1 2", "--edits", "0.0=-1", "--model", "{model}"],
    "a head edited twice": ["intervene", "--ids", "1 2", "--edits", "0.0=1 0.0=2", "--model", "{model}"],
    "no text to intervene on": ["intervene", "--edits", "0.0=zero", "--model", "{model}"],
    "a port": ["serve", "--port", "70000", "--model", "{model}"],
    "every address": ["serve", "--host", "0.0.0.0", "--model", "{model}"],
    "no address of ours": ["serve", "--host", "192.0.2.1", "--port", "0", "--model", "{model}"],
    "a queue below 0": ["serve", "--queue", "-1", "--port", "0", "--model", "{model}"],
    "no time": ["serve", "--timeout", "nan", "--port", "0", "--model", "{model}"],
    "a model that is none": ["serve", "--port", "0", "--model", "{model}", "--model", "{file}"],
    "a target of many tokens": ["attribute", "the cat", "--target", "telecommunications act", "--model", "{model}"],
    "a target outside": ["attribute", "--ids", "1 2", "--target", "99999999", "--model", "{model}"],
    "a target against itself": ["attribute", "--ids", "1 2", "--target", "3", "--against", "3", "--model", "{model}"],
    "a position outside": ["attribute", "--ids", "1 2", "--position", "2", "--model", "{model}"],
    "no text to attribute": ["attribute", "--model", "{model}"],
    "no text to induce": ["induction", "--model", "{model}"],
    "heads and a period": ["induction", "--ids", "1 2 1", "--heads", "0.0", "--period", "9", "--model", "{model}"],
    "samples": ["circuits", "--samples", "1", "--model", "{model}"],
    "directions": ["circuits", "--n-directions", "0", "--model", "{model}"],
    "k below": ["study", "--k-below", "2", "--period", "9", "--model", "{model}"],
    "csv inside out": ["study", "--period", "9", "--model", "{model}", "--out", "{out}", "--csv", "{out}/x.csv"],
    "study into a foreign folder": ["study", "--period", "9", "--model", "{model}", "--out", "{foreign}"],
    "study csv nowhere": ["study", "--period", "9", "--model", "{model}", "--csv", "/no/such/folder/x.csv"],
    "nothing published": ["check", "--against", "published", "--model", "{model}"],
    "published on a text": ["check", "a", "--against", "published", "--model", "demo"],
    "preset": ["report", "--preset", "nothing", "--model", "{model}", "--out", "{out}"],
    "preset and text": ["report", "a", "--preset", "cat", "--model", "{model}", "--out", "{out}"],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path, folder, name):
    (tmp_path / "latin").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine.txt").write_text("mine")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    places = {"model": folder, "out": tmp_path / "out", "latin": tmp_path / "latin", "file": tmp_path / "file",
              "foreign": tmp_path / "foreign"}
    argv = [a.format(**places) if "{" in a else a for a in BAD[name]]
    code, out, error = run(capsys, *argv)
    assert code == 2
    assert out == ""
    assert one_line(error), error
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def test_a_missing_text_names_every_way_to_give_one(capsys, tmp_path, folder):
    _, _, error = run(capsys, "report", "--model", folder, "--out", str(tmp_path / "out"))
    assert all(way in error for way in ("TEXT", "--file", "-", "--ids", "--preset"))


def test_the_planted_check_takes_the_planted_model(capsys, monkeypatch):
    from inspector import checks
    seen = {}
    monkeypatch.setattr(checks, "check", lambda model, *a, **k: seen.update(model=model) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["check", "--against", "planted"])
    assert seen["model"].files.source == "planted"


def test_a_missing_model_names_the_demo(capsys):
    code, _, error = run(capsys, "info")
    assert code == 2
    assert "--model demo" in error


def test_no_verb_prints_the_help(capsys):
    code, out, _ = run(capsys)
    assert code == 2
    assert "heads" in out


def test_text_from_argument_file_and_standard_input_are_the_same(capsys, tmp_path, folder):
    """Standard input, whose bytes are read, is that of another process."""
    text = "the cat sät\non the mat "
    (tmp_path / "text").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "inspector", "heads", "-", "--model", folder, "--json"],
                          input=text.encode(), capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = [json.loads(done.stdout)["rows"]]
    for given in ([text], ["--file", str(tmp_path / "text")]):
        code, out, error = run(capsys, "heads", *given, "--model", folder, "--json")
        assert code == 0, error
        found.append(json.loads(out)["rows"])
    assert found[0] == found[1] == found[2]


def test_bytes_on_the_command_line_that_are_no_text(folder):
    done = subprocess.run([sys.executable, "-m", "inspector", "heads", b"caf\xe9", "--model", folder], capture_output=True,
                          cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr == b"inspector: the text is not valid UTF-8 (byte 3)\n"


@pytest.mark.parametrize(("shell", "code", "error"), [
    ("info --model {m} >/dev/full", 2, "inspector: No space left on device\n"),
    ("info --model {m} >&-", 2, "inspector: standard output is closed\n"),
    ("info - --model {m} <&-", 2, "inspector: standard input is closed: there is no text to read\n"),
    ("info --model {m} 2>&- >/dev/null", 0, ""),
    ("info --model /nothing 2>&-", 2, ""),
    ("info --model {m} --json >/dev/full", 2, "inspector: No space left on device\n"),
])
def test_streams_that_are_closed_or_full(folder, shell, code, error):
    done = subprocess.run(f"{sys.executable} -m inspector " + shell.format(m=folder), shell=True, capture_output=True,
                          text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (code, error)


def test_a_terminal_that_speaks_no_unicode(folder):
    """Labels are written as escapes there; JSON is UTF-8 all the same."""
    for option, decode in (([], "ascii"), (["--json"], "utf-8")):
        done = subprocess.run([sys.executable, "-m", "inspector", "info", "the cat", "--model", folder, *option], cwd=ROOT,
                              capture_output=True, env={**__import__("os").environ, "PYTHONIOENCODING": "ascii"})
        assert done.returncode == 0, done.stderr
        text = done.stdout.decode(decode)
    assert "·" in "".join(json.loads(text)["text"]["labels"])


def test_a_full_disk_is_one_line(tmp_path, folder):
    command = f"ulimit -f 4; {sys.executable} -m inspector trace 'the cat' --model {folder} --out {tmp_path}/out"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert one_line(done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_error(folder):
    done = subprocess.run(f"{sys.executable} -m inspector heads --period 9 --model {folder} | head -c 1", shell=True,
                          capture_output=True, cwd=ROOT)
    assert done.stderr == b""


# -- what comes out --------------------------------------------------------------------------------------------------

def test_heads_as_json_csv_and_frame_are_the_same(capsys, tmp_path, folder):
    code, out, error = run(capsys, "heads", "--period", "12", "--seed", "3", "--model", folder, "--json", "--csv",
                           str(tmp_path / "heads.csv"))
    assert (code, error) == (0, "")
    data = json.loads(out)
    frame = inspector.heads(inspector.load(folder), period=12, seed=3)
    assert list(data["rows"][0]) == list(frame.columns)
    assert [row["induction"] for row in data["rows"]] == frame["induction"].tolist()
    assert data["rows"][0]["verdict"] == frame["verdict"][0]
    assert data["run"]["arguments"]["seed"] == 3
    back = pd.read_csv(tmp_path / "heads.csv", keep_default_na=False)
    assert list(back.columns) == list(frame.columns)
    np.testing.assert_allclose(back["induction"], frame["induction"], rtol=1e-15)


def test_json_has_null_where_there_is_no_number(capsys, folder):
    _, out, _ = run(capsys, "heads", "--ids", "1 2 3", "--model", folder, "--json")
    row = json.loads(out)["rows"][0]
    assert row["induction"] is None
    assert row["previous_token_se"] is None
    assert row["verdict"] == []


def test_check_exits_0_and_1(capsys, folder, monkeypatch):
    code, out, _ = run(capsys, "check", "the cat", "--model", folder)
    assert code == 0
    assert out.endswith("verdict: passed\n")
    from inspector import parity
    monkeypatch.setattr(parity, "FORMULA", 1e-30)
    code, out, _ = run(capsys, "check", "the cat", "--model", folder)
    assert code == 1
    assert out.endswith("verdict: failed\n")
    code, out, _ = run(capsys, "check", "the cat", "--model", folder, "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False


def test_check_as_json(capsys, folder):
    _, out, error = run(capsys, "check", "the cat", "--model", folder, "--json")
    data = json.loads(out)
    assert error == ""
    assert data["passed"] is True
    assert set(data["rows"][0]) == {"part", "quantity", "layer", "head", "ours", "theirs", "difference", "bound", "verdict"}
    assert data["rows"][-1]["head"] is None


def test_trace_writes_what_the_formats_promise(capsys, tmp_path, folder):
    text = "the cat\r\nNA sat </script> $$ 😀"
    code, _, error = run(capsys, "trace", text, "--model", folder, "--out", str(tmp_path / "t"), "--bos")
    assert (code, error) == (0, "")
    names = {p.name for p in (tmp_path / "t").iterdir()}
    assert names == {"trace.safetensors", "tokens.csv", "attention.csv", "run.json"}
    model = inspector.load(folder)
    want, found = inspector.trace(model, text, bos=True), load_file(tmp_path / "t" / "trace.safetensors")
    n = len(want.ids)
    shapes = {"ids": [n], "q": [3, 4, n, 6], "k": [3, 4, n, 6], "v": [3, 4, n, 6], "z": [3, 4, n, 6],
              "scores": [3, 4, n, n], "pattern": [3, 4, n, n], "resid_pre": [3, n, 24], "resid_mid": [3, n, 24],
              "resid_post": [3, n, 24], "logits": [n, 271]}
    assert {name: list(t.shape) for name, t in found.items()} == shapes
    for name, tensor in found.items():
        assert torch.equal(tensor, getattr(want, name)), name
    torch.testing.assert_close(torch.softmax(found["scores"], -1), found["pattern"])
    tokens = pd.read_csv(tmp_path / "t" / "tokens.csv", keep_default_na=False, lineterminator="\n")
    assert list(tokens.columns) == ["position", "id", "token", "label"]
    assert tokens["id"].tolist() == want.ids.tolist()
    assert tokens["label"].tolist() == want.labels
    attention = pd.read_csv(tmp_path / "t" / "attention.csv")
    assert list(attention.columns) == ["layer", "head", "query", "key", "weight"]
    assert len(attention) == 12 * n * (n + 1) // 2
    row = attention[(attention["layer"] == 2) & (attention["head"] == 1) & (attention["query"] == 7)
                    & (attention["key"] == 3)]["weight"].item()
    assert np.float32(row) == want.pattern[2, 1, 7, 3].item()
    run_json = json.loads((tmp_path / "t" / "run.json").read_text())
    assert run_json["arguments"]["bos"] is True
    assert run_json["arguments"]["ids"][0] == 270


def test_long_traces_leave_attention_csv_out_unless_asked(capsys, tmp_path):
    model = str(models.tiny_folder(tmp_path / "m", n_positions=256))
    ids = " ".join(["7"] * 201)
    run(capsys, "trace", "--ids", ids, "--model", model, "--out", str(tmp_path / "a"))
    assert not (tmp_path / "a" / "attention.csv").exists()
    run(capsys, "trace", "--ids", ids, "--model", model, "--out", str(tmp_path / "b"), "--attention")
    assert (tmp_path / "b" / "attention.csv").exists()
    run(capsys, "trace", "--ids", " ".join(["7"] * 200), "--model", model, "--out", str(tmp_path / "a"))
    assert (tmp_path / "a" / "attention.csv").exists()


def test_the_same_command_writes_the_same_bytes(tmp_path, folder):
    for name in ("a", "b"):
        done = subprocess.run([sys.executable, "-m", "inspector", "trace", "the cat", "--model", folder, "--out", "out"],
                              cwd=tmp_path, capture_output=True, env={**__import__("os").environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stderr
        (tmp_path / "out").rename(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_info_prints_the_sizes(capsys, folder):
    code, out, error = run(capsys, "info", "the cat", "--model", folder, "--tokens", "1048576")
    assert (code, error) == (0, "")
    assert "1,099,511,627,776" in out          # 1048576 squared
    assert "d_head 6" in out
    _, out, _ = run(capsys, "info", "--model", folder, "--json")
    assert json.loads(out)["config"]["d_head"] == 6


def test_a_report_tells_what_the_proof_cost_on_the_terminal_alone(capsys, tmp_path, folder):
    """One line on stderr, none when quiet; the files of both runs hold no time: they are the same."""
    written = []
    line = r"inspector: proof against Hugging Face: \d+\.\d s of \d+\.\d s\n"
    for name, more, told in (("a", [], line), ("b", ["--quiet"], "")):
        out = tmp_path / name
        assert main(["report", "--model", str(folder), "--ids", "1 2 3 1 2", "--out", str(out), *more]) == 0
        assert re.fullmatch(told, capsys.readouterr().err)
        written.append({p.name: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "run.json"})
    assert written[0] == written[1]
