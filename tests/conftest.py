"""Shared by all tests: no network, a Hugging Face home of their own, few threads, and the markers' skips."""

import atexit
import os
import shutil
import socket
import tempfile
from pathlib import Path

# -- the Hugging Face home: set before huggingface_hub is imported, which reads it once ------------------------------


def _real_cache():
    """Where the user's own hub cache is, by huggingface_hub's rules."""
    env = os.environ
    home = env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or str(Path(home) / "hub")


if "INSPECTOR_TESTS_REAL_CACHE" not in os.environ:       # workers of pytest-xdist inherit the first process's choice
    os.environ["INSPECTOR_TESTS_REAL_CACHE"] = _real_cache()
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT"):
        os.environ.pop(name, None)
    os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="inspector-tests-hf-")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

if "PYTEST_XDIST_WORKER" in os.environ:                  # so many threads as processes: also in those that tests start
    os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402

from . import browser as chromium  # noqa: E402
from . import models  # noqa: E402

REAL_CACHE = Path(os.environ["INSPECTOR_TESTS_REAL_CACHE"])
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else min(2, os.cpu_count() or 1))


def _real_gpt2():
    """The snapshot folder of the real GPT-2 small in the user's cache, or None."""
    for repo in ("models--openai-community--gpt2", "models--gpt2"):
        for weights in sorted(REAL_CACHE.glob(f"{repo}/snapshots/*/model.safetensors")):
            if (weights.parent / "config.json").is_file() and weights.stat().st_size == 548_105_171:
                return weights.parent
    return None


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpt2") and _real_gpt2() is None:
        pytest.skip(f"needs the real GPT-2 weights (openai-community/gpt2), which are not in {REAL_CACHE}")


@pytest.fixture(scope="session")
def gpt2_folder():
    """The folder of the real GPT-2 small; only for tests marked gpt2."""
    return _real_gpt2()


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, one for each file of tests."""
    with chromium.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """What a server of the tests serves unless they say otherwise: {name: Model} of the demo and a tiny model."""
    from .serving import two_models
    return two_models(tmp_path_factory.mktemp("worded"))


@pytest.fixture(scope="module")
def client(loaded):
    """A client of a running server of these."""
    from .serving import running
    with running(loaded) as found:
        yield found


@pytest.fixture(scope="session")
def stand_in_folder(tmp_path_factory):
    """A random model of GPT-2 small's size and layout, with the true tokenizer: 548 MB, so for few tests."""
    folder = models.stand_in(tmp_path_factory.mktemp("stand-in"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def true_tokenizer_folder(tmp_path_factory):
    """A folder with GPT-2's own vocab.json and merges.txt."""
    return models.true_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """A connection to anywhere but this machine fails the test that tries it."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            pytest.fail(f"a test tried to connect to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
