"""The verb `what-if` on the command line."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from replay.limit_flags import add_limits, given_limits
from replay.span import add_span_options, span_of

if TYPE_CHECKING:
    from replay.what_if.what_if import OpenSteps

DESCRIPTION = """\
Serve a recorded load again under other limits or another policy, on virtual time, and lay what its requests would have
experienced beside what they did. Arrivals, cancels and deadlines come at their recorded times (a client that waits for
one answer before it asks again would have come otherwise), answers are as long as they were, and a step takes what a
cost fitted to this recording's steps says. Exit codes: 0 answered, and what was recorded comes out by the same means
within 2 % (p50) and 5 % (p99): the recorded settings, and each step's time without its own; 1 answered, but not to be
trusted; 2 no answer.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("--record", type=Path, metavar="DIR", help="record the counterfactual, for show, check, diff")
    parser.add_argument(
        "--execute", action="store_true", help="run the model instead of predicting: needs the recorded contents"
    )
    parser.add_argument("--model", metavar="NAME|PATH", help="where the recorded model is now, if not where it was")
    parser.add_argument("--backend", metavar="NAME", help="another backend than the recorded one")
    add_span_options(parser)
    add_limits(parser, as_recorded=True)


def run(args: argparse.Namespace) -> int:
    """Returns the exit code."""
    from replay.what_if.what_if import Question, what_if

    open_steps: OpenSteps | None = None
    if args.execute:
        from replay.model_runs.open_model import Overrides
        from replay.model_runs.real_steps import opener

        open_steps = opener(Overrides(args.model, args.backend))
    answer = what_if(args.recording, Question(given_limits(args), args.record, open_steps, span_of(args)))
    print(answer.as_json() if args.json else answer.as_text())
    if args.record is not None and not args.json:
        print(f"side by side: reprise view {shlex.quote(str(args.recording))} {shlex.quote(str(args.record))}")
    return answer.exit_code
