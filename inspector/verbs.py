"""What each verb of the command line does: read its input, call its function, print the result.

Heavy imports sit inside the handlers, so that --help is instant. Results go to stdout, progress and notes to stderr.
"""

import os
import sys
from functools import partial
from pathlib import Path

from .errors import ArgumentError, TextError

# -- input and output ------------------------------------------------------------------------------------------------

def drop_stdout():
    """Point standard output at nothing: Python flushes it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    from tqdm import tqdm
    return partial(tqdm, file=sys.stderr, delay=1, leave=False)


def _note(args):
    """What prints a note on stderr; None when quiet."""
    return None if args.quiet or args.json or sys.stderr is None else partial(print, "inspector:", file=sys.stderr)


def _check_csv(args):
    """Raise OutputError where --csv cannot be written: before the work, not after it."""
    if args.csv:
        from .record import refuse_special
        refuse_special(args.csv)


def _save_csv(args, table):
    """Write the table where --csv says, if it does."""
    if args.csv:
        from .record import write_csv
        write_csv(table, args.csv)


# -- verbs -----------------------------------------------------------------------------------------------------------

def _run_info(args):
    from .model.sizes import info
    from .record import to_json
    from .terminal.results import info_text
    found = info(_model(args), _read_text(args), ids=_ids(args), bos=args.bos, tokens=args.tokens)
    print(to_json(found) if args.json else info_text(found))
    return 0


def _run_trace(args):
    from .model.tracing import save, trace
    from .record import refuse_foreign, to_json
    refuse_foreign(args.out)
    text, ids = _needed(args)
    result = trace(_model(args), text, ids=ids, bos=args.bos, keep=args.keep, progress=_progress(args))
    files = save(result, args.out, attention=args.attention)
    if args.json:
        print(to_json({"run": result.run, "folder": str(args.out), "files": files}))
    else:
        print(f"{args.out}: {', '.join(files)}")
    return 0


def _run_check(args):
    from .answers import of_check
    from .checks import check
    from .record import to_json
    from .terminal.results import check_text
    _check_csv(args)
    table = check(_model(args), _read_text(args), ids=_ids(args), bos=args.bos, against=args.against, float64=args.float64,
                  progress=_progress(args))
    _save_csv(args, table)
    print(to_json(of_check(table)) if args.json else check_text(table))
    return 0 if table.attrs["passed"] else 1


def _run_heads(args):
    from .answers import of_heads
    from .findings.table import heads
    from .record import to_json
    from .terminal.results import heads_text
    _check_csv(args)
    table = heads(_model(args), _ids(args), text=_read_text(args), period=args.period, repeats=args.repeats,
                  n_sequences=args.n_sequences, bos=args.bos, seed=args.seed, protocol=args.protocol,
                  threshold=args.threshold, progress=_progress(args))
    _save_csv(args, table)
    print(to_json(of_heads(table)) if args.json else heads_text(table))
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
    folder = report(_model(args), text, ids=ids, out=args.out, bos=args.bos, check=args.check, study=args.study,
                    compare=args.compare, moves=args.moves, period=args.period, seed=args.seed, progress=_progress(args),
                    note=_note(args))
    print(to_json({"folder": str(folder), "index": str(folder / "index.html")}) if args.json else folder / "index.html")
    return 0


def _run_explore(args):
    from .model.tracing import trace
    from .pages.explorer.notebook import explore
    from .record import refuse_special, to_json
    refuse_special(args.out)
    (text, ids), model = _needed(args), _model(args)
    how = {"bos": args.bos, "progress": _progress(args)}
    compare = None if args.compare is None else trace(model, args.compare, **how)
    found = explore(trace(model, text, ids=ids, **how), compare, moves=args.moves)
    path = found.save(args.out)
    print(to_json({"page": str(path), "bytes": len(found.html.encode("utf-8"))}) if args.json else path)
    return 0


def _run_attribute(args):
    from .answers import of_attribution
    from .findings.attribution import attribute
    from .record import to_json
    from .terminal.findings import attribute_text
    _check_csv(args)
    text, ids = _needed(args)
    found = attribute(_model(args), text, ids=ids, bos=args.bos, target=_token(args.target), against=_token(args.against),
                      position=args.position, progress=_progress(args))
    _save_csv(args, found.parts)
    print(to_json(of_attribution(found)) if args.json else attribute_text(found))
    return 0


def _token(given):
    """A token as given: an id where it is a number, else its text; to name a token of digits, give its id."""
    return int(given) if given is not None and given.isascii() and given.isdigit() else given


def _run_induction(args):
    from .answers import of_induction
    from .findings.in_text import induction
    from .record import to_json
    from .terminal.findings import induction_text
    _check_csv(args)
    text, ids = _needed(args)
    found = induction(_model(args), text, ids=ids, bos=args.bos, heads=args.heads, period=args.period, seed=args.seed,
                      progress=_progress(args))
    _save_csv(args, found.places)
    print(to_json(of_induction(found)) if args.json else induction_text(found))
    return 0


def _run_circuits(args):
    from .answers import of_circuits
    from .findings.circuits.table import circuits
    from .record import to_json
    from .terminal.findings import circuits_text
    _check_csv(args)
    found = circuits(_model(args), fold=args.fold, samples=args.samples, n_directions=args.n_directions,
                     n_tokens=args.n_tokens, seed=args.seed, progress=_progress(args))
    _save_csv(args, found.heads)
    print(to_json(of_circuits(found)) if args.json else circuits_text(found))
    return 0


def _run_ablate(args):
    from .answers import of_table
    from .findings.ablation import ablate
    from .record import to_json
    from .terminal.findings import ablate_text
    _check_csv(args)
    table = ablate(_model(args), args.heads, text=_read_text(args), ids=_ids(args), fill=args.fill, patterns=args.patterns,
                   period=args.period, repeats=args.repeats, n_sequences=args.n_sequences, bos=args.bos, seed=args.seed,
                   n_controls=args.n_controls, progress=_progress(args))
    _save_csv(args, table)
    print(to_json(of_table(table)) if args.json else ablate_text(table))
    return 0


def _run_study(args):
    from .findings.study import as_json, study
    from .pages.study import save_study
    from .record import refuse_foreign, to_json
    from .terminal.study import study_text
    if args.out:
        goal = refuse_foreign(args.out)
        if args.csv and Path(args.csv).expanduser().resolve().is_relative_to(goal.resolve()):
            raise ArgumentError(f"--csv {args.csv} lies inside --out {args.out}, which is written as a whole and holds the "
                                "table as tables/study_heads.csv; choose another place")
    _check_csv(args)
    model = _model(args)
    found = study(model, _read_text(args), ids=_ids(args), bos=args.bos, period=args.period, repeats=args.repeats,
                  n_sequences=args.n_sequences, seed=args.seed, threshold=args.threshold,
                  copying_threshold=args.copying_threshold, k_below=args.k_below, qv_above=args.qv_above,
                  n_controls=args.n_controls, fold=args.fold, progress=_progress(args))
    _save_csv(args, found.table)
    if args.out:
        save_study(model, found, args.out)
    print(to_json(as_json(found)) if args.json else study_text(found, args.out))
    return 0


def _run_intervene(args):
    from .answers import of_intervention
    from .findings.interventions import intervene
    from .record import to_json
    from .terminal.interventions import intervention_text
    _check_csv(args)
    text, ids = _needed(args)
    found = intervene(_model(args), args.edits, text, ids=ids, bos=args.bos, position=args.position,
                      n_references=args.n_references, seed=args.seed, top=args.top, progress=_progress(args))
    _save_csv(args, found.tokens)
    print(to_json(of_intervention(found)) if args.json else intervention_text(found))
    return 0


def _run_serve(args):
    from .record import to_json
    from .server.serving import serve

    def note(address):
        facts = {"address": address, "models": list(args.models), "dtype": args.dtype}
        line = to_json(facts, indent=None) if args.json else f"{address} ({', '.join(args.models)}; Ctrl-C stops)"
        try:
            print(line, flush=True)
        except OSError:             # nobody reads it any longer; who knows the port is served all the same
            drop_stdout()

    serve(args.models, dtype=args.dtype, device=args.device, host=args.host, port=args.port, max_tokens=args.max_tokens,
          max_body=args.max_body, queue=args.queue, timeout=args.timeout, note=note)
    return 0


RUN = {"info": _run_info, "trace": _run_trace, "check": _run_check, "heads": _run_heads, "attribute": _run_attribute,
       "induction": _run_induction, "circuits": _run_circuits, "ablate": _run_ablate, "intervene": _run_intervene,
       "study": _run_study, "report": _run_report, "explore": _run_explore, "serve": _run_serve}
