"""The verb `simulate`: a trace, limits and a machine's step cost in, figures out."""

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.errors import EngineError
from engine.core.limits import Limits
from replay.limit_flags import add_limits
from replay.simulate.arrivals import Fitting, fitted
from replay.simulate.step_cost_options import add_step_cost, step_cost_of
from replay.simulate.trace_options import TRACE_HELP, add_trace, read_arguments

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_FITTING = {
    "from_s": (float, "S", "begin at this second of the trace"),
    "to_s": (float, "S", "end before this second of the trace"),
    "num_requests": (int, "N", "only the first so many requests; 0: all"),
    "repeat": (int, "N", "the trace so many times, one after the other"),
    "divide_prompt": (int, "N", "prompt lengths become an Nth, rounded up"),
    "divide_output": (int, "N", "output lengths become an Nth, rounded up"),
    "stretch": (float, "X", "gaps between arrivals become X times as long"),
    "num_classes": (int, "N", "priorities 0 to N-1, drawn by the request's place in the trace"),
    "max_output_tokens": (int, "N", "what each client allows; 0: exactly what it will use"),
}


def add_simulate(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="a trace's load through the scheduler on virtual time (no model needed)",
        description="Serve a trace's requests with the engine's own core on virtual time, and print what they "
        f"experienced. {TRACE_HELP}",
    )
    add_trace(parser)
    defaults = Fitting()
    for name, (kind, unit, meaning) in _FITTING.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(
            flag, type=kind, metavar=unit, default=getattr(defaults, name), help=f"{meaning} (default: %(default)s)"
        )
    add_step_cost(parser)
    parser.add_argument(
        "--inject",
        action="append",
        metavar="FAULT",
        help="a fault at a step or by seed, again for more: alloc-fails@step=120, nan-logits@seed=7:every=20; "
        "step-slow, client-leaves, disk-full, clock-jumps, executor-dies",
    )
    parser.add_argument("--record-dir", type=Path, metavar="DIR", help="record the run, for check and show")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    add_limits(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    """Exit codes: 0 simulated, 2 it cannot be."""
    try:
        values = simulate(args)
    except (EngineError, OSError) as error:
        print(f"reprise simulate: {error}", file=sys.stderr)
        return 2
    print(json.dumps(values, indent=2) if args.json else "\n".join(_as_lines(values)))
    return 0


def simulate(args: argparse.Namespace) -> dict[str, Any]:
    """What the arguments ask for, in figures."""
    from replay.simulate.run import run_simulation

    limits = Limits(**{field.name: getattr(args, field.name) for field in fields(Limits)})
    fitting = Fitting(**{name: getattr(args, name) for name in _FITTING}, max_model_len=limits.max_model_len)
    arrivals = fitted(read_arguments(args, fitting.from_s, fitting.to_s), fitting)
    cost, inject = step_cost_of(args), args.inject or ()
    return run_simulation(limits, arrivals, cost, record_dir=args.record_dir, trace=args.trace.name, inject=inject)


def _as_lines(values: dict[str, Any]) -> list[str]:
    width = max(len(name) for name in values)
    return [f"{name:<{width}}  {_as_text(value)}" for name, value in values.items()]


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_as_text(part)}" for name, part in value.items()) or "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)
