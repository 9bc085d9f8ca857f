"""`python -m tests.bench [SECTION …]`, or `make bench`: what our own parts cost, without a model, in under a minute.

Each section is a module with `report() -> list[str]`. Run it on a quiet machine, and compare within one run only.
"""

import argparse
import platform
import sys
from collections.abc import Callable, Sequence

from engine.clock import SystemClock
from tests.bench import (
    check_speed,
    decision_cost,
    oversubscription,
    recorder_cost,
    sampling_cost,
    starvation,
    timeline_cost,
)

SECTIONS: dict[str, Callable[[], list[str]]] = {
    "decision": decision_cost.report,
    "starvation": starvation.report,
    "oversubscription": oversubscription.report,
    "sampling": sampling_cost.report,
    "recorder": recorder_cost.report,
    "timeline": timeline_cost.report,
    "check": check_speed.report,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="tests.bench", description="What the parts cost, on this machine, now.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (default: all)")
    chosen = parser.parse_args(arguments).sections or [*SECTIONS]
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}: choose of {', '.join(SECTIONS)}")
    clock = SystemClock()
    print(f"Python {platform.python_version()}, {platform.platform()}")
    for name in chosen:
        before_ns = clock.now_ns()
        lines = SECTIONS[name]()
        seconds = (clock.now_ns() - before_ns) / 1e9
        print("", *lines, f"  ({name}: {seconds:.1f} s)", sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
