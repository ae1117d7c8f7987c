"""The README is held true: its commands run and print what it says, its Python runs, its files and verbs exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import inspector
from inspector.cli import RUN, main

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.S)


def words(text):
    """The text without its numbers and its padding."""
    return NUMBER.sub("#", text).split()


def numbers(text):
    return [float(n.replace(",", "")) for n in NUMBER.findall(text)]


@pytest.mark.parametrize("block", blocks("console"), ids=lambda b: b.splitlines()[0][:40])
def test_commands_print_what_the_readme_says(tmp_path, monkeypatch, capsys, block):
    """In this process, by the command line's own entry; test_cli.py starts it as a program."""
    command, _, expected = block.partition("\n")
    program, *argv = shlex.split(command.removeprefix("$ "))
    assert program == "inspector"
    assert expected.strip(), "the README shows no output"
    monkeypatch.chdir(tmp_path)
    try:
        code = main(argv)
    except SystemExit as stop:                  # --help
        code = stop.code
    printed, error = capsys.readouterr()
    assert code == 0, error
    if argv[0] == "check":            # rounding differs from machine to machine: the cells that differ most, and by how much
        assert words(printed)[-2:] == words(expected)[-2:]
        assert {w for w in words(printed) if w.isalpha()} == {w for w in words(expected) if w.isalpha()}
    else:
        assert words(printed) == words(expected)
        assert numbers(printed) == pytest.approx(numbers(expected), abs=2e-3, rel=1e-3)


def test_the_python_runs_and_prints(tmp_path):
    code, output = "\n".join(blocks("python")), blocks("text")
    assert len(output) == 1
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={**__import__("os").environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == output[0].strip()


def test_every_verb_and_function_stands_in_it():
    for verb in RUN:
        assert f"### `{verb}`" in TEXT
        assert any(f"inspector {verb}" in block for block in blocks("console"))
    assert "inspector.load(" in TEXT
    assert inspector.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_file_it_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_pip_is_always_constrained():
    for name in ("README.md", "Makefile", ".ci/run"):
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
            if "pip install" in line:
                assert "-c constraints.txt" in line, f"{name}: {line}"


def test_make_targets_it_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", TEXT):
        if target not in ("it",):
            assert re.search(rf"^{target}:", makefile, re.M), target
