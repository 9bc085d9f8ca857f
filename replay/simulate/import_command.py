"""The verb `import`: a trace → a recording, as an engine would have made it that served the trace on virtual time.

`check`, `show`, `export`, `what-if` and `simulate` take it. Decisions are the core's own, a step's time is a model's.
"""

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.errors import EngineError
from engine.core.limits import Limits
from replay.limit_flags import add_limits
from replay.simulate.arrivals import UnusableTrace, fitted
from replay.simulate.step_cost_options import add_step_cost, step_cost_of
from replay.simulate.trace_options import TRACE_HELP, add_scales, add_trace, read_arguments, scaled

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_SHOWN = ("arrived", "finished", "rejected", "steps", "prompt_tokens", "generation_tokens", "preemptions")


def add_import(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "import",
        help="make a recording of a trace's load, for what-if, simulate and check (no model needed)",
        description="Serve a trace's requests with the engine's own core on virtual time, and record that. "
        f"{TRACE_HELP} Exit codes: 0 recorded, 2 it cannot be.",
    )
    add_trace(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="REC", required=True, help="a folder that does not exist yet"
    )
    add_scales(parser)
    add_step_cost(parser)
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    add_limits(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        values = import_trace(args, Limits(**{field.name: getattr(args, field.name) for field in fields(Limits)}))
    except (EngineError, OSError) as error:
        print(f"reprise import: {error}", file=sys.stderr)
        return 2
    print(json.dumps(values, indent=2) if args.json else _as_line(values))
    return 0


def import_trace(args: argparse.Namespace, limits: Limits) -> dict[str, Any]:
    """Record, and return what `simulate` says of the run. Raises UnusableTrace, RecordingError."""
    from replay.simulate.run import run_simulation

    if args.output.exists():
        raise UnusableTrace(f"{args.output} exists: a recording goes into a folder of its own")
    arrivals = fitted(read_arguments(args), scaled(args, limits.max_model_len))
    values = run_simulation(limits, arrivals, step_cost_of(args), record_dir=args.output, trace=args.trace.name)
    return {"recording": str(args.output), **values}


def _as_line(values: dict[str, Any]) -> str:
    figures = ", ".join(f"{name.replace('_', ' ')} {_figure(values[name])}" for name in _SHOWN)
    return f"{values['recording']}: {figures}"


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {count:,}" for name, count in value.items()) or "none"
    return f"{value:,}"
