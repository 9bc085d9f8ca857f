"""The verb `reprise bench`: options → measurement → table and files. What is needed only to measure is imported then.

Exit codes: 0 done; 1 there is no server, or one of them gave no whole answer, or answers drift; 2 an option cannot be
used.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.bench.errors import BenchError, UnusableOption
from daemon.bench.options import DRIFT, add_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.bench.plan import Plan
    from daemon.bench.saved_answers import AnswerFile

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_INTERRUPTED = 130  # as shells report SIGINT


def add_bench(subparsers: "Subparsers") -> None:
    """Register the verb; its parser sets `run`, a callable that takes the arguments and returns the exit code."""
    summary = "measure any OpenAI-compatible server under load"
    parser = subparsers.add_parser("bench", help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and report; returns the exit code."""
    from daemon.bench.plan import read_plan

    return measured("bench", args, read_plan)


def measured(verb: str, args: argparse.Namespace, read_plan: "Callable[[argparse.Namespace], Plan]") -> int:
    """The plan that is read carried out and reported, for any verb with these options; returns the exit code."""
    from daemon.bench.saved_answers import AnswerFile

    try:
        plan = read_plan(args)
        _check_writable("--json", args.json)
        _check_writable("--save", args.save)
        return _measure(args, _with_models(plan), AnswerFile(args.save))
    except BenchError as error:
        print(f"reprise {verb}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"reprise {verb}: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _with_models(plan: "Plan") -> "Plan":
    import asyncio

    from daemon.bench.endpoint import find_model

    return plan.with_models([asyncio.run(find_model(endpoint)) for endpoint in plan.endpoints])


def _measure(args: argparse.Namespace, plan: "Plan", file: "AnswerFile") -> int:
    from daemon.bench import json_report, report
    from daemon.bench.drift import measure_drift
    from daemon.bench.rounds import Bench
    from engine.clock import SystemClock

    clock = SystemClock()
    bench = Bench(plan, clock, file.keep)
    if getattr(args, "workload", "") == DRIFT:
        drift = measure_drift(plan, bench)
        _put_out(args.json, report.drift_table(plan, drift), json_report.drift_to_json(plan, drift, clock))
        return 0 if drift.is_none else 1
    rounds = bench.rounds()
    _put_out(args.json, report.table(plan, rounds), json_report.to_json(plan, rounds, clock))
    with_answers = {one.side for one in rounds if one.figures.get("num_output_tokens")}
    return 0 if len(with_answers) == len(plan.endpoints) else 1


def _check_writable(option: str, path: str | None) -> None:
    """Before a long measurement, not after it."""
    if path is None or path == "-":
        return
    try:
        Path(path).open("a").close()
    except OSError as error:
        raise UnusableOption(f"{option} {path}: {error.strerror}") from error


def _put_out(path: str | None, lines: list[str], figures: dict[str, Any]) -> None:
    text = json.dumps(figures, indent=2)
    if path == "-":
        print(text)
        return
    print(*lines, sep="\n")
    if path is not None:
        Path(path).write_text(text + "\n", "utf-8")
