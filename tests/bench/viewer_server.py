"""How soon the viewer's server answers on a long recording, and in how much memory: 64 requests in every step.

    python -m tests.bench.viewer_server FOLDER --steps 1000000   # an empty folder, or one that this left behind

The load is served by the engine's own core on virtual time and recorded by its own recorder; all segments but the last
are sealed. Exit code 1 when a tile, strip, search or selection takes more than BOUND_MS at the 95th percentile.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from engine.clock import SystemClock
from engine.core.limits import Limits
from replay.simulate.arrivals import Arrival
from replay.simulate.step_cost import StepCost
from replay.viewer.answers import answers
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed
from tests.bench.long_recording import record_arrivals

BOUND_MS = 100.0
NUM_QUESTIONS = 40
MEAN_OUTPUT = 300
STEP_NS = 24e6  # what one takes on average: as many come as go, so that few wait
LIMITS = Limits(
    num_kv_blocks=1_900,
    max_num_seqs=64,
    max_num_batched_tokens=256,
    max_model_len=2_048,
    max_num_queued_reqs=1_000_000,
    reserve_output="none",  # so that blocks run out
)


def record(folder: Path, num_steps: int) -> Path:
    """About so many steps, each of about 64 requests."""
    draw = random.Random(0)
    at_ns, arrivals = 0, list[Arrival]()
    for _ in range(round(num_steps * LIMITS.max_num_seqs / MEAN_OUTPUT)):
        at_ns += round(draw.expovariate(1 / (MEAN_OUTPUT * STEP_NS / LIMITS.max_num_seqs)))
        output = draw.choice([60, 200, 300, 640])
        arrivals.append(Arrival(at_ns, draw.randint(16, 400), output, f"tenant-{draw.randrange(5)}", 0, 700, (), 16))
    return record_arrivals(folder, LIMITS, arrivals, StepCost(8e6, 5e4), "viewer bench", 64 << 20)


class Asked:
    """Milliseconds of each kind of question."""

    def __init__(self, viewed: Viewed) -> None:
        self.found: dict[str, list[float]] = {}
        self._viewed = viewed
        self._draw = random.Random(1)

    def ask(self, name: str, route: str, **parameters: Any) -> None:
        clock = SystemClock()
        began_ns = clock.now_ns()
        answers()[route](self._viewed, Parameters({key.rstrip("_"): str(value) for key, value in parameters.items()}))
        self.found.setdefault(name, []).append((clock.now_ns() - began_ns) / 1e6)

    def all(self, to_ns: float, last_step: int, num_requests: int) -> None:
        draw = self._draw
        for _ in range(NUM_QUESTIONS):
            span = to_ns / 2 ** draw.uniform(0, 12)
            begin = draw.uniform(0, to_ns - span)
            seen: dict[str, Any] = {"from_": begin, "to": begin + span, "width": 1_500}
            row = draw.randrange(max(1, num_requests - 256))
            self.ask("tile of 256 rows", "timeline", rows=f"{row},256", **seen)
            self.ask("tile of who lives", "timeline", rows="0,256", alive=1, **seen)
            self.ask("strips", "strips", **seen)
            self.ask("marks", "marks", **seen)
            self.ask("selection", "area", **seen)
            self.ask("search", "search", q=f"{draw.randrange(num_requests)}")
            step = draw.randrange(last_step)
            self.ask("step", "step/{life}/{step}", life=1, step=step)
            self.ask("block map", "blocks/{life}/{step}", life=1, step=step)
            self.ask("request", "request/{life}/{number}", life=1, number=draw.randrange(num_requests))


def _timed(what: str, do: Callable[[], Any]) -> Any:
    clock = SystemClock()
    began_ns = clock.now_ns()
    found = do()
    print(f"{what:<22} {(clock.now_ns() - began_ns) / 1e9:>8.2f} s, {_megabytes():,.0f} MB at most so far", flush=True)
    return found


def _megabytes() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args(arguments)
    run = args.folder / "run"
    if not run.exists():
        _timed("recording", lambda: record(run, args.steps))
    viewed = Viewed.open(run, SystemClock(), args.folder / "index")
    _timed("index", viewed.index.update)
    viewed.state.state = "ready"
    recording = _timed("first answer", lambda: answers()["recording"](viewed, Parameters({})))
    (life,) = recording["lives"]
    print(f"{life['num_steps']:,} steps, {life['num_requests']:,} requests, {life['to_ns'] / 1e9:,.0f} s")
    asked = Asked(viewed)
    asked.all(life["to_ns"], life["last_step"], life["num_requests"])
    viewed.states.close()
    slow = []
    for name, found in asked.found.items():
        found.sort()
        p95 = found[int(len(found) * 0.95) - 1]
        print(f"{name:<22} p50 {found[len(found) // 2]:>8.1f} ms, p95 {p95:>8.1f} ms, at most {found[-1]:>8.1f} ms")
        if p95 > BOUND_MS and name not in ("step", "block map", "request"):
            slow.append(name)
    print(f"{_megabytes():,.0f} MB at most")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
