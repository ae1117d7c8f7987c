"""Where files come from: the package, a folder, a file, the Hugging Face cache, and the hub only as the last resort.

The hub is a small server on this machine, and every request to it is recorded. Look-ups run in a process of their own,
because huggingface_hub reads its switches once.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import inspector
from inspector.checkpoint import source
from inspector.errors import SourceError

from .models import save, tiny_folder, tiny_model, tiny_tokenizer

COMMIT, LATER = "607a30d783dfa663caf39e06633721c8d4cfcd7e", "b" * 40
FIND = """
import json, sys
from inspector.checkpoint.source import find
from inspector.errors import SourceError
try:
    found = find(sys.argv[1])
    print(json.dumps({name: value and str(value) for name, value in vars(found).items()}))
except SourceError as error:
    print(json.dumps({"error": str(error)}))
"""


def look_up(name, home, endpoint="http://127.0.0.1:9", **env):
    """What `find` gives for a hub id in a fresh process: a dict of paths, or {"error": ...}. Port 9 answers nobody."""
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("HF_")}, "HF_HOME": str(home), "HF_ENDPOINT": endpoint,
           "PYTHONPATH": str(Path(inspector.__file__).parent.parent), **env}
    run = subprocess.run([sys.executable, "-c", FIND, name], capture_output=True, text=True, env=env, cwd=home, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "Retrying" not in run.stderr
    return json.loads(run.stdout)


def fill_cache(home, repo, files, commit=COMMIT):
    """The cache of huggingface_hub laid by hand: blobs, a snapshot of links to them, and the branch's commit."""
    folder = Path(home) / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for part in (folder / "refs", folder / "blobs", snapshot):
        part.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    for n, (name, data) in enumerate(files.items()):
        blob = folder / "blobs" / f"{n:040x}"
        blob.write_bytes(data)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """{file: bytes} of a tiny repository with more in it than is needed."""
    folder = tiny_folder(tmp_path_factory.mktemp("repo"))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**files, "pytorch_model.bin": b"not wanted", "tf_model.h5": b"not wanted", "README.md": b"not wanted",
            "tokenizer_config.json": b"{}", "generation_config.json": b"{}"}


@pytest.fixture
def hub():
    """A hub on this machine: hub.repos {id: {file: bytes}}, hub.requests [(method, path)], hub.url, hub.status."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            if "/resolve/" in self.path:                                # huggingface_hub asks for a list of its own too
                server.requests.append((self.command, self.path))
            repo, _, rest = self.path.strip("/").partition("/resolve/")
            revision, _, name = rest.partition("/")
            files = server.repos.get(repo)
            data = None if files is None or revision not in ("main", COMMIT) else files.get(name)
            self.send_response(server.status or (200 if data is not None else 404))
            self.send_header("X-Repo-Commit", COMMIT)
            if data is None and not server.status:
                self.send_header("X-Error-Code", "EntryNotFound" if files is not None else "RepoNotFound")
            self.send_header("ETag", f'"{hash(data) % 2 ** 64:x}"')
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            if data is not None and self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET = answer

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.repos, server.requests, server.status, server.url = {}, [], None, f"http://127.0.0.1:{server.server_port}"
    server.names = lambda method: [path.rpartition("/")[2] for kind, path in server.requests if kind == method]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


# -- the cache -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_cached_model_asks_nobody(offline, hub, checkpoint, tmp_path):
    hub.repos["tiny/gpt2"] = checkpoint
    snapshot = fill_cache(tmp_path, "tiny/gpt2", checkpoint)
    found = look_up("tiny/gpt2", tmp_path, hub.url, HF_HUB_OFFLINE=offline)
    assert found == {"source": "tiny/gpt2", "folder": str(snapshot), "config": str(snapshot / "config.json"),
                     "weights": str(snapshot / "model.safetensors"), "tokenizer": None,
                     "vocab": str(snapshot / "vocab.json"), "merges": str(snapshot / "merges.txt")}
    assert hub.requests == []


def test_a_cached_model_loads_from_its_links(checkpoint, tmp_path, monkeypatch):
    import huggingface_hub.constants
    fill_cache(tmp_path, "tiny/gpt2", checkpoint)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model = inspector.load("tiny/gpt2")
    assert torch.equal(model.weights.W_E, tiny_model(vocab_size=271).transformer.wte.weight)
    assert model.tokenizer is not None
    assert model.files.source == "tiny/gpt2"


def test_gpt2_is_found_under_either_of_its_names(checkpoint, tmp_path):
    long = fill_cache(tmp_path / "long", "openai-community/gpt2", checkpoint)
    short = fill_cache(tmp_path / "short", "gpt2", checkpoint)
    for name in ("gpt2", "openai-community/gpt2"):
        assert look_up(name, tmp_path / "long", HF_HUB_OFFLINE="1")["folder"] == str(long)
        assert look_up(name, tmp_path / "short", HF_HUB_OFFLINE="1")["folder"] == str(short)
    assert "not in the Hugging Face cache" in look_up("gpt2-xl", tmp_path / "long", HF_HUB_OFFLINE="1")["error"]


def test_the_cache_may_hold_shards_or_a_bin_only(checkpoint, tmp_path):
    shards = save(tiny_model(), tmp_path / "shards", "sharded")
    files = {path.name: path.read_bytes() for path in shards.iterdir()}
    snapshot = fill_cache(tmp_path, "tiny/shards", files)
    found = look_up("tiny/shards", tmp_path, HF_HUB_OFFLINE="1")
    assert found["weights"] == str(snapshot / "model.safetensors.index.json")
    assert found["tokenizer"] is found["vocab"] is found["merges"] is None
    (snapshot / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors is not in the" in look_up("tiny/shards", tmp_path, HF_HUB_OFFLINE="1")["error"]
    only_bin = fill_cache(tmp_path, "tiny/bin", {name: checkpoint[name] for name in ("config.json", "pytorch_model.bin")})
    assert look_up("tiny/bin", tmp_path, HF_HUB_OFFLINE="1")["weights"] == str(only_bin / "pytorch_model.bin")


def test_a_link_whose_blob_is_gone_is_not_in_the_cache(checkpoint, tmp_path):
    snapshot = fill_cache(tmp_path, "tiny/gpt2", checkpoint)
    (snapshot / "model.safetensors").resolve().unlink()
    (snapshot / "pytorch_model.bin").resolve().unlink()
    error = look_up("tiny/gpt2", tmp_path, HF_HUB_OFFLINE="1")["error"]
    assert "its model.safetensors is not in the Hugging Face cache" in error


# -- not in the cache ------------------------------------------------------------------------------------------------

def test_offline_and_not_cached_is_one_line_that_names_the_demo(hub, checkpoint, tmp_path):
    hub.repos["gpt2"] = checkpoint
    error = look_up("gpt2", tmp_path, hub.url, HF_HUB_OFFLINE="1")["error"]
    assert "not in the Hugging Face cache" in error
    assert "HF_HUB_OFFLINE forbids" in error
    assert "--model demo" in error
    assert "\n" not in error
    assert hub.requests == []
    assert not (tmp_path / "hub").exists()


def test_no_network_is_one_line(tmp_path):
    error = look_up("gpt2", tmp_path)["error"]                          # nobody listens
    assert "cannot be fetched from the hub (ConnectError" in error
    assert "--model demo" in error
    assert "\n" not in error


def test_a_hub_that_is_down_is_asked_once(hub, tmp_path):
    hub.status = 503                     # huggingface_hub alone asks seven times, with waits that add up to 25 seconds
    error = look_up("gpt2", tmp_path, hub.url)["error"]
    assert hub.requests == [("HEAD", "/gpt2/resolve/main/config.json")]
    assert "503" in error
    assert "--model demo" in error
    assert "\n" not in error


def test_only_the_files_needed_are_fetched(hub, checkpoint, tmp_path):
    hub.repos["tiny/gpt2"] = {**checkpoint, "tokenizer.json": b"{}"}
    found = look_up("tiny/gpt2", tmp_path, hub.url)
    assert hub.names("GET") == ["config.json", "model.safetensors", "tokenizer.json"]
    assert set(hub.names("HEAD")) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert Path(found["folder"]).name == COMMIT
    assert Path(found["weights"]).read_bytes() == checkpoint["model.safetensors"]
    hub.requests.clear()
    assert look_up("tiny/gpt2", tmp_path, hub.url) == found             # and from then on nobody is asked
    assert look_up("tiny/gpt2", tmp_path, HF_HUB_OFFLINE="1") == found
    assert hub.requests == []


def test_what_the_cache_lacks_is_fetched_at_the_cached_revision(hub, checkpoint, tmp_path):
    hub.repos["tiny/gpt2"] = checkpoint
    fill_cache(tmp_path, "tiny/gpt2", {"config.json": checkpoint["config.json"]})
    found = look_up("tiny/gpt2", tmp_path, hub.url)
    assert "config.json" not in [*hub.names("HEAD"), *hub.names("GET")]
    assert all(f"/tiny/gpt2/resolve/{COMMIT}/" in path for _, path in hub.requests)
    assert hub.names("GET") == ["model.safetensors", "vocab.json", "merges.txt"]
    assert {Path(found[name]).parent for name in ("config", "weights", "vocab", "merges")} == {Path(found["folder"])}


def test_shards_and_bins_are_fetched_whole(hub, checkpoint, tmp_path):
    shards = save(tiny_model(), tmp_path / "shards", "sharded")
    hub.repos["tiny/shards"] = {path.name: path.read_bytes() for path in shards.iterdir()}
    found = look_up("tiny/shards", tmp_path, hub.url)
    assert len(list(Path(found["folder"]).glob("*.safetensors"))) == 3
    hub.repos["tiny/bin"] = {"config.json": checkpoint["config.json"], "pytorch_model.bin": b"x", "tf_model.h5": b"x"}
    hub.requests.clear()
    assert look_up("tiny/bin", tmp_path, hub.url)["weights"].endswith("pytorch_model.bin")
    assert hub.names("GET") == ["config.json", "pytorch_model.bin"]


def test_a_repository_that_holds_no_model_or_is_not_there(hub, checkpoint, tmp_path):
    hub.repos["tiny/dataset"] = {"README.md": b""}
    hub.repos["tiny/weightless"] = {"config.json": checkpoint["config.json"], "tf_model.h5": b""}
    for name, said in [("tiny/dataset", "has no config.json: it holds no model"),
                       ("tiny/weightless", "has no weights that can be read: looked for model.safetensors, "),
                       ("tiny/nothing", "the hub has no such repository, or it is not public")]:
        error = look_up(name, tmp_path, hub.url)["error"]
        assert said in error
        assert "--model demo" in error
        assert "\n" not in error


def test_a_cached_model_without_a_tokenizer_still_loads_where_there_is_no_network(checkpoint, tmp_path):
    fill_cache(tmp_path, "tiny/gpt2", {name: checkpoint[name] for name in ("config.json", "model.safetensors")})
    for env in ({}, {"HF_HUB_OFFLINE": "1"}):
        found = look_up("tiny/gpt2", tmp_path, **env)
        assert found["weights"].endswith("model.safetensors")
        assert found["tokenizer"] is found["vocab"] is found["merges"] is None


# -- everything else never looks at the hub --------------------------------------------------------------------------

@pytest.fixture
def no_hub(monkeypatch):
    """Any look-up, in the cache or on the hub, fails the test."""
    def refuse(*args, **kwargs):
        pytest.fail(f"a hub look-up of {args}")

    import huggingface_hub
    for name in ("hf_hub_download", "try_to_load_from_cache", "get_hf_file_metadata"):
        monkeypatch.setattr(huggingface_hub, name, refuse)
    monkeypatch.setattr(source, "on_hub", refuse)


def test_a_folder_or_a_file_never_looks_at_the_hub(no_hub, tmp_path, monkeypatch):
    folder = tiny_folder(tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    for name in (folder, str(folder), "gpt2", "./gpt2", "gpt2/", "gpt2/model.safetensors", folder / "model.safetensors"):
        files = source.find(name)
        assert files.source == str(name)
        assert files.weights.samefile(folder / "model.safetensors")
        assert files.vocab.samefile(folder / "vocab.json")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source.find("~/gpt2").config == folder / "config.json"



@pytest.mark.parametrize("name", ["planted", "demo"])
def test_the_shipped_models_never_look_at_the_hub(name, no_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_folder(tmp_path / name)                                        # a folder of that name here is not meant
    files = source.find(name)
    assert files.source == name
    assert files.config.is_file()
    assert tmp_path not in files.config.parents
    assert source.find(f"./{name}").folder.samefile(tmp_path / name)


@pytest.mark.parametrize("name", [
    "", "./nothing", "../nothing", "/nothing", "a/b/c", "nothing/", "model.safetensors", "gone/model.safetensors", "x.bin",
    "config.json", "gpt 2", "gpt2\n", "\0", "-", "gpt2@main", "https://huggingface.co/gpt2", "x" * 5000, "~no_such_user/x",
    "\udcff", "gpt2/../gpt2", None, 3, b"gpt2", ["gpt2"], 1.5, True,
])
def test_what_is_no_source_is_one_line_and_no_look_up(name, no_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="--model demo is always there") as caught:
        source.find(name)
    text = str(caught.value)
    assert "\n" not in text
    assert "\0" not in text
    assert len(text) < 600


@pytest.mark.parametrize("name", ["a--b", "a..b", "a.", "a-", "x" * 97, "org/x.git"])
def test_what_looks_like_a_hub_id_and_is_none_is_one_line(name):
    with pytest.raises(SourceError, match="--model demo is always there"):
        source.find(name)


def test_a_broken_link_or_a_foreign_file_is_not_taken_for_a_hub_id(no_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gpt2").symlink_to("gone")
    with pytest.raises(SourceError, match="gpt2 is no regular file"):
        source.find("gpt2")
    Path("distilgpt2").write_text("a file")
    with pytest.raises(SourceError, match="distilgpt2 is not a weights file"):
        source.find("distilgpt2")
    Path("gpt2-xl").mkdir()
    with pytest.raises(SourceError, match=r"gpt2-xl has no config\.json"):
        source.find("gpt2-xl")


def test_a_folder_is_read_as_transformers_would(tmp_path):
    folder = save(tiny_model(), tmp_path, "safetensors")
    save(tiny_model(1), tmp_path, "bin")
    save(tiny_model(2), tmp_path, "sharded")
    assert source.find(folder).weights.name == "model.safetensors"      # safetensors first, one file before shards
    (folder / "model.safetensors").unlink()
    assert source.find(folder).weights.name == "model.safetensors.index.json"
    (folder / "model.safetensors.index.json").unlink()
    assert source.find(folder).weights.name == "pytorch_model.bin"


def test_vocab_and_merges_come_together_or_not_at_all(tmp_path):
    folder = tiny_tokenizer(save(tiny_model(), tmp_path))
    files = source.find(folder)
    assert (files.tokenizer, files.vocab, files.merges) == (None, folder / "vocab.json", folder / "merges.txt")
    (folder / "tokenizer.json").write_text("{}")
    files = source.find(folder)
    assert (files.tokenizer, files.vocab, files.merges) == (folder / "tokenizer.json", None, None)
    (folder / "tokenizer.json").unlink()
    for name in ("vocab.json", "merges.txt"):
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        files = source.find(folder)
        assert (files.tokenizer, files.vocab, files.merges) == (None, None, None)
        (folder / name).write_bytes(data)
