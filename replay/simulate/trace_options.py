"""What `simulate`, `import` and `load` ask alike: which trace, and how what it does not tell is drawn."""

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from replay.simulate.arrivals import Fitting
from replay.simulate.poisson import DEFAULT_RATE

if TYPE_CHECKING:
    from replay.simulate.arrivals import Arrival

TRACE_HELP = (
    "Traces: a recording; CSV of Azure, BurstGPT, vidur, or ServeGen's clients; JSON lines of Mooncake, Bailian, "
    "OpenAI batches with times, or prompts; ShareGPT's JSON. Content tells the format; each may be gzipped."
)


def add_trace(parser: argparse.ArgumentParser) -> None:
    """TRACE, and what a reader of it may need."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a file, or a recording's folder")
    parser.add_argument("--lengths", type=Path, metavar="FILE", help="ServeGen's lengths (default: NAME-lengths.json)")
    parser.add_argument(
        "--divide-rate", type=positive, metavar="X", default=1.0, help="ServeGen's rates become an Xth (%(default)s)"
    )
    parser.add_argument(
        "--rate",
        type=positive,
        metavar="R",
        default=DEFAULT_RATE,
        help="Poisson arrivals a second, for a trace without times (%(default)s)",
    )
    parser.add_argument("--seed", type=int, metavar="N", default=1, help="of what is drawn (%(default)s)")


def add_scales(parser: argparse.ArgumentParser) -> None:
    """How the trace is made to fit: what `Fitting` has, by shorter names."""
    parser.add_argument(
        "--time-scale", type=positive, metavar="X", default=1.0, help="gaps become X times as long (%(default)s)"
    )
    parser.add_argument(
        "--length-scale", type=positive, metavar="X", default=1.0, help="prompts and outputs become X times as long"
    )
    parser.add_argument("--max-requests", type=int, metavar="N", default=0, help="only the first so many; 0: all")


def scaled(args: argparse.Namespace, max_model_len: int) -> Fitting:
    return Fitting(
        num_requests=max(0, args.max_requests),
        stretch=args.time_scale,
        scale_lengths=args.length_scale,
        max_model_len=max_model_len,
    )


def read_arguments(args: argparse.Namespace, from_s: float = 0, to_s: float = float("inf")) -> "list[Arrival]":
    """The trace as it is; what was left out or drawn is said on stderr. Raises UnusableTrace, RecordingError."""
    from replay.simulate.trace_files import read_trace

    notes: list[str] = []
    arrivals = read_trace(
        args.trace, args.lengths, from_s, to_s, args.divide_rate, rate=args.rate, seed=args.seed, notes=notes
    )
    for note in notes:
        print(f"{args.trace}: {note}", file=sys.stderr)
    return arrivals


def positive(text: str) -> float:
    """An option's value above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value
