"""The replay verbs of the command line: show, check, execute, isolate, export …; simulate and import take a trace.

The others take a recording: a run's folder, or one segment of it. Exit codes: 0 equal, 1 diverged, 2 cannot compare
(the reason is on stderr); of what-if 0 trusted, 1 not to be trusted, 2 no answer. A verb's machinery is imported when
the verb runs: show and check never load torch.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.errors import EngineError
from replay.bisect.command import add_bisect, add_trace
from replay.debug.command import add_arguments as add_debug_arguments
from replay.export.command import add_arguments as add_export_arguments
from replay.refusal import CannotCompare
from replay.shrink.command import add_arguments as add_shrink_arguments
from replay.simulate.command import add_simulate
from replay.simulate.import_command import add_import
from replay.span import add_span_options, span_of
from replay.viewer.command import add_arguments as add_view_arguments
from replay.what_if.command import add_arguments as add_what_if

if TYPE_CHECKING:  # the annotation's own imports stay out of the way of a quick start
    from replay.bisect.revisions import RevisionsVerdict
    from replay.verdict import Verdict

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CANNOT_COMPARE = 2
_RECORDING_HELP = "folder of one run, or one of its segments (.rpr, .rps)"


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m replay VERB …`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    add_verbs(parser.add_subparsers(dest="verb", required=True))
    args = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


def add_verbs(subparsers: "Subparsers") -> None:
    """Register the verbs; each parser sets `run`, a callable that takes the arguments and returns the exit code."""
    show = _verb(subparsers, "show", _show, "what is in a recording, and where it can be replayed")
    what = show.add_mutually_exclusive_group()
    what.add_argument("--requests", action="store_true", help="a table of all requests")
    what.add_argument("--request", metavar="ID", help="every event and decision about one request (its id, or number)")
    what.add_argument("--transcript", action="store_true", help="every record, one line each")
    what.add_argument("--fsck", action="store_true", help="every checksum, index and digest; exit code 1 for any fault")
    show.add_argument(
        "--around", type=int, metavar="SEQUENCE", help="with --transcript: only the entries near this one"
    )

    check_summary = "let the core decide again: all decisions must be equal (no model needed)"
    add_span_options(_verb(subparsers, "check", _check, check_summary))

    execute = _verb(subparsers, "execute", _execute, "run the model over the recorded plans: tokens and digests equal")
    add_span_options(execute)
    execute.add_argument("--record", type=Path, metavar="DIR", help="record what comes out, to view or diff beside REC")
    _add_model_options(execute)

    isolate = _verb(subparsers, "isolate", _isolate, "run one request alone: the same bits as in company")
    which = isolate.add_mutually_exclusive_group(required=True)
    which.add_argument("request", nargs="?", metavar="REQUEST", help="the client's request id, or the request's number")
    which.add_argument("--all", action="store_true", help="every request that emitted a token, one after the other")
    isolate.add_argument(
        "--prove",
        action="store_true",
        help="go on to the token position, layer and operation where bits first differ, and whose data was there",
    )
    add_span_options(isolate)
    _add_model_options(isolate)

    bisect = _verb(subparsers, "bisect", _bisect, "the first step, layer and operation where two sides part")
    add_bisect(bisect)
    _add_model_options(bisect)
    trace = _verb(subparsers, "trace", _trace, "digests of each step, or of each operation of one, computed here")
    add_trace(trace)
    _add_model_options(trace)

    add_view_arguments(_verb(subparsers, "view", _view, "look at it in a browser: timeline, steps, requests, blocks"))

    add_debug_arguments(_verb(subparsers, "debug", _debug, "time travel in the terminal: any step, there and back"))

    add_shrink_arguments(_verb(subparsers, "shrink", _shrink, "the smallest recording that fails in the same way"))

    what_if = _verb(subparsers, "what-if", _what_if, "the recorded load under another policy or other limits")
    add_what_if(what_if)

    diff = _verb(subparsers, "diff", _diff, "two recordings aligned by request: decisions, tokens, latencies")
    diff.add_argument("other", type=Path, metavar="OTHER", help="the recording it is compared with")

    repair = _verb(subparsers, "repair", _repair, "copy what can be read of a damaged recording; never in place")
    repair.add_argument("target", type=Path, metavar="OUT", help="a folder that does not exist yet")

    mark = _verb(subparsers, "mark", _mark, "keep a recording beyond the bounds, and say why")
    mark.add_argument(
        "--reason", required=True, metavar="TEXT", help="why; it is kept in a .pin file beside the segment"
    )

    redact = _verb(subparsers, "redact", _redact, "a copy without contents or names that can still be checked")
    redact.add_argument("target", type=Path, metavar="OUT", help="a folder that does not exist yet")
    redact.add_argument(
        "--execute", action="store_true", help="run the model on synthetic prompts: OUT can be executed"
    )
    _add_model_options(redact)

    keys = _verb(subparsers, "keys", _keys, "the keys of encrypted contents: list, rotate, erase a tenant's, rewrap")
    task = keys.add_mutually_exclusive_group()
    task.add_argument("--rotate", metavar="TENANT", help="its contents are under a new key from now on")
    task.add_argument("--erase", metavar="TENANT", help="destroy its keys: its contents can never be read again")
    task.add_argument("--rewrap", type=Path, metavar="FILE", help="all keys under the master key in this file")
    keys.add_argument("--key-file", default="", metavar="FILE", help="the master key, as vault-key-file of serve")

    add_export_arguments(_verb(subparsers, "export", _export, "a recording in a format that other tools read"))
    add_simulate(subparsers)
    add_import(subparsers)


def _verb(
    subparsers: "Subparsers", name: str, run: Callable[[argparse.Namespace], int], summary: str
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=summary, description=summary)
    parser.add_argument("recording", type=Path, metavar="REC", help=_RECORDING_HELP)
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    parser.set_defaults(run=lambda args: _guarded(name, run, args))
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME|PATH", help="where the recorded model is now, if not where it was")
    parser.add_argument("--backend", metavar="NAME", help="another backend than the recorded one")
    parser.add_argument(
        "--allow-numeric-drift", action="store_true", help="another numerics class than recorded: compare tokens only"
    )


def _guarded(name: str, run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Foreseeable trouble becomes a reason in words and exit code 2."""
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CannotCompare as refusal:
        return _refuse(name, args, refusal.reason, refusal.remedy)
    except (EngineError, OSError) as error:
        return _refuse(name, args, str(error), "")
    except KeyboardInterrupt:
        return _refuse(name, args, "interrupted", "")


def _refuse(name: str, args: argparse.Namespace, reason: str, remedy: str) -> int:
    if args.json:
        values = {
            "verb": name,
            "recording": str(args.recording),
            "result": "cannot_compare",
            "exit_code": CANNOT_COMPARE,
        }
        print(json.dumps({**values, "reason": reason, "remedy": remedy}, indent=2))
    _explain(name, reason, remedy)
    return CANNOT_COMPARE


def _explain(name: str, reason: str, remedy: str) -> None:
    print(f"{name}: {reason}", *([f"  remedy: {remedy}"] if remedy else []), sep="\n", file=sys.stderr)


def _show(args: argparse.Namespace) -> int:
    if args.fsck:
        from replay.tending import fsck

        return fsck(args.recording, args.json)
    from replay.show import View, show

    view = View(args.requests, args.request, args.transcript, args.around, args.json)
    for line in show(args.recording, view):
        print(line)
    return 0


def _repair(args: argparse.Namespace) -> int:
    from replay.tending import repair_into

    return repair_into(args.recording, args.target, args.json)


def _mark(args: argparse.Namespace) -> int:
    from replay.tending import mark

    return mark(args.recording, args.reason, args.json)


def _redact(args: argparse.Namespace) -> int:
    from replay.model_runs.open_model import Overrides, open_recorded_model
    from replay.model_runs.redaction import redact

    open_runner = open_recorded_model if args.execute else None
    done = redact(args.recording, args.target, open_runner, Overrides(args.model, args.backend))
    values = {"target": str(args.target), **asdict(done)}
    print(json.dumps(values, indent=2) if args.json else ", ".join(f"{name} {value}" for name, value in values.items()))
    return 0


def _export(args: argparse.Namespace) -> int:
    from replay.export.command import run

    return run(args)


def _keys(args: argparse.Namespace) -> int:
    from replay.key_ring import Task, tend_keys

    return tend_keys(args.recording, Task(args.rotate, args.erase, args.rewrap, args.key_file), args.json)


def _check(args: argparse.Namespace) -> int:
    from replay.check import check

    return _finish(args, check(args.recording, span=span_of(args)))


def _execute(args: argparse.Namespace) -> int:
    from replay.execute import execute
    from replay.model_runs.open_model import Overrides

    overrides = Overrides(args.model, args.backend)
    drift = args.allow_numeric_drift
    span, folder = span_of(args), args.record
    verdict = execute(args.recording, overrides=overrides, allow_numeric_drift=drift, span=span, record_dir=folder)
    code = _finish(args, verdict)
    if folder is not None and not args.json:
        print(f"side by side: reprise view {shlex.quote(str(args.recording))} {shlex.quote(str(folder))}")
    return code


def _isolate(args: argparse.Namespace) -> int:
    from replay.isolate import isolate
    from replay.model_runs.open_model import Overrides

    request = None if args.all else args.request
    overrides = Overrides(args.model, args.backend)
    return _finish(
        args,
        isolate(
            args.recording,
            request,
            overrides=overrides,
            allow_numeric_drift=args.allow_numeric_drift,
            prove=args.prove,
            span=span_of(args),
        ),
    )


def _view(args: argparse.Namespace) -> int:
    from replay.viewer.command import run

    return run(args)


def _debug(args: argparse.Namespace) -> int:
    from replay.debug.command import run

    return run(args)


def _shrink(args: argparse.Namespace) -> int:
    from replay.shrink.command import run

    return run(args)


def _what_if(args: argparse.Namespace) -> int:
    from replay.what_if.command import run

    return run(args)


def _diff(args: argparse.Namespace) -> int:
    from replay.diff.diff import diff
    from replay.diff.report import as_json, text

    compared = diff(args.recording, args.other)
    print(as_json(compared) if args.json else text(compared))
    if compared.refusal is not None:
        _explain("diff", compared.refusal.reason, compared.refusal.remedy)
    return compared.exit_code


def _bisect(args: argparse.Namespace) -> int:
    from replay.bisect.command import run_bisect

    return _finish(args, run_bisect(args))


def _trace(args: argparse.Namespace) -> int:
    from replay.bisect.command import run_trace

    return run_trace(args)


def _finish(args: argparse.Namespace, verdict: "Verdict | RevisionsVerdict") -> int:
    print(verdict.as_json() if args.json else verdict.as_text())
    if verdict.refusal is not None:
        _explain(verdict.verb, verdict.refusal.reason, verdict.refusal.remedy)
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
