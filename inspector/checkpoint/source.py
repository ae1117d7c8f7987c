"""Where a model's files are: shipped with the package, made in code, in a folder, one file, or on the Hugging Face hub."""

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import SourceError

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
SHIPPED = ("demo", "planted")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
NEITHER = ("(a source is demo, planted, a hub id such as gpt2, a folder, or a weights file); "
           "--model demo is always there")


@dataclass(frozen=True)
class Files:
    """The files of one checkpoint. Paths exist when the object is made; None where the checkpoint has none."""

    source: str                 # as the user gave it
    folder: Path
    config: Path
    weights: Path               # the weights file or, for shards, its index
    tokenizer: Path | None      # tokenizer.json
    vocab: Path | None          # vocab.json, with
    merges: Path | None         # merges.txt


def find(source):
    """Files of a source. Nothing is fetched unless the source is a hub id. Raises SourceError with the remedy."""
    name = str(source)
    if not name:
        raise SourceError(f"the model source is empty {NEITHER}")
    if name == "demo":
        return in_folder(Path(__file__).parent.parent / "demo", source=name)
    if name == "planted":
        from ..demo.planted import folder as planted_folder
        return in_folder(planted_folder(), source=name)
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return in_folder(path, source=name)
        if path.exists():
            return one_file(path, source=name)
    except OSError as error:
        raise SourceError(f"cannot look at {name[:200]!r}: {error.strerror}") from error
    if not HUB_ID.fullmatch(name) or name.endswith((".safetensors", ".bin", ".json")):
        raise SourceError(f"{name[:200]!r} does not exist and is no hub id {NEITHER}")
    return on_hub(name)


def _optional(path):
    return path if path.is_file() else None


def in_folder(folder, *, source, weights=None):
    """Files of a checkpoint folder as transformers writes it."""
    config = folder / "config.json"
    if not config.is_file():
        raise SourceError(f"{folder} has no config.json: it is not a checkpoint folder {NEITHER}")
    if weights is None:
        weights = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if weights is None:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".bin"))
        hint = f"; name one of its files instead: {', '.join(others)}" if others else ""
        raise SourceError(f"{folder} has no weights: looked for {', '.join(WEIGHT_FILES)}{hint}")
    vocab, merges = _optional(folder / "vocab.json"), _optional(folder / "merges.txt")
    return Files(source, folder, config, weights, _optional(folder / "tokenizer.json"),
                 vocab if merges else None, merges if vocab else None)


def one_file(path, *, source):
    """Files of a checkpoint given by its weights file, with config.json beside it."""
    if not path.name.endswith((".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")):
        raise SourceError(f"{path} is not a weights file (.safetensors, .bin or their index) {NEITHER}")
    if not (path.parent / "config.json").is_file():
        raise SourceError(f"{path} has no config.json beside it")
    return in_folder(path.parent, source=source, weights=path)


def on_hub(repo):
    """Files of a hub repository, through huggingface_hub's cache; only what is needed is fetched."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    def fetch(name):
        """The file's path, or None where the repository (or, offline, the cache) does not hold it."""
        try:
            return Path(huggingface_hub.hf_hub_download(repo, name))
        except FileNotFoundError:           # LocalEntryNotFoundError: not cached, and no way to the hub
            return None
        except HfHubHTTPError as error:
            if isinstance(error, RepositoryNotFoundError) or error.response.status_code not in (404,):
                raise
            return None

    quiet = not _is_terminal()
    if quiet:
        disable_progress_bars()
    try:
        config = fetch("config.json")
        if config is None:
            raise SourceError(f"{repo!r} is no file or folder here, is not in the Hugging Face cache, and the hub "
                              f"cannot be reached or has no config.json for it {NEITHER}")
        weights = next((path for path in map(fetch, WEIGHT_FILES) if path), None)
        if weights is None:
            raise SourceError(f"the weights of {repo!r} are not in the Hugging Face cache and cannot be fetched "
                              f"(looked for {', '.join(WEIGHT_FILES)}); --model demo is always there")
        if weights.name.endswith(".index.json"):
            from .reading import shards
            absent = [name for name in shards(weights) if fetch(name) is None]
            if absent:
                raise SourceError(f"shards of {repo!r} cannot be fetched: {', '.join(absent)}")
        tokenizer = fetch("tokenizer.json")
        vocab, merges = (None, None) if tokenizer else (fetch("vocab.json"), fetch("merges.txt"))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SourceError(f"cannot fetch {repo!r} from the hub: {reason}; --model demo is always there") from error
    finally:
        if quiet:
            enable_progress_bars()
    return Files(repo, config.parent, config, weights, tokenizer, vocab if merges else None, merges if vocab else None)


def _is_terminal():
    import sys
    return sys.stderr is not None and sys.stderr.isatty()
