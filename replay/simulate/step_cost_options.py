"""What a step takes, as options: given, or fitted to a recording."""

import argparse
from pathlib import Path

from replay.simulate.step_cost import StepCost


def add_step_cost(parser: argparse.ArgumentParser) -> None:
    """`step_cost_of` reads them."""
    cost = parser.add_mutually_exclusive_group()
    cost.add_argument(
        "--step-cost",
        type=_step_cost,
        metavar="NS,NS,NS,NS,NS[,NS]",
        default=StepCost(),
        help="a step; a decode row; a token it attends; a prefill token; a pair of tokens in it; a token swapped "
        f"(default: {StepCost().as_flags()}, the cpu backend with the default model)",
    )
    cost.add_argument("--cost-from", type=Path, metavar="REC", help="fit the step cost to a recording's steps")


def step_cost_of(args: argparse.Namespace) -> StepCost:
    """Raises UnusableTrace, RecordingError."""
    from replay.simulate.fitted_cost import cost_of_recording

    cost: StepCost = args.step_cost
    return cost_of_recording(args.cost_from) if args.cost_from else cost


def _step_cost(text: str) -> StepCost:
    return StepCost(*[float(part) for part in text.split(",")])
