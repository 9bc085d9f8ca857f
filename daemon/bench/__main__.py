"""`python -m daemon.bench W2 --url …`: the load generator by itself, with nothing of the daemon imported."""

import argparse
import sys
from collections.abc import Sequence

from daemon.bench.command import run
from daemon.bench.options import add_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="reprise bench", description="Measure any OpenAI-compatible server.")
    add_options(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
