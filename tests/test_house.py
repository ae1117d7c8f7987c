"""The house: data runs one way, names do not collide, imports are light, and the ledger's tests exist."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inspector
from inspector import cli

from . import models

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "inspector"
# Who may import whom: each only from those before it. Names are folders or modules at the top of the package.
ORDER = [{"errors"}, {"__init__"}, {"decimals", "showing"}, {"record"}, {"checkpoint", "demo"}, {"model"},
         {"findings", "parity"}, {"checks"}, {"answers"}, {"pages"}, {"terminal"}, {"server"}, {"options", "verbs"}, {"cli"},
         {"__main__"}]
# The planted model is a source that is made in code: the loader calls it, inside one function.
ALLOWED = {("findings", "demo"), ("checkpoint", "demo"), ("demo", "checkpoint")}


def imports(path):
    """(top-level name in the package, imported module) of every import of our own in a file."""
    here = path.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[:len(here) - node.level]
            if base:
                yield base[0]
            elif node.module:
                yield node.module.split(".")[0]
            else:
                for alias in node.names:
                    yield alias.name if (PACKAGE / alias.name).exists() or (PACKAGE / f"{alias.name}.py").exists() \
                        else "__init__"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not any(name.split(".")[0] == "inspector" for name in names), f"{path}: import relatively"


def test_data_runs_one_way():
    rank = {name: n for n, names in enumerate(ORDER) for name in names}
    for path in PACKAGE.rglob("*.py"):
        me = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for other in imports(path):
            if other != me and (me, other) not in ALLOWED:
                assert rank[other] < rank[me], f"{path.relative_to(ROOT)} imports {other}, which comes later"


def test_scripts_of_pages_keep_to_the_width_of_the_code():
    for path in PACKAGE.rglob("*.js"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert len(line) <= 125, f"{path.relative_to(ROOT)}:{number}"


def test_no_module_bears_a_public_function_s_name():
    public = set(inspector.__all__)
    for path in PACKAGE.iterdir():
        assert path.name.removesuffix(".py") not in public, path


def test_every_public_name_is_there():
    for name in inspector.__all__:
        assert callable(getattr(inspector, name))
    assert set(inspector.__all__) <= set(dir(inspector))
    with pytest.raises(AttributeError, match="nothing"):
        _ = inspector.nothing


@pytest.mark.parametrize("code", ["import inspector", "from inspector.cli import main; main([])",
                                  "import sys; from inspector.cli import main; sys.exit(main(['report', '--help']))"])
def test_import_and_help_are_light(code):
    script = (f"import sys, atexit\natexit.register(lambda: print([m for m in ('torch', 'transformers', 'numpy', 'pandas', "
              f"'matplotlib') if m in sys.modules], file=sys.stderr))\n{code}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr.strip() == "[]"


NO_PROOF = {"info": ["--tokens", "9"], "trace": ["--ids", "1 2 1"], "heads": ["--n-sequences", "2", "--period", "5"],
            "attribute": ["--ids", "1 2 1"], "induction": ["--ids", "1 2 1"], "circuits": ["--samples", "2"],
            "ablate": ["--n-sequences", "2", "--heads", "0.0", "--n-controls", "1"],
            "intervene": ["--ids", "1 2 1", "--edits", "0.0=mean"],
            "study": ["--n-sequences", "2", "--n-controls", "1"], "report": ["--ids", "1 2 1", "--no-check"],
            "explore": ["--ids", "1 2 1"]}


IMPORTED = """import json, sys
from inspector.cli import main
for argv in json.loads(sys.argv[1]):
    code = main(argv)
    there = [name for name in ("transformers", "matplotlib.pyplot") if name in sys.modules]
    print("after", argv[0], code, *there, file=sys.stderr)"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """{verb: (exit code, what was imported by then)} of one fresh process that runs every verb, the proof last."""
    at = tmp_path_factory.mktemp("imported")
    models.tiny_folder(at / "model")
    asked = [[verb, "--model", str(at / "model"), *more,
              *(["--out", str(at / verb)] if verb in ("trace", "report", "explore") else [])]
             for verb, more in {**NO_PROOF, "check": ["--ids", "1 2 1"]}.items()]
    done = subprocess.run([sys.executable, "-c", IMPORTED, json.dumps(asked)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("after ")]
    return {verb: (int(code), names) for verb, code, *names in told}


@pytest.mark.parametrize("verb", [*NO_PROOF, "check"])
def test_transformers_is_imported_by_the_proof_alone(verb, imported):
    """No verb imports it, or pyplot; the proof, the last of one process, does, so that the test can see it."""
    assert imported[verb] == (0, ["transformers"] if verb == "check" else [])


def test_every_verb_is_asked_whether_it_imports_transformers():
    # A server runs until it is stopped: test_server.py asks it.
    assert {*NO_PROOF, "check", "serve"} == set(verbs())


def test_only_parity_imports_transformers():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "parity.py":
            assert not re.search(r"^\s*(import|from) transformers", path.read_text(encoding="utf-8"), re.M), path


# -- CLI = API -------------------------------------------------------------------------------------------------------

EDGE = {"model", "dtype", "device", "quiet", "json", "file", "csv", "help", "preset", "attention"}      # of the edge alone


def verbs():
    actions = next(a for a in cli.build_parser()._actions if hasattr(a, "choices") and a.choices)
    return actions.choices


def test_every_verb_is_a_function_and_every_function_a_verb():
    assert set(verbs()) == set(inspector.__all__) - {"load", "InspectorError"}
    assert set(cli.RUN) == set(verbs())


# Tensors and functions: they cannot be typed.
LIBRARY = {("circuits", "previous"), ("report", "note"), ("trace", "edits"), ("serve", "note")}
TYPED = {"trace": {"text", "ids", "bos"}}      # what is typed to make an argument that cannot be


@pytest.mark.parametrize("verb", sorted(set(inspector.__all__) - {"load", "InspectorError"}))
def test_verbs_have_the_arguments_and_defaults_of_their_functions(verb):
    signature = inspect.signature(getattr(inspector, verb)).parameters
    options = {action.dest: action for action in verbs()[verb]._actions}
    theirs = {name for name in signature if (verb, name) not in LIBRARY} - {"model", "progress"}
    mine = set(options) - (EDGE - theirs) - ({"out"} if verb in ("trace", "study", "explore") else set())
    assert mine == set().union(*(TYPED.get(name, {name}) for name in theirs))
    for name in theirs - set(TYPED):
        default = inspect.Parameter.empty if options[name].required else options[name].default
        assert (str(default) if isinstance(default, Path) else default) == signature[name].default, name


def test_every_verb_and_option_has_help():
    for name, parser in verbs().items():
        for action in parser._actions:
            assert action.help, (name, action.dest)


# -- the ledger ------------------------------------------------------------------------------------------------------

def test_every_test_named_in_the_ledger_exists():
    text = (ROOT / "tests" / "CLAIMS.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(test_\w+\.py)::(test_\w+)", text))
    assert len(named) > 100
    for file, test in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", source, re.M), f"{file}::{test}"


def test_every_row_of_the_ledger_has_evidence():
    rows = [line for line in (ROOT / "tests" / "CLAIMS.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("| ") and not line.startswith(("| claim", "| ---"))]
    assert rows
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 3, row
        assert all(cells), row
