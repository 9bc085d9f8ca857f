"""How soon `debug` answers on a long recording: building the index, states at random steps, questions to the index.

    python -m tests.bench.time_travel FOLDER --steps 1000000   # an empty folder, or one that a run of this left behind

The load is served by the engine's own core on virtual time and recorded by its own recorder; all segments but the last
are sealed, as housekeeping does it. Exit code 1 when going to a step takes more than BOUND_MS of the CPU at the 95th
percentile: by the clock it is the same on a quiet machine.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from engine.clock import SystemClock
from engine.core.limits import Limits
from replay.debug.session import Session
from replay.index.recording_index import RecordingIndex
from replay.simulate.arrivals import Arrival
from replay.simulate.step_cost import StepCost
from replay.time_machine.time_machine import TimeMachine
from tests.bench.long_recording import record_arrivals

Times = dict[str, list[tuple[float, float]]]  # kind of question → milliseconds by the clock and of the CPU
BOUND_MS = 200.0
STEPS_PER_REQUEST = 22
LIMITS = Limits(
    num_kv_blocks=96,
    max_num_seqs=16,
    max_num_batched_tokens=256,
    max_model_len=1024,
    max_num_queued_reqs=1_000_000,
    reserve_output="none",  # so that blocks run out
)


def record(folder: Path, num_steps: int) -> Path:
    """About so many steps; a fifth of the requests share prefixes, and blocks run out now and then."""
    draw = random.Random(0)
    at_ns, arrivals = 0, list[Arrival]()
    for _ in range(round(num_steps / STEPS_PER_REQUEST)):
        at_ns += round(draw.expovariate(1 / 75e6))
        prompt, output = draw.randint(8, 160), draw.choice([20, 60, 100, 180])
        shared = (draw.randrange(4), *[draw.randrange(1 << 60) for _ in range(9)]) if draw.random() < 0.2 else ()
        tenant = f"tenant-{draw.randrange(5)}"
        arrivals.append(Arrival(at_ns, prompt, output, tenant, 0, 200, shared, 16))
    return record_arrivals(folder, LIMITS, arrivals, StepCost(1e6, 3e5), "time travel", 16 << 20)


def questions(machine: TimeMachine, num_places: int) -> Times:
    """Each kind of question, each at a random step: the way there is one of them."""
    extent, draw = machine.extent(), random.Random(1)
    session = Session(machine, machine.at_beginning())
    found: Times = {}
    for _ in range(num_places):
        _ask(found, session, "goto", str(draw.randint(extent.first_step + 2, extent.last_step - 1)))
        live = draw.choice([*session.state.requests] or [0])
        _ask(found, session, "state", "")
        _ask(found, session, "block", str(draw.randrange(LIMITS.num_kv_blocks)))
        for kind in ("why", "preempted", "request"):
            _ask(found, session, kind, str(live))
        _ask(found, session, "next", "")
        _ask(found, session, "back", "2")
        _ask(found, session, "list", "")
    return found


def _ask(found: Times, session: Session, kind: str, argument: str) -> None:
    clock = SystemClock()
    began_ns, began_cpu_s = clock.now_ns(), _cpu_s()
    session.ask(f"{kind} {argument}")
    found.setdefault(kind, []).append(((clock.now_ns() - began_ns) / 1e6, (_cpu_s() - began_cpu_s) * 1e3))


def _cpu_s() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report(times: Times) -> Iterator[str]:
    yield "  ms         p50   p95  most, by the clock   p50   p95  most, of the CPU"
    for kind, values in times.items():
        yield f"  {kind:<9}" + " ".join(f"{_three(column)}{' ' * 14}" for column in zip(*values, strict=True)).rstrip()


def _three(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return " ".join(f"{value:5.0f}" for value in (ordered[len(ordered) // 2], p95(values), ordered[-1]))


def p95(values: Sequence[float]) -> float:
    return sorted(values)[len(values) * 95 // 100]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=100_000, help="about so many (default: %(default)s)")
    parser.add_argument("--places", type=int, default=60, help="that are asked about (default: %(default)s)")
    args = parser.parse_args(arguments)
    run = args.folder / "run"
    if not run.exists():
        record(run, args.steps)
    clock = SystemClock()
    began_ns = clock.now_ns()
    index = RecordingIndex(run, args.folder / "index")
    num_entries = index.update()
    seconds = (clock.now_ns() - began_ns) / 1e9
    machine = TimeMachine(run, args.folder / "index")
    num_steps = machine.extent().last_step + 1
    peak_mib = getrusage(RUSAGE_SELF).ru_maxrss >> 10
    print(f"{num_steps:,} steps; recording {_mib(run)} MiB, index {index.path.stat().st_size >> 20} MiB")
    if num_entries:
        print(
            f"index built in {seconds:.0f} s, {num_entries / seconds:,.0f} entries/s, {peak_mib} MiB of memory at most"
        )
    times = questions(machine, args.places)
    print(*report(times), sep="\n")
    machine.close()
    return 0 if p95([cpu_ms for _, cpu_ms in times["goto"]]) <= BOUND_MS else 1


def _mib(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) >> 20


if __name__ == "__main__":
    sys.exit(main())
