"""Numbers and findings as words: the names of the scores, links, shares, sentences. Plain text; escaping is the page's."""

import math
import re
import unicodedata
from typing import NamedTuple


class Score(NamedTuple):
    """How a score is named on the pages. `column` is its column in the table of heads."""

    column: str
    title: str
    means: str


# As defined in findings.scores; entropy is shown relative to its largest value, so that all maps run from 0 to 1.
SCORES = (
    Score("previous_token", "previous token", "weight on the token just before"),
    Score("current_token", "current token", "weight on the token itself"),
    Score("first_token", "first token", "weight on the first token"),
    Score("duplicate_token", "duplicate token", "weight on earlier copies of the same token"),
    Score("induction", "induction", "weight on what followed earlier copies of the same token"),
    Score("entropy_relative", "spread", "entropy: 0 one token, 1 all alike"),
)
PART = re.compile(r"(\[\d+/\d+\])")
TITLES = {score.column: score.title for score in SCORES}

HINT = ("A grid shows where one head puts its weight while it writes into each token's vector: a hint about one step. "
        "It does not show what the values there held, what the other heads or the later layers did with them, nor "
        "whether the prediction depends on them.")
PAPERS = ("Sarthak Jain and Byron C. Wallace, “Attention is not Explanation”, NAACL 2019",
          "Sarah Wiegreffe and Yuval Pinter, “Attention is not not Explanation”, EMNLP 2019")


VALUES = ("A weight says where a head looks; value-weighted, a cell says what it brings from there: weight × ‖v W_O‖, the "
          "length of what the head writes for that key (Kobayashi et al., “Attention is Not Only a Weight”, EMNLP 2020). "
          "Lengths do not add up; the signed shares in the lists do.")


def head_name(layer, head):
    """5.1: layer.head, from 0."""
    return f"{layer}.{head}"


def number(value, digits=2):
    """A number for a table; a dash where there is none. 0.00 and 1.00 are said of no other: else `<0.01` and `>0.99`."""
    if value is None or not math.isfinite(value):
        return "–"
    shown, step = f"{value:.{digits}f}", 10 ** -digits
    if value != 0 == float(shown):
        shown = f"<{step:.{digits}f}" if value > 0 else f">{-step:.{digits}f}"
    elif value < 1 == float(shown):
        shown = f">{1 - step:.{digits}f}"
    return shown.replace("-", "−")


def signed(value, digits=2):
    """A number that may be below 0: +0.41, −2.30; 0.00 where it rounds to that; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:+.{digits}f}".replace("-", "−") if round(value, digits) else f"{0:.{digits}f}"


def significant(value):
    """Three significant digits: 0.0469, −1.2e-05."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}".replace("-", "−", 1 if value < 0 else 0)


def short(value):
    """A weight or score 0..1 as it fits a cell: .93, <.01, >.99; 0 and 1 for these alone."""
    return {"0.00": "0", "1.00": "1"}.get(number(value), number(value).replace("0.", "."))


def compact(value):
    """A number from 0 up in at most four characters, two digits of it: 0, 2e-5, .12, 1.2, 12, 123, 1.2k, 12k."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if value < 0.0095 or value >= 999_500:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    if value < 0.995:
        return f"{value:.2f}".removeprefix("0")
    size, unit = (value / 1000, "k") if value >= 999.5 else (value, "")
    return f"{size:.1f}{unit}" if size < 9.95 else f"{size:.0f}{unit}"


def decimals(largest):
    """How many decimals show about three digits of the largest of some numbers: 2 for 1, 0 for 123."""
    return min(9, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2


def scientific(value):
    """3.1e-14: for differences and bounds."""
    return "–" if value is None or not math.isfinite(value) else "0" if value == 0 else f"{value:.1e}"


def percent(value):
    """38 %; a dash where there is none. 0 % and 100 % are not said of what only rounds to them: `<1 %` and `>99 %`."""
    if value is None or not math.isfinite(value):
        return "–"
    shown = f"{100 * value + 0.0:.0f}"                               # + 0.0: of -0.0 makes 0
    if shown in ("0", "-0") and value:
        return "<1 %" if value > 0 else ">−1 %"
    return ">99 %" if shown == "100" and value < 1 else f"{shown.replace('-', '−')} %"


def count(value):
    """1,234,567."""
    return f"{value:,}"


def bare(label):
    """A token's label without the mark of its leading space, where anything else is left."""
    return label[1:] if label.startswith("·") and len(label) > 1 else label


def headline(text, most=280):
    """A text as a title: at most `most` characters, with what is no visible character named by its number."""
    shown = text if len(text) <= most else text[:most].rstrip() + " …"
    return "".join(c if unicodedata.category(c) not in ("Cc", "Cs", "Cf", "Co", "Cn") or c in "\n\t\u200d\u200c"
                   else f"⟨U+{ord(c):04X}⟩" for c in shown)


def title(texts, labels):
    """The headline of a text that is known by its tokens: their texts, or their labels where these have none."""
    return headline("".join(texts) or " ".join(labels))


def directed(label):
    """A label whose part mark `[1/2]` stays right of a right-to-left letter: a left-to-right mark before it."""
    return PART.sub("\u200e\\1", label)


def link(query, key, weight):
    """One link in words. Example: link("·it", "·animal", 0.41) is '"it" -> "animal" 0.41'."""
    return f'"{bare(query)}" -> "{bare(key)}" {number(weight)}'


def listing(items):
    """a; a and b; a, b and c."""
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""


def plural(n, word):
    """1 head, 2 heads, no head."""
    return f"{'no' if n == 0 else count(n)} {word}{'s' if n > 1 else ''}"


def positions(numbers, most):
    """3, 7, 12 and 4 more: the first `most` of some positions."""
    shown = ", ".join(map(str, numbers[:most]))
    return f"{shown} and {len(numbers) - most} more" if len(numbers) > most else shown


def verdict_words(verdict):
    """["previous_token", "induction"] -> "previous token, induction"."""
    return ", ".join(TITLES.get(name, name.replace("_", " ")) for name in verdict)


def first_token_words(shares):
    """How much of each query's weight rests on the first token. shares: {head name: mean share over queries 1..}."""
    known = {name: share for name, share in shares.items() if math.isfinite(share)}
    if not known:
        return "The text is a single token, which can only look at itself."
    mean = sum(known.values()) / len(known)
    most, least = max(known, key=known.get), min(known, key=known.get)
    return (f"On this text {percent(mean)} of the layer's weight rests on the first token, from {percent(known[least])} "
            f"in {least} to {percent(known[most])} in {most}.")


def question_words(question, table, uniform):
    """The answer to a question in one or two sentences.

    table: rows with layer, head and a column for each of the question's keys, the weight that query puts on it;
    uniform: the weight that even attention would put on the first key.
    """
    key = question.keys[0]
    best = table.sort_values([key, "layer", "head"], ascending=[False, True, True], kind="stable").head(3)
    named = [f"{head_name(int(row.layer), int(row.head))} ({number(getattr(row, key))})"
             for row in best[["layer", "head", key]].itertuples(index=False)]
    above = int((table[key] > 2 * uniform).sum())
    many = "none" if above == 0 else f"{above}"
    return (f"Most in {listing(named)}. Even attention would give {number(uniform)}; of {len(table)} heads, {many} "
            f"{'gives' if above < 2 else 'give'} more than twice that.")
