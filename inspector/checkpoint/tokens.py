"""Text to ids, and ids to labels a person can read.

Tokenizing is the `tokenizers` library's. What is added here: BOS by a switch, never doubled; and labels, in which
white space is visible, invisible characters are named, and a character that the tokenizer cut into bytes is shown whole
on each of its pieces (`😀[1/3]`).
"""

import operator
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import SourceError, TextError

VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u3000": "□"}
SIGNS = {*VISIBLE.values(), "◌", "⟨"}       # these mean something in a label, so the characters themselves are numbered
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp")
# Characters without ink in other categories (Unicode's Default_Ignorable_Code_Point, and the empty Braille cell).
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def _byte_alphabet():
    """{character in the vocabulary file: byte} of GPT-2's byte-level BPE (Radford et al. 2019, section 2.2).

    Printable Latin-1 bytes stand for themselves; the others are moved to 256 and up, in order.
    """
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + n): b for n, b in enumerate(moved)}


BYTES = _byte_alphabet()


def visible(character):
    """One character as it can be seen: white space as a sign, what has no ink (or is such a sign) by its number."""
    if character in VISIBLE:
        return VISIBLE[character]
    if character in SIGNS or unicodedata.category(character) in UNSEEN or BLANK.match(character):
        return f"⟨U+{ord(character):04X}⟩"
    return character


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
    """A label for each token, given the bytes of each: list of bytes -> list of str, never empty strings.

    A byte that is part of no character is ⟨FF⟩; a combining mark that begins a label sits on ◌.
    """
    data, labels = b"".join(pieces), ["" for _ in pieces]
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
    marked = ["◌" + label if label and unicodedata.category(label[0])[0] == "M" else label for label in labels]
    return [label or "⟨empty⟩" for label in marked]


@dataclass(frozen=True)
class Tokenizer:
    """A checkpoint's tokenizer. `inner` is a `tokenizers.Tokenizer`."""

    inner: Any

    def encode(self, text):
        """Ids of a text, nothing added. Raises TextError for what is no text, or no UTF-8."""
        if not isinstance(text, str):
            raise TextError(f"the text is a {type(text).__name__}; expected a str")
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
        token = self.inner.id_to_token(token_id) if 0 <= token_id < 2 ** 32 else None
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
        """The text of each id alone; bytes that are no whole character are written as a backslash, x and two digits."""
        return [(self.bytes_of(i) or b"").decode("utf-8", "backslashreplace") for i in ids]


def read_tokenizer(files):
    """The Tokenizer of a checkpoint: tokenizer.json, else vocab.json with merges.txt, else None. Raises SourceError."""
    if files.tokenizer is None and files.vocab is None:
        return None
    import tokenizers
    try:
        inner = (tokenizers.Tokenizer.from_file(str(files.tokenizer)) if files.tokenizer
                 else byte_level(files.vocab, files.merges))
    except Exception as error:               # the library raises bare Exception for every fault in the file
        reason = " ".join(str(error).split())[:300]
        raise SourceError(f"{files.tokenizer or files.vocab} is not a valid tokenizer: {reason}") from error
    # Padding, truncation or BPE dropout saved with a tokenizer would change a text silently.
    inner.no_padding()
    inner.no_truncation()
    if getattr(inner.model, "dropout", None):
        inner.model.dropout = None
    return Tokenizer(inner)


def byte_level(vocab: Path, merges: Path):
    """GPT-2's byte-level BPE from its two files, with <|endoftext|> special where it is in the vocabulary.

    Raises SourceError when the vocabulary lacks a byte: a text with that byte would lose it without a word.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers
    inner = tokenizers.Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    if absent := [byte for letter, byte in BYTES.items() if inner.token_to_id(letter) is None]:
        raise SourceError(f"{len(absent)} of the 256 bytes are not in the vocabulary")
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    if inner.token_to_id("<|endoftext|>") is not None:
        inner.add_special_tokens(["<|endoftext|>"])
    return inner


def parse_ids(text):
    """Ids written with spaces or commas between them -> list of int. Raises TextError."""
    words = text.replace(",", " ").split()
    if bad := [word for word in words if not re.fullmatch(r"-?[0-9]{1,18}", word)]:
        raise TextError(f"the ids hold {bad[0][:40]!r}; expected whole numbers such as \"464 3797 3332\"")
    return [int(word) for word in words]


def _row(ids):
    """Ids in any form (list, tensor, array, text of numbers) as a list of int. Raises TextError."""
    if isinstance(ids, str):
        return parse_ids(ids)
    try:
        return [operator.index(i) for i in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    except TypeError:
        raise TextError(f"the ids are {' '.join(repr(ids).split())[:80]}; expected one row of whole numbers") from None


def encode(model, text=None, *, ids=None, bos=False):
    """The ids of one text as a list, from the text or from ids already made; `bos` puts BOS first unless it is there.

    Raises TextError for both or neither of text and ids, an empty text, no tokenizer, no BOS id, ids outside the
    vocabulary.
    """
    size, bos_id = model.config.vocab_size, model.config.bos_token_id
    if (text is None) == (ids is None):
        raise TextError("give either a text or ids" + (", not both" if text is not None else ""))
    if ids is not None:
        found = _row(ids)
    elif model.tokenizer is None:
        raise TextError(f"{model.files.source} has no tokenizer (no tokenizer.json, no vocab.json with merges.txt): "
                        "give ids instead (--ids \"464 3797 3332\")")
    else:
        found = model.tokenizer.encode(text)
    refuse_unusable(found, size)
    if not bos:
        return found
    if bos_id is None or not 0 <= bos_id < size:
        raise TextError(f"this model has no BOS token inside its vocabulary (bos_token_id {bos_id}, vocabulary {size})")
    return found if found[:1] == [bos_id] else [bos_id, *found]


def refuse_unusable(ids, vocab_size):
    """Raise TextError for no id at all, or naming the ids outside the vocabulary. ids: whole numbers."""
    if not ids:
        raise TextError("the text is empty: there is no token to look at")
    if outside := sorted({i for i in ids if not 0 <= i < vocab_size}):
        shown = ", ".join(map(str, outside[:10])) + (", ..." if len(outside) > 10 else "")
        raise TextError(f"ids outside the vocabulary of {vocab_size}: {shown}")


def labels(model, ids):
    """Readable labels of ids, with or without a tokenizer (then the id itself in brackets)."""
    return model.tokenizer.labels(ids) if model.tokenizer else [f"[{i}]" for i in ids]
