"""Where a model's files are: shipped with the package, made in code, in a folder, one file, or on the Hugging Face hub."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import SourceError
from .config import read_json

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
# The hub's first models have two names; the cache files them under the one that was asked for.
OTHER_NAME = {"gpt2": "openai-community/gpt2", "gpt2-medium": "openai-community/gpt2-medium",
              "gpt2-large": "openai-community/gpt2-large", "gpt2-xl": "openai-community/gpt2-xl",
              "distilgpt2": "distilbert/distilgpt2"}
OTHER_NAME |= {long: short for short, long in OTHER_NAME.items()}
ALWAYS = "--model demo is always there"
KINDS = f"(a source is demo, planted, a hub id such as gpt2, a folder, or a weights file); {ALWAYS}"


@dataclass(frozen=True)
class Files:
    """The files of one checkpoint. Paths exist when the object is made; None where the checkpoint has none."""

    source: str                 # as the user gave it
    folder: Path
    config: Path
    weights: Path               # the weights file or, for shards, its index
    tokenizer: Path | None      # tokenizer.json, or else
    vocab: Path | None          # vocab.json together with
    merges: Path | None         # merges.txt


def find(source):
    """Files of a source. Nothing is fetched unless the source is a hub id. Raises SourceError with the remedy."""
    if not isinstance(source, str | os.PathLike) or not str(source):
        raise SourceError(f"the model source is {repr(source)[:80]} {KINDS}")
    name = str(source)
    try:
        if name == "demo":
            return in_folder(Path(__file__).parent.parent / "demo", source=name)
        if name == "planted":
            from ..demo.planted import folder as planted_folder
            return in_folder(planted_folder(), source=name)
        path = Path(name).expanduser()
        if path.is_dir():
            return in_folder(path, source=name)
        if os.path.lexists(path):
            return one_file(path, source=name)
    except (OSError, RuntimeError) as error:          # RuntimeError: expanduser found no such user
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"cannot look at {repr(name)[:200]}: {reason} {KINDS}") from error
    if not HUB_ID.fullmatch(name) or name.endswith((".safetensors", ".bin", ".json")):
        raise SourceError(f"{repr(name)[:200]} does not exist and is no hub id {KINDS}")
    return on_hub(name)


def shards(index):
    """Paths of the shards that an index file names, beside it. Raises SourceError for an unreadable index."""
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{index} is not a valid index of shards: no weight_map of names to files") from error
    if foreign := [name for name in names if not isinstance(name, str) or Path(name).name != name or "\\" in name]:
        raise SourceError(f"{index} names shards outside its folder: {', '.join(map(repr, foreign))}")
    return [index.parent / name for name in names]


def weight_files(path):
    """The files that hold tensors: the file itself, or the shards of an index. Raises SourceError for absent shards."""
    files = shards(path) if path.name.endswith(".index.json") else [path]
    if absent := [repr(file.name) for file in files if not file.is_file()]:
        raise SourceError(f"shards named in {path} are absent: {', '.join(absent)}")
    return files


# -- on this machine -------------------------------------------------------------------------------------------------

def _optional(path):
    return path if path.is_file() else None


def in_folder(folder, *, source, weights=None):
    """Files of a checkpoint folder as transformers writes it."""
    config = folder / "config.json"
    if not config.is_file():
        raise SourceError(f"{folder} has no config.json: it is not a checkpoint folder {KINDS}")
    if weights is None:
        weights = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if weights is None:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".bin") and p.is_file())
        hint = f"; name one of its files instead: {', '.join(others)}" if others else ""
        raise SourceError(f"{folder} has no weights: looked for {', '.join(WEIGHT_FILES)}{hint}")
    return Files(source, folder, config, weights, *_tokenizer_files(lambda name: _optional(folder / name)))


def one_file(path, *, source):
    """Files of a checkpoint given by its weights file, with config.json beside it."""
    if not path.is_file():
        raise SourceError(f"{path} is no regular file (a broken link, a pipe or a device?) {KINDS}")
    if not path.name.endswith((".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")):
        raise SourceError(f"{path} is not a weights file (.safetensors, .bin or their index) {KINDS}")
    if not (path.parent / "config.json").is_file():
        raise SourceError(f"{path} has no config.json beside it; a weights file needs it there {KINDS}")
    return in_folder(path.parent, source=source, weights=path)


# -- on the hub ------------------------------------------------------------------------------------------------------

def on_hub(name):
    """Files of a hub repository: from the Hugging Face cache as they are there, or else fetched into it.

    What is in the cache is never asked for again, so a cached model needs no network and stays the one it was. All
    files are of one revision. Raises SourceError when config or weights are not cached and cannot be fetched.
    """
    repo = next((repo for repo in (name, OTHER_NAME.get(name)) if repo and _cached(repo, "config.json")), name)
    config = _cached(repo, "config.json") or _fetched(repo, "config.json")
    if config is None:
        raise SourceError(f"the hub repository {repo!r} has no config.json: it holds no model; {ALWAYS}")
    revision = config.parent.name

    def cached(file):
        return _cached(repo, file, revision)

    def get(file):
        return cached(file) or _fetched(repo, file, revision)

    weights = _first(cached, WEIGHT_FILES) or _first(get, WEIGHT_FILES)
    if weights is None:
        raise SourceError(f"the hub repository {repo!r} has no weights that can be read: looked for "
                          f"{', '.join(WEIGHT_FILES)}; {ALWAYS}")
    if weights.name.endswith(".index.json"):
        for shard in shards(weights):
            get(shard.name)                           # one that does not exist is named by weight_files
    found = _tokenizer_files(cached)
    if not any(found):
        try:
            found = _tokenizer_files(get)
        except SourceError:                           # out of reach: the model runs on ids, and a text says what is missing
            found = None, None, None
    return Files(name, config.parent, config, weights, *found)


def _first(get, files):
    return next(filter(None, map(get, files)), None)


def _tokenizer_files(get):
    """(tokenizer.json, vocab.json, merges.txt): the first alone or the other two together, None for the rest."""
    if tokenizer := get("tokenizer.json"):
        return tokenizer, None, None
    vocab = get("vocab.json")
    merges = vocab and get("merges.txt")
    return None, merges and vocab, merges


def _cached(repo, file, revision=None):
    """The file's path in the Hugging Face cache, or None."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    try:
        found = try_to_load_from_cache(repo, file, revision=revision)
    except HFValidationError as error:
        raise SourceError(f"{repo!r} is no file or folder here and no valid hub id {KINDS}") from error
    except OSError as error:
        raise SourceError(f"cannot read the Hugging Face cache: {error}; {ALWAYS}") from error
    return Path(found) if isinstance(found, str) else None


def _fetched(repo, file, revision=None):
    """The file's path after a download into the cache, or None where the repository does not hold it."""
    import huggingface_hub
    from huggingface_hub.errors import OfflineModeIsEnabled, RemoteEntryNotFoundError, RepositoryNotFoundError
    try:
        # One short question first: hf_hub_download alone retries for half a minute and more where there is no network.
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repo, file, revision=revision))
        return Path(huggingface_hub.hf_hub_download(repo, file, revision=revision))
    except RemoteEntryNotFoundError:
        return None
    except OfflineModeIsEnabled as error:
        reason, cause = "HF_HUB_OFFLINE forbids to fetch it", error
    except RepositoryNotFoundError as error:
        reason, cause = "the hub has no such repository, or it is not public", error
    except Exception as error:                        # connection errors come from whichever HTTP library is in use
        reason, cause = f"it cannot be fetched from the hub ({type(error).__name__}: {str(error).strip()[:200]})", error
    raise SourceError(f"{repo!r} is no file or folder here, its {file} is not in the Hugging Face cache, and "
                      f"{' '.join(reason.split())} {KINDS}") from cause
