"""Text to ids, and ids to labels a person can read.

Tokenizing is the `tokenizers` library's. What is added here: BOS by a switch, never doubled; and labels, in which
white space is visible, invisible characters are named, and a character that the tokenizer cut into bytes is shown whole on
each of its pieces (`😀[1/3]`).
"""

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import SourceError, TextError

VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u3000": "□"}


def _byte_alphabet():
    """{character in the vocabulary file: byte} of GPT-2's byte-level BPE (Radford et al. 2019, section 2.2).

    Printable Latin-1 bytes stand for themselves; the others are moved to 256 and up, in order.
    """
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + n): b for n, b in enumerate(moved)}


BYTES = _byte_alphabet()


def visible(character):
    """One character as it can be seen: white space as a sign, control and format characters by their number."""
    if character in VISIBLE:
        return VISIBLE[character]
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"):
        return f"⟨U+{ord(character):04X}⟩"
    return "◌" + character if category in ("Mn", "Me") else character


def characters(data):
    """Bytes cut into UTF-8 characters: a list of (start, end, character); a byte that fits none has character None."""
    found, i = [], 0
    while i < len(data):
        lead = data[i]
        length = 1 if lead < 0x80 else 2 if lead >> 5 == 6 else 3 if lead >> 4 == 14 else 4 if lead >> 3 == 30 else 1
        try:
            found.append((i, i + length, data[i:i + length].decode("utf-8")))
            i += length
        except UnicodeDecodeError:
            found.append((i, i + 1, None))
            i += 1
    return found


def labels_of(pieces):
    """A label for each token, given the bytes of each: list of bytes -> list of str, never empty strings."""
    data = b"".join(pieces)
    starts, at = [], 0
    for piece in pieces:
        starts.append(at)
        at += len(piece)
    labels = ["" for _ in pieces]
    owner = [n for n, piece in enumerate(pieces) for _ in piece]           # token of each byte
    for start, end, character in characters(data):
        owners = sorted({owner[b] for b in range(start, end)})
        for part, token in enumerate(owners, 1):
            if character is None:
                labels[token] += f"⟨{data[start]:02X}⟩"
            elif len(owners) == 1:
                labels[token] += visible(character)
            else:
                labels[token] += f"{visible(character)}[{part}/{len(owners)}]"
    return [label or "⟨empty⟩" for label in labels]


@dataclass(frozen=True)
class Tokenizer:
    """A checkpoint's tokenizer. `inner` is a `tokenizers.Tokenizer`."""

    inner: Any

    def encode(self, text):
        """Ids of a text, nothing added. Raises TextError for text that is no UTF-8."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TextError(f"the text is not valid UTF-8 (at character {error.start})") from error
        return self.inner.encode(text, add_special_tokens=False).ids

    @cached_property
    def special(self):
        """{id: content} of tokens outside the byte alphabet, such as <|endoftext|>."""
        return {i: token.content for i, token in self.inner.get_added_tokens_decoder().items()}

    def bytes_of(self, token_id):
        """The bytes one token stands for; None for an id the tokenizer does not know."""
        if token_id in self.special:
            return self.special[token_id].encode("utf-8")
        token = self.inner.id_to_token(token_id)
        if token is None:
            return None
        try:
            return bytes(BYTES[c] for c in token)
        except KeyError:                     # not byte-level: the token is its own text
            return token.encode("utf-8")

    def labels(self, ids):
        """A readable label for each id of a text, in its context."""
        known = [self.bytes_of(i) for i in ids]
        labels = labels_of([piece or b"" for piece in known])
        return [f"[{i}]" if piece is None else label for i, piece, label in zip(ids, known, labels, strict=True)]

    def texts(self, ids):
        """The text of each id alone; bytes that are no whole character as \\xNN."""
        return [(self.bytes_of(i) or b"").decode("utf-8", "backslashreplace") for i in ids]


def read_tokenizer(files):
    """The Tokenizer of a checkpoint: tokenizer.json, else vocab.json with merges.txt, else None."""
    if files.tokenizer is None and files.vocab is None:
        return None
    import tokenizers
    path = files.tokenizer or files.vocab
    try:
        if files.tokenizer:
            inner = tokenizers.Tokenizer.from_file(str(files.tokenizer))
        else:
            inner = byte_level(files.vocab, files.merges)
    except Exception as error:               # the library raises bare Exception for every fault in the file
        raise SourceError(f"{path} is not a valid tokenizer: {error}") from error
    # Padding or truncation saved with a tokenizer would change a text silently.
    inner.no_padding()
    inner.no_truncation()
    return Tokenizer(inner)


def byte_level(vocab: Path, merges: Path):
    """GPT-2's byte-level BPE from its two files, with <|endoftext|> as the one special token where it is in the vocabulary."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers
    inner = tokenizers.Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    if inner.token_to_id("<|endoftext|>") is not None:
        inner.add_special_tokens(["<|endoftext|>"])
    return inner


def parse_ids(text):
    """Ids written with spaces or commas between them -> list of int. Raises TextError."""
    words = text.replace(",", " ").split()
    try:
        return [int(word) for word in words]
    except ValueError:
        bad = next(word for word in words if not word.removeprefix("-").isdecimal())
        raise TextError(f"--ids holds {bad[:40]!r}; expected whole numbers such as \"464 3797 3332\"") from None


def encode(model, text=None, *, ids=None, bos=False):
    """The ids of one text as a list, from the text or from ids already made; `bos` puts BOS first unless it is there.

    Raises TextError for both or neither of text and ids, an empty text, no tokenizer, no BOS id, ids outside the
    vocabulary.
    """
    if (text is None) == (ids is None):
        raise TextError("give either a text or ids" + (", not both" if text is not None else ""))
    if ids is None:
        if model.tokenizer is None:
            raise TextError(f"{model.files.source} has no tokenizer (no tokenizer.json, no vocab.json with merges.txt): "
                            "give ids instead (--ids \"464 3797 3332\")")
        found = model.tokenizer.encode(text)
    else:
        found = [int(i) for i in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    if bos:
        bos_id = model.config.bos_token_id
        if bos_id is None or not 0 <= bos_id < model.config.vocab_size:
            raise TextError(f"this model has no BOS token inside its vocabulary (bos_token_id {bos_id}, vocabulary "
                            f"{model.config.vocab_size})")
        if found[:1] != [bos_id]:
            found = [bos_id, *found]
    if not found:
        raise TextError("the text is empty: there is no token to look at")
    outside = sorted({i for i in found if not 0 <= i < model.config.vocab_size})
    if outside:
        shown = ", ".join(map(str, outside[:10])) + (", ..." if len(outside) > 10 else "")
        raise TextError(f"ids outside the vocabulary of {model.config.vocab_size}: {shown}")
    return found


def labels(model, ids):
    """Readable labels of ids, with or without a tokenizer (then the id itself in brackets)."""
    return model.tokenizer.labels(ids) if model.tokenizer else [f"[{i}]" for i in ids]
