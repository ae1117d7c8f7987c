"""The command line's arguments: one verb per public function, the same names and defaults (a test holds them equal)."""

import argparse
from pathlib import Path

from . import __version__

TEXT_HELP = "the text; - reads standard input"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def _common(parser):
    parser.add_argument("--model", metavar="SOURCE",
                        help="demo, planted, a hub id, a checkpoint folder or a weights file (default: gpt2)")
    parser.add_argument("--dtype", default="float32", help="float32 (default), float64, bfloat16, float16")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, mps, ...")
    parser.add_argument("--quiet", action="store_true", help="no progress bars, no notes")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output, nothing else")


def _text(parser):
    parser.add_argument("text", nargs="?", metavar="TEXT", help=TEXT_HELP)
    parser.add_argument("--file", type=Path, help="read the text from a file (UTF-8)")
    parser.add_argument("--ids", help='token ids instead of a text, e.g. --ids "464 3797 3332"')
    parser.add_argument("--bos", action="store_true", help="put the BOS token first (off by default, never doubled)")


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
    trace.add_argument("--attention", action="store_true", help="write attention.csv also beyond 200 tokens")

    check = verbs.add_parser("check", help="prove the numbers against Hugging Face, or against the planted model")
    _common(check)
    _text(check)
    check.add_argument("--against", default="huggingface", help="huggingface (default) or planted")
    check.add_argument("--no-float64", dest="float64", action="store_false", help="leave out the float64 part (memory)")
    check.add_argument("--csv", type=Path, metavar="FILE", help="also write the table as CSV")

    heads = verbs.add_parser("heads", help="scores and verdicts of every head, on repeats or on a text")
    _common(heads)
    _text(heads)
    heads.add_argument("--period", type=int, help="length of the repeated block (default: 50; in given ids it is found)")
    heads.add_argument("--repeats", type=int, default=2, help="copies of the block (default: 2)")
    heads.add_argument("--n-sequences", type=int, default=16, help="sequences drawn (default: 16)")
    heads.add_argument("--seed", type=int, default=0, help="seed of the drawn sequences (default: 0)")
    heads.add_argument("--protocol", default="stripe", help="stripe (default) or a published one: tl-seed0, tl-main, "
                                                            "olsson, song2024, ioi")
    heads.add_argument("--threshold", type=float, default=0.4, help="a verdict needs a score above it (default: 0.4)")
    heads.add_argument("--csv", type=Path, metavar="FILE", help="also write the table as CSV")

    report = verbs.add_parser("report", help="a folder of pages, figures and tables that opens anywhere")
    _common(report)
    _text(report)
    report.add_argument("--preset", help="a text by name: animal, cat, dursley")
    report.add_argument("--out", type=Path, default=Path("reports/report"), metavar="FOLDER",
                        help="folder to write (default: reports/report)")
    report.add_argument("--no-check", dest="check", action="store_false",
                        help="leave out the proof; the pages then say 'not checked'")
    report.add_argument("--period", type=int, help="length of the repeated block for the head scores")
    report.add_argument("--seed", type=int, default=0, help="seed of the drawn sequences (default: 0)")
    return parser
