"""The command `inspector`: runs one verb and turns what happens into an exit code.

`options.py` says which arguments there are, `verbs.py` what each verb does. Errors go to stderr, one line each.
Exit codes: 0 done (and passed), 1 a check failed, 2 bad input or it could not run.
"""

import signal
import sys

from .errors import InspectorError, OutputError
from .options import build_parser
from .verbs import RUN, drop_stdout


class _Terminated(BaseException):
    """SIGTERM or SIGHUP as an exception, so that half-written folders are removed on the way out."""


HALVES = ("bfloat16", "float16")        # whoever reads numbers made in these is told so, whatever the verb


def _on_signal(number, frame):
    raise _Terminated(number)


def _say(text):
    """One line on stderr, where there is one."""
    if sys.stderr is not None:
        print(f"inspector: {' '.join(text.split())}", file=sys.stderr)


def _run(args):
    """The verb's exit code, with what it printed on its way. Raises OutputError when standard output is closed."""
    if sys.stdout is None and args.verb != "serve":        # what a server does is not what it prints
        raise OutputError("standard output is closed")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        if hasattr(stream, "reconfigure"):     # labels are Unicode; JSON is UTF-8 whatever the terminal speaks
            stream.reconfigure(encoding="utf-8" if args.json else None, errors="backslashreplace")
    code = RUN[args.verb](args)
    if args.dtype in HALVES and args.verb != "check" and not args.json:     # a check says itself what it proved
        print(f"all numbers in {args.dtype}, a half precision")
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


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
        drop_stdout()                         # the reader went away (head, less): silence, as other tools do
        return 141
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            drop_stdout()
        _say(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
            _say("not enough memory for this text and model; try a shorter text, or heads (which keeps no grids)")
            return 2
        raise


if __name__ == "__main__":
    sys.exit(main())
