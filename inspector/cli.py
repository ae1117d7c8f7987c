"""The command `inspector`: one verb per public function, the same names, arguments and defaults.

Heavy imports sit inside the handlers, so that --help is instant. Results go to stdout, progress and errors to stderr.
Exit codes: 0 done (and passed), 1 a check failed, 2 bad input or it could not run.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from . import __version__
from .errors import ArgumentError, InspectorError, OutputError, TextError

TEXT_HELP = "the text; - reads standard input"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


# -- arguments -------------------------------------------------------------------------------------------------------

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


# -- input and output ------------------------------------------------------------------------------------------------

def _read_text(args):
    """The text of the arguments, or None. Raises TextError for two sources or bytes that are no UTF-8."""
    given = [name for name, value in (("TEXT", args.text), ("--file", args.file), ("--ids", args.ids)) if value is not None]
    if len(given) > 1:
        raise TextError(f"give one of TEXT, --file and --ids, not {' and '.join(given)}")
    if args.file is not None:
        try:
            return _decode(args.file.read_bytes(), args.file)
        except (OSError, ValueError) as error:
            raise TextError(f"cannot read {str(args.file)!r}: {getattr(error, 'strerror', None) or error}") from error
    if args.text == "-":
        if sys.stdin is None:
            raise TextError("standard input is closed: there is no text to read")
        return _decode(sys.stdin.buffer.read(), "standard input")
    if args.text is not None:
        return _decode(os.fsencode(args.text), "the text")
    return None


def _decode(data, where):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"{where} is not valid UTF-8 (byte {error.start})") from error


def _ids(args):
    from .checkpoint.tokens import parse_ids
    return None if args.ids is None else parse_ids(args.ids)


def _needed(args):
    """(text, ids), one of them None. Raises TextError that names every way to give one where there is neither."""
    text, ids = _read_text(args), _ids(args)
    if text is None and ids is None:
        raise TextError("give a text: TEXT, --file FILE, - for standard input, or --ids"
                        + (", or --preset" if args.verb == "report" else ""))
    return text, ids


def _model(args):
    from .checkpoint.loading import load
    source = ("planted" if getattr(args, "against", None) == "planted" else "gpt2") if args.model is None else args.model
    return load(source, dtype=args.dtype, device=args.device)


def _progress(args):
    """tqdm on stderr for what takes over a second; None when quiet or when nobody watches."""
    if args.quiet or args.json or sys.stderr is None or not sys.stderr.isatty():
        return None
    from functools import partial

    from tqdm import tqdm
    return partial(tqdm, file=sys.stderr, delay=1, leave=False)


def _note(args, text):
    if not args.quiet:
        print(text, file=sys.stderr)


def _table_json(table, **more):
    from .record import rows_of, to_json
    return to_json({"run": table.attrs["run"], **more, "rows": rows_of(table)})


# -- verbs -----------------------------------------------------------------------------------------------------------

def _run_info(args):
    from .model.sizes import info
    from .record import to_json
    from .terminal import info_text
    found = info(_model(args), _read_text(args), ids=_ids(args), bos=args.bos, tokens=args.tokens)
    print(to_json(found) if args.json else info_text(found))
    return 0


def _run_trace(args):
    from .model.tracing import save, trace
    from .record import refuse_foreign, to_json
    refuse_foreign(args.out)
    text, ids = _needed(args)
    result = trace(_model(args), text, ids=ids, bos=args.bos, progress=_progress(args))
    files = save(result, args.out, attention=args.attention)
    if args.json:
        print(to_json({"run": result.run, "folder": str(args.out), "files": files}))
    else:
        print(f"{args.out}: {', '.join(files)}")
    return 0


def _run_check(args):
    from .checks import check
    from .record import refuse_special, write_csv
    from .terminal import check_text
    if args.csv:
        refuse_special(args.csv)              # before the work, not after it
    table = check(_model(args), _read_text(args), ids=_ids(args), bos=args.bos, against=args.against, float64=args.float64,
                  progress=_progress(args))
    if args.csv:
        write_csv(table, args.csv)
    print(_table_json(table, passed=table.attrs["passed"], verdict=table.attrs["verdict"]) if args.json
          else check_text(table))
    return 0 if table.attrs["passed"] else 1


def _run_heads(args):
    from .findings.table import heads
    from .record import refuse_special, write_csv
    from .terminal import heads_text
    if args.csv:
        refuse_special(args.csv)
    table = heads(_model(args), _ids(args), text=_read_text(args), period=args.period, repeats=args.repeats,
                  n_sequences=args.n_sequences, bos=args.bos, seed=args.seed, protocol=args.protocol,
                  threshold=args.threshold, progress=_progress(args))
    if args.csv:
        write_csv(table, args.csv)
    print(_table_json(table) if args.json else heads_text(table))
    return 0


def _run_report(args):
    from .pages.report import report
    from .record import to_json
    if args.preset is not None:
        if (_read_text(args), _ids(args)) != (None, None):
            raise ArgumentError("give either a text or --preset, not both")
        from .pages.presets import preset
        text, ids = preset(args.preset), None
    else:
        text, ids = _needed(args)
    folder = report(_model(args), text, ids=ids, out=args.out, bos=args.bos, check=args.check, period=args.period,
                    seed=args.seed, progress=_progress(args))
    print(to_json({"folder": str(folder), "index": str(folder / "index.html")}) if args.json else folder / "index.html")
    return 0


RUN = {"info": _run_info, "trace": _run_trace, "check": _run_check, "heads": _run_heads, "report": _run_report}


class _Terminated(BaseException):
    """SIGTERM or SIGHUP as an exception, so that half-written folders are removed on the way out."""


def _on_signal(number, frame):
    raise _Terminated(number)


def _say(text):
    """One line on stderr, where there is one."""
    if sys.stderr is not None:
        print(f"inspector: {' '.join(text.split())}", file=sys.stderr)


def _run(args):
    """The verb's exit code, with what it printed on its way. Raises OutputError when standard output is closed."""
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        if hasattr(stream, "reconfigure"):     # labels are Unicode; JSON is UTF-8 whatever the terminal speaks
            stream.reconfigure(encoding="utf-8" if args.json else None, errors="backslashreplace")
    code = RUN[args.verb](args)
    sys.stdout.flush()
    return code


def _drop_stdout():
    """Point standard output at nothing: Python flushes it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv=None):
    """Run one command; returns its exit code."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.verb is None:
        parser.print_help()
        return 2
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:    # nohup stays nohup
            signal.signal(getattr(signal, name), _on_signal)
    try:
        return _run(args)
    except InspectorError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    except _Terminated as stop:
        return 128 + stop.args[0]
    except BrokenPipeError:
        _drop_stdout()                         # the reader went away (head, less): silence, as other tools do
        return 141
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_stdout()
        _say(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
            _say("not enough memory for this text and model; try a shorter text, or heads (which keeps no grids)")
            return 2
        raise


if __name__ == "__main__":
    sys.exit(main())
