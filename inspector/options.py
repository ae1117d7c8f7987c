"""The command line's arguments: one verb per public function, the same names and defaults (a test holds them equal)."""

import argparse
from pathlib import Path

from . import __version__

TEXT_HELP = "the text; - reads standard input"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


class _Several(argparse.Action):
    """An option given several times: its values in a list, in place of the default."""

    def __call__(self, parser, namespace, value, option_string=None):
        given = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*(() if given is self.default else given), value])


def _common(parser, several=False):
    sources = "demo, planted, a hub id, a checkpoint folder or a weights file (default: gpt2)"
    if several:
        parser.add_argument("--model", dest="models", metavar="SOURCE", action=_Several, default=("gpt2",),
                            help=f"{sources}; give it several times for several models")
    else:
        parser.add_argument("--model", metavar="SOURCE", help=sources)
    parser.add_argument("--dtype", default="float32", help="float32 (default), float64, bfloat16, float16")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, mps, ...")
    parser.add_argument("--quiet", action="store_true", help="no progress bars, no notes")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output, nothing else")


def _text(parser):
    parser.add_argument("text", nargs="?", metavar="TEXT", help=TEXT_HELP)
    parser.add_argument("--file", type=Path, help="read the text from a file (UTF-8)")
    parser.add_argument("--ids", help='token ids instead of a text, e.g. --ids "464 3797 3332"')
    parser.add_argument("--bos", action="store_true", help="put the BOS token first (off by default, never doubled)")


# What a verb's columns mean stands in the README, section by section; here, one example each.
EXAMPLES = {
    "info": '"The cat sat" --tokens 1024', "trace": '"The cat sat" --out reports/trace', "check": '"The cat sat on the mat"',
    "heads": "--seed 1 --csv heads.csv", "attribute": '"The cat sat on the" --target " mat" --against " cat"',
    "induction": '"Ms. Dursley saw a cat. Ms."', "circuits": "--csv circuits.csv", "ablate": '--heads "1.1 1.2" --fill zero',
    "intervene": '"Ms. Dursley saw a cat. Ms." --edits "1.1=zero 1.2=0.5"', "serve": "--port 8000",
    "study": "--out reports/study", "report": "--file text.txt --study --out reports/mine",
    "explore": '"The cat saw the cat" --compare "The dog saw the cat"',
}
EPILOG = ("example: inspector {verb} {example} --model demo\nA head is written layer.head, both from 0: 1.4. More, and what "
          "columns mean: README.md, section '{verb}'.")


def _sequences(parser):
    parser.add_argument("--period", type=int, help="length of the repeated block (default: 50, or as long as fits; in given "
                                                   "ids it is found)")
    parser.add_argument("--repeats", type=int, default=2, help="copies of the block (default: 2)")
    parser.add_argument("--n-sequences", type=int, default=16, help="sequences drawn (default: 16)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn sequences (default: 0)")


def _csv(parser):
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table as CSV")


def _explorer(parser):
    parser.add_argument("--compare", metavar="TEXT", help="a second text, to put beside the first in the explorer")
    parser.add_argument("--moves", metavar="HEADS", help='whose q, k and v the explorer holds, e.g. "5.1 6.9" (default: all '
                        "up to 64 tokens, beyond that the eight that score highest)")


def build_parser():
    """The parser of all verbs."""
    parser = _Parser(prog="inspector", description="Look inside GPT-2 with confidence.")
    parser.add_argument("--version", action="version", version=f"inspector {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)

    info = verbs.add_parser("info", help="what the model is made of, and what a text costs")
    _common(info)
    _text(info)
    info.add_argument("--tokens", type=int, metavar="N", help="what N tokens cost (any N)")

    trace = verbs.add_parser("trace", help="q, k, v, scores, pattern, z, residual stream and logits of a text, as files")
    _common(trace)
    _text(trace)
    trace.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    trace.add_argument("--keep", metavar="NAMES", help="only these, as in --keep q,k,v,pattern; the rest is not made where "
                       "that can be helped (default: all)")
    trace.add_argument("--attention", action="store_true", help="write attention.csv also beyond 200 tokens")

    check = verbs.add_parser("check", help="prove the numbers against Hugging Face, or against the planted model")
    _common(check)
    _text(check)
    check.add_argument("--against", default="huggingface", help="huggingface (default), planted, or published (known "
                                                                "releases)")
    check.add_argument("--no-float64", dest="float64", action="store_false", help="leave out the float64 part (memory)")
    _csv(check)

    heads = verbs.add_parser("heads", help="scores and verdicts of every head, on repeats or on a text")
    _common(heads)
    _text(heads)
    _sequences(heads)
    heads.add_argument("--protocol", default="stripe", help="stripe (default) or a published one: tl-seed0, tl-main, "
                                                            "olsson, song2024, ioi")
    heads.add_argument("--threshold", type=float, default=0.4, help="a verdict needs a score above it (default: 0.4)")
    _csv(heads)

    attribute = verbs.add_parser("attribute", help="which parts raise one next token against another; logit lens")
    _common(attribute)
    _text(attribute)
    attribute.add_argument("--target", help='the next token asked about, e.g. " Mary", or an id (default: the likeliest)')
    attribute.add_argument("--against", help="the token it is held against (default: the mean of the vocabulary)")
    attribute.add_argument("--position", type=int, default=-1, help="where it is predicted from (default: -1, the last)")
    _csv(attribute)

    induction = verbs.add_parser("induction", help="what repeats in a text, and what the induction heads do there")
    _common(induction)
    _text(induction)
    induction.add_argument("--heads", metavar="HEADS", help='the heads to look at, e.g. "1.1 1.4" (default: those found)')
    induction.add_argument("--period", type=int, help="length of the repeated block the heads are found on")
    induction.add_argument("--seed", type=int, default=0, help="seed of the drawn sequences (default: 0)")
    _csv(induction)

    circuits = verbs.add_parser("circuits", help="what the weights of each head and pair of heads say")
    _common(circuits)
    circuits.add_argument("--raw", dest="fold", action="store_false", help="leave LayerNorm out instead of folding it in")
    circuits.add_argument("--samples", type=int, default=200, help="random pairs for the baseline (default: 200)")
    circuits.add_argument("--n-directions", type=int, default=3, help="leading OV directions of each head (default: 3)")
    circuits.add_argument("--n-tokens", type=int, default=8, help="top tokens of each direction (default: 8)")
    circuits.add_argument("--seed", type=int, default=0, help="seed of the baseline (default: 0)")
    _csv(circuits)

    ablate = verbs.add_parser("ablate", help="what happens to the loss without a head, or without a set of heads")
    _common(ablate)
    _text(ablate)
    ablate.add_argument("--heads", metavar="HEADS", help='heads to cut together, e.g. "1.1 1.4" (default: each head alone)')
    ablate.add_argument("--fill", default="mean", help="what a cut head says instead: mean (default), zero, resample")
    ablate.add_argument("--patterns", default="free", help="later patterns: free (default), or frozen to the clean run")
    _sequences(ablate)
    ablate.add_argument("--n-controls", type=int, default=20, help="at most so many random sets of equal size beside a set "
                                                                   "(default: 20)")
    _csv(ablate)

    intervene = verbs.add_parser("intervene", help="a text with heads turned off or sharpened, beside the untouched one")
    _common(intervene)
    _text(intervene)
    intervene.add_argument("--edits", required=True, metavar="EDITS",
                           help='what to do to which head, e.g. "1.1=zero 1.2=mean 0.3=2": cut it (zero, or its mean over '
                                "the text's tokens in random orders), or multiply its scores")
    intervene.add_argument("--position", type=int, default=-1, help="the next token is the one after it (default: -1, the "
                                                                    "last)")
    intervene.add_argument("--n-references", type=int, default=16, help="random orders of the text's tokens that a mean is "
                                                                        "over (default: 16)")
    intervene.add_argument("--seed", type=int, default=0, help="seed of the random orders (default: 0)")
    intervene.add_argument("--top", type=int, default=10, help="likeliest next tokens of each run (default: 10)")
    _csv(intervene)

    study = verbs.add_parser("study", help="everything above combined: which heads do induction, by what evidence")
    _common(study)
    _text(study)
    _sequences(study)
    study.add_argument("--threshold", type=float, default=0.4, help="a verdict needs a score above it (default: 0.4)")
    study.add_argument("--copying-threshold", type=float, default=0.2, help="copies or suppresses: copying z beyond it "
                                                                            "(default: 0.2)")
    study.add_argument("--k-below", type=float, default=0.5, help="a pair agrees if less than this share of the stripe is "
                                                                  "left with the second's k from the cut run (default: 0.5)")
    study.add_argument("--qv-above", type=float, default=0.9, help="and more than this with its q or its v from there "
                                                                   "(default: 0.9)")
    study.add_argument("--n-controls", type=int, default=20, help="random sets of equal size beside a set (default: 20)")
    study.add_argument("--raw", dest="fold", action="store_false", help="leave LayerNorm out of the weights' measures")
    study.add_argument("--out", type=Path, metavar="FOLDER", help="also write page, figures and tables to this folder")
    _csv(study)

    report = verbs.add_parser("report", help="a folder of pages, figures and tables that opens anywhere")
    _common(report)
    _text(report)
    report.add_argument("--preset", help="a text by name: animal, cat, dursley")
    report.add_argument("--out", type=Path, default=Path("reports/report"), metavar="FOLDER",
                        help="folder to write (default: reports/report)")
    report.add_argument("--no-check", dest="check", action="store_false",
                        help="leave out the proof; the pages then say 'not checked'")
    report.add_argument("--study", action="store_true", help="add the induction study (minutes on GPT-2 small)")
    _explorer(report)
    report.add_argument("--period", type=int, help="length of the repeated block for the head scores")
    report.add_argument("--seed", type=int, default=0, help="seed of the drawn sequences (default: 0)")

    explore = verbs.add_parser("explore", help="one page of attention to touch: a text, or two beside each other")
    _common(explore)
    _text(explore)
    _explorer(explore)
    explore.add_argument("--out", type=Path, default=Path("explorer.html"), metavar="FILE",
                         help="file to write (default: explorer.html)")

    serve = verbs.add_parser("serve", help="the live page and a JSON API, on this machine")
    _common(serve, several=True)
    serve.add_argument("--host", default="127.0.0.1", help="the address to serve on (default: 127.0.0.1, this machine only)")
    serve.add_argument("--port", type=int, default=8321, help="the port (default: 8321; 0 takes a free one)")
    serve.add_argument("--max-tokens", type=int, default=1024, help="tokens of a text, at most (default: 1024)")
    serve.add_argument("--max-body", type=int, default=1_000_000, help="bytes of a request, at most (default: 1000000)")
    serve.add_argument("--queue", type=int, default=4, help="requests that may wait while one computes (default: 4)")
    serve.add_argument("--timeout", type=float, default=60, help="seconds that one may compute (default: 60)")
    for verb, sub in verbs.choices.items():
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        sub.epilog = EPILOG.format(verb=verb, example=EXAMPLES[verb])
    return parser
