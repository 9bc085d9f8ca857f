"""`python -m tests.simulation KIND --seed N` performs one seed again; `--minutes M` runs seed after seed (`make soak`).

KIND: contents (tokens are computed from contexts and compared with the request alone) or counts (faster, longer).
"""

import argparse
import sys
from collections.abc import Sequence

from tests.simulation.mark_names import MARKS
from tests.simulation.soak import KINDS, Soaked, perform, soak


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 all promises kept; a broken one is raised."""
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="counts")
    parser.add_argument("--seed", type=int, help="this one only, or with --minutes the first one")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args(arguments)
    if not args.minutes and args.seed is not None:
        performed = perform(args.kind, args.seed)
        print(f"seed {args.seed}: {performed.num_steps} steps, {performed.num_tokens_compared} tokens compared")
        print(*sorted(performed.marks), sep="\n")
        return 0
    print(*_report(soak(args.kind, args.seed or 0, args.minutes or 1, args.processes)), sep="\n")
    return 0


def _report(soaked: Soaked) -> list[str]:
    per_minute = soaked.num_steps / soaked.seconds * 60
    lines = [
        f"{soaked.num_runs:,} seeds, {soaked.num_steps:,} steps in {soaked.seconds:.0f} s: {per_minute:,.0f} a minute; "
        "every promise kept",
        "seeds that reached it:",
    ]
    return lines + [f"  {soaked.marks[mark]:>7,}  {mark}" for mark in MARKS]


if __name__ == "__main__":
    sys.exit(main())
