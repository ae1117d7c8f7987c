"""`scripts/reproduce_induction.py`: tables and figure from checkpoints made on the spot, resuming, and bad input."""

import importlib
import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from . import models

SCRIPTS = Path(__file__).parent.parent / "scripts"
STEPS = (0, 8, 30)


@pytest.fixture
def script(monkeypatch):
    """The script as a module, on short sequences, few windows, and tiny models."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    module = importlib.import_module("reproduce_induction")
    monkeypatch.setattr(module, "PERIOD", 12)
    monkeypatch.setattr(module, "SEQUENCES", 4)
    monkeypatch.setattr(module.train_demo, "CONTEXT", 96)
    monkeypatch.setattr(module.train_demo, "SAMPLE", 3)
    return module


@pytest.fixture
def no_figure(script, monkeypatch):
    """Empty figures, for tests that look at other things."""
    monkeypatch.setattr(script, "files", lambda draw: {"png": b"", "svg": b""})


def make_run(folder, layers, repeats=0.25, steps=STEPS):
    """A run's folder as the training script leaves it, its models random."""
    for n, step in enumerate(steps):
        models.tiny_folder(folder / f"step_{step:06d}", seed=n, n_layer=layers, n_positions=100)
    facts = {"layers": layers, "steps": steps[-1], "seed": 0, "repeats": repeats}
    (folder / "facts.json").write_text(json.dumps(facts))
    ids = np.random.default_rng(layers).integers(0, models.TINY_VOCAB - 1, 96 * 5)
    np.save(folder / "held_out.npy", ids.astype(np.int32))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The two needed runs, made once; no test changes them."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "layers_4", 4)
    make_run(folder / "layers_1", 1)
    return folder


def main(script, *arguments):
    return script.main([str(argument) for argument in arguments])


def bytes_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_tables_and_figure_and_the_same_bytes_twice(script, runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert main(script, "--runs", runs, "--out", out) == 0
    first = bytes_of(out)
    assert {"heads.csv", "steps.csv", "phase_change.png", "phase_change.svg", "phase_change.txt", "run.json"} <= set(first)

    heads, steps = pd.read_csv(out / "heads.csv", keep_default_na=False), pd.read_csv(out / "steps.csv")
    where = ["run", "folder", "layers", "step"]
    assert list(steps) == [*where, "first_copy_loss", "second_copy_loss", "held_out_loss", "in_context", "in_context_se"]
    assert list(heads) == [*where, "layer", "head", "previous_token", "previous_token_se", "induction", "induction_se",
                           "induction_control", "induction_control_se", "copying_second", "copying_second_se", "copying_z",
                           "copying_z_se", "verdict"]
    assert list(zip(steps["run"], steps["step"], strict=True)) == list(product(["4 layers", "1 layer"], STEPS))
    assert len(heads) == len(STEPS) * (4 + 1) * 4
    caption = (out / "phase_change.txt").read_text()
    for part in ("4 layers: 25 % of the rows repeat", "natural text", "seed 0", "4 sequences of 12 distinct ids",
                 "3 held-out windows"):
        assert part in caption

    def refuse(*_):
        raise AssertionError("scored again")

    monkeypatch.setattr(script, "score", refuse)
    assert main(script, "--runs", runs, "--out", out) == 0
    assert bytes_of(out) == first
    assert capsys.readouterr().out.count("written") == 2


@pytest.mark.usefixtures("no_figure")
def test_numbers_are_those_of_the_training_script_and_of_the_study(script, runs, tmp_path):
    """Losses and best heads as `train_demo.score_checkpoint` has them for training.csv; copying as `copying` has it."""
    import inspector
    from inspector.findings.copying import copying
    steps, heads = script.reproduce(script.find_runs(runs), tmp_path, steps=[8])
    path = runs / "layers_4" / "step_000008"
    held_out = script.train_demo.windows(np.load(runs / "layers_4" / "held_out.npy"), 3)
    row = steps[steps["run"] == "4 layers"].iloc[0]
    mine = heads[heads["run"] == "4 layers"]
    model = inspector.load(path)
    prompts = script.draw(model, period=12, n_sequences=4, seed=1)
    loss = script.train_demo.row_losses(model, prompts.ids)
    assert row["second_copy_loss"] == pytest.approx(float(loss[:, 12:].mean()), rel=1e-6)
    assert row["first_copy_loss"] == pytest.approx(float(loss[:, :11].mean()), rel=1e-6)
    theirs = script.train_demo.score_checkpoint(path, held_out, period=12)
    for column in ("held_out_loss", "in_context", "in_context_se"):
        assert row[column] == pytest.approx(theirs[column], abs=1e-5), column
    said = copying(model, period=12, n_sequences=4, seed=0)
    np.testing.assert_allclose(mine["copying_second"], said["copying_second"], atol=1e-12)
    table = inspector.heads(model, period=12, n_sequences=4, seed=0)
    np.testing.assert_allclose(mine["induction"], table["induction"], atol=1e-12)
    assert mine["verdict"].tolist() == [a + b for a, b in zip(table["verdict"], said["verdict"], strict=True)]


@pytest.mark.usefixtures("no_figure")
def test_a_stopped_run_goes_on_and_ends_the_same(script, runs, tmp_path, monkeypatch):
    assert main(script, "--runs", runs, "--out", tmp_path / "whole") == 0
    real, calls = script.score, []

    def stop(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(script, "score", stop)
    with pytest.raises(KeyboardInterrupt):
        main(script, "--runs", runs, "--out", tmp_path / "stopped")
    broken = tmp_path / "stopped" / "scored" / "layers_4" / "step_000008.json"
    broken.write_text(broken.read_text()[:100])
    assert main(script, "--runs", runs, "--out", tmp_path / "stopped") == 0
    assert len(calls) == 4 + 3 + 1                              # three were left, one was broken, one had been stopped
    assert bytes_of(tmp_path / "stopped") == bytes_of(tmp_path / "whole")


@pytest.mark.usefixtures("no_figure")
def test_another_seed_or_other_weights_are_scored_anew(script, tmp_path):
    make_run(tmp_path / "runs" / "layers_4", 2, steps=(0, 5))
    make_run(tmp_path / "runs" / "layers_1", 1, steps=(0, 5))
    run = script.find_runs(tmp_path / "runs")
    _, first = script.reproduce(run, tmp_path / "out")
    _, other = script.reproduce(run, tmp_path / "out", seed=3)
    assert (first["induction"] != other["induction"]).all()
    _, again = script.reproduce(run, tmp_path / "out")
    pd.testing.assert_frame_equal(first, again)
    models.save(models.tiny_model(9, vocab_size=models.TINY_VOCAB, n_layer=1, n_positions=100),
                tmp_path / "runs" / "layers_1" / "step_000005")
    _, changed = script.reproduce(run, tmp_path / "out")
    same = (first["induction"] == changed["induction"]).to_numpy()
    assert same.tolist() == ((first["run"] != "1 layer") | (first["step"] == 0)).tolist()


@pytest.mark.usefixtures("no_figure")
def test_steps_choose_checkpoints_and_a_further_run_is_drawn(script, runs, tmp_path):
    for name in ("layers_4", "layers_1"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / name).symlink_to(runs / name)
    make_run(tmp_path / "runs" / "on_text", 2, repeats=0.0, steps=(0, 8))
    (tmp_path / "runs" / "unfinished").mkdir()
    assert main(script, "--runs", tmp_path / "runs", "--out", tmp_path / "out", "--steps", 0, 8) == 0
    steps = pd.read_csv(tmp_path / "out" / "steps.csv")
    assert list(steps["step"]) == [0, 8] * 3
    assert list(steps["run"].unique()) == ["4 layers", "1 layer", "2 layers, text alone"]
    assert "no planted repeats" in (tmp_path / "out" / "phase_change.txt").read_text()


def one_line(capsys):
    lines = capsys.readouterr().err.splitlines()
    lines = [line for line in lines if line.startswith("reproduce_induction:")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.usefixtures("no_figure")
def test_absent_runs_say_how_to_make_them(script, runs, tmp_path, capsys):
    assert main(script, "--runs", tmp_path / "none", "--out", tmp_path / "out") == 2
    line = one_line(capsys)
    assert f"python scripts/train_demo.py --out {tmp_path / 'none' / 'layers_4'}" in line
    assert f"python scripts/train_demo.py --layers 1 --out {tmp_path / 'none' / 'layers_1'}" in line
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "layers_4").symlink_to(runs / "layers_4")
    assert main(script, "--runs", tmp_path / "half", "--out", tmp_path / "out") == 2
    line = one_line(capsys)
    assert "--layers 1" in line
    assert "layers_4" not in line
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_figure")
def test_bad_input_is_one_line_and_exit_code_2(script, runs, tmp_path, capsys):
    assert main(script, "--runs", runs, "--out", tmp_path / "a", "--steps", 9) == 2
    assert "no run has a checkpoint of step 9; kept: 0, 8, 30" in one_line(capsys)
    assert main(script, "--runs", runs, "--out", tmp_path / "a", "--seed", -1) == 2
    assert "seed is -1" in one_line(capsys)
    (tmp_path / "file").write_text("")
    assert main(script, "--runs", runs, "--out", tmp_path / "file") == 2
    assert str(tmp_path / "file") in one_line(capsys)
    make_run(tmp_path / "runs" / "layers_4", 1, steps=(0,))
    make_run(tmp_path / "runs" / "layers_1", 1, steps=(0,))
    (tmp_path / "runs" / "layers_1" / "facts.json").write_text("{")
    assert main(script, "--runs", tmp_path / "runs", "--out", tmp_path / "b") == 2
    assert "facts.json cannot be read" in one_line(capsys)
    (tmp_path / "runs" / "layers_1" / "facts.json").write_text('{"layers": 1, "steps": 1, "repeats": 0.25}')
    (tmp_path / "runs" / "layers_1" / "held_out.npy").write_bytes(b"nothing")
    assert main(script, "--runs", tmp_path / "runs", "--out", tmp_path / "b") == 2
    assert "held_out.npy" in one_line(capsys)


@pytest.mark.usefixtures("no_figure")
def test_train_makes_what_is_absent(script, tmp_path, monkeypatch):
    made = []

    def train(folder, **options):
        made.append((folder.name, options))
        make_run(folder, options["layers"], steps=(0,))

    monkeypatch.setattr(script.train_demo, "train", train)
    make_run(tmp_path / "runs" / "layers_4", 2, steps=(0, 2400))
    assert main(script, "--runs", tmp_path / "runs", "--out", tmp_path / "out", "--train") == 0
    assert made == [("layers_1", {"layers": 1, "steps": 2400, "seed": 0, "share": 0.25})]


def test_the_script_trains_what_the_training_script_trains_by_default(script, monkeypatch):
    """One set of defaults: those of train_demo.py's own arguments."""
    seen = {}
    monkeypatch.setattr(script.train_demo, "train", lambda folder, **options: seen.update({folder.as_posix(): options}))
    monkeypatch.setattr(script.train_demo, "score_run", lambda folder: None)
    for layers in ("4", "1"):
        monkeypatch.setattr("sys.argv", ["train_demo.py", "--layers", layers])
        script.train_demo.main()
    theirs = dict(seen)
    seen.clear()
    script.train_absent(Path("build/demo"))
    assert seen == theirs


@pytest.mark.usefixtures("no_figure")
def test_torch_s_own_generator_is_left_alone(script, runs, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    script.reproduce(script.find_runs(runs), tmp_path, steps=[0])
    assert torch.equal(torch.get_rng_state(), before)
