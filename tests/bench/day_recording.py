"""A day of chat traffic recorded in virtual time: its size, its bound, and how soon a check begins anywhere in it.

    python -m tests.bench.day_recording TRACE FOLDER     # the Azure chat trace as published, and an empty folder

The trace is served again and again by the engine's own core on virtual time, recorded by its own recorder, sealed and
bounded by its own housekeeping after each segment. Exit code 1 when the bound or the two seconds do not hold.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from time import sleep

from engine.clock import Clock, SystemClock
from engine.core.events import StepCompleted
from engine.core.keyframes.freezing import keyframe_of
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from recorder.housekeeping import Order, keep_house
from recorder.keyframes import first_in
from recorder.reader import Recording
from recorder.retention import Bounds
from recorder.writer import Recorder
from replay.check import check
from replay.simulate.arrivals import Fitting, fitted
from replay.simulate.executor import CountingExecutor
from replay.simulate.recording import simulated_header
from replay.simulate.simulation import Simulation
from replay.simulate.step_cost import StepCost
from replay.simulate.trace_files import read_trace
from replay.span import Span, StepOf
from replay.verdict import Outcome

SEGMENTS_IN_BOUND = 128  # a segment is so small a part of the bound: by so much it may be missed
TOLERANCE = 1.01
LOOK_EVERY = 32  # entries; the writer is never further behind, as beside a step that takes its time
NUM_PROBES = 12
MAX_PROBE_S = 2.0
LIMITS = Limits(num_kv_blocks=2048, max_model_len=8192, max_num_queued_reqs=1_000_000)
FITTING = Fitting(divide_prompt=8, divide_output=4, max_output_tokens=512)


class Day:
    """The recording's reader of entries: recorder, keyframes, and housekeeping whenever a segment has ended."""

    def __init__(self, directory: Path, core: Core, clock: Clock, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.run = directory / "day"
        self._recorder = Recorder(
            self.run,
            simulated_header(LIMITS, StepCost(), "a day"),
            clock,
            record_content=False,
            max_segment_bytes=max_bytes // SEGMENTS_IN_BOUND,
            sync_interval_ms=1_000,
        )
        self._directory, self._core = directory, core
        self._number = self._recorder.segment_number
        self.num_keyframes = self.num_tokens = self.num_removed = self.most_bytes = self.num_entries = 0

    def read(self, entry: Entry) -> None:
        self._recorder.record(entry)
        self.num_entries += 1
        if isinstance(entry.event, StepCompleted):
            self.num_tokens += len(entry.event.emitted)
        if self._recorder.wants_keyframe:
            self._recorder.record_keyframe(Entry(entry.sequence + 1, entry.now_ns, keyframe_of(self._core), ()))
            self.num_keyframes += 1
        if self.num_entries % LOOK_EVERY == 0:
            self._wait()
            if self._recorder.segment_number != self._number:
                self._number = self._recorder.segment_number
                self._keep_house()

    @property
    def num_bytes(self) -> int:
        return self._recorder.num_bytes

    def close(self) -> None:
        self._recorder.close("the day is over")
        self._keep_house()

    def _wait(self) -> None:
        """A virtual second is no second for the disk."""
        while self.num_entries - self._recorder.num_entries > LOOK_EVERY:
            sleep(0.001)

    def _keep_house(self) -> None:
        bounds = Bounds(self._max_bytes, 10**9, 0, self._max_bytes)
        self.most_bytes = max(self.most_bytes, sum(path.stat().st_size for path in self.run.iterdir()))
        order = Order(str(self._directory), self.run.name, self._number, bounds)
        self.num_removed += keep_house(order, SystemClock()).num_removed


def probe(run: Path, first_step: int, last_step: int) -> list[tuple[int, float]]:
    """Seconds from the start to the decision on a step, at random steps of what is kept."""
    draw = random.Random(0)
    times = []
    for _ in range(NUM_PROBES):
        step = draw.randint(first_step, last_step)
        clock = SystemClock()
        began_ns = clock.now_ns()
        verdict = check(run, span=Span(StepOf(1, step), step))
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        times.append((step, (clock.now_ns() - began_ns) / 1e9))
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=24, help="of virtual time (default: %(default)s)")
    parser.add_argument(
        "--stretch", type=float, default=8, help="gaps become so many times as long (default: %(default)s)"
    )
    parser.add_argument("--max-mib", type=int, default=64, help="the bound (default: %(default)s)")
    args = parser.parse_args(arguments)
    one = read_trace(args.trace)
    hours = one[-1].at_ns / 3.6e12 * args.stretch
    fitting = replace(FITTING, stretch=args.stretch, repeat=ceil(args.hours / hours))
    arrivals = [arrival for arrival in fitted(one, fitting) if arrival.at_ns <= args.hours * 3.6e12]
    simulation = Simulation(LIMITS, arrivals, CountingExecutor(LIMITS.block_size, StepCost()), [])
    max_bytes = args.max_mib << 20
    day = Day(args.folder, simulation.core, simulation.clock, max_bytes)
    simulation.readers.append(day.read)
    clock = SystemClock()
    began_ns = clock.now_ns()
    try:
        simulation.run()
    finally:
        day.close()
    seconds = (clock.now_ns() - began_ns) / 1e9
    kept = sum(path.stat().st_size for path in day.run.iterdir())
    print(
        f"{simulation.clock.now_ns() / 3.6e12:.1f} h of virtual time in {seconds:.0f} s: {len(arrivals):,} requests, "
        f"{day.num_entries:,} entries, {day.num_tokens:,} tokens, {day.num_keyframes:,} keyframes"
    )
    print(
        f"recorded {day.num_bytes:,} bytes, {day.num_bytes / day.num_tokens:.1f} a token; bound {max_bytes:,}: "
        f"{day.most_bytes / max_bytes:.4f} of it at most, {kept / max_bytes:.4f} at the end, "
        f"{day.num_removed} segments removed"
    )
    first = first_in(Recording.open(day.run).segments)
    assert first is not None, "a day has keyframes"
    times = probe(day.run, first.step, keyframe_of(simulation.core).num_steps - 1)
    print(f"check --from, --to the same step: {max(seconds for _step, seconds in times):.2f} s at most of {len(times)}")
    is_bounded = day.most_bytes <= max_bytes * TOLERANCE
    return 0 if is_bounded and max(seconds for _step, seconds in times) <= MAX_PROBE_S else 1


if __name__ == "__main__":
    sys.exit(main())
