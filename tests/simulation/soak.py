"""Seed after seed, in a process or several, for a number of seeds or minutes: what was run, and what was reached.

Odd seeds end their faults with the load (liveness), even ones go on failing to the end (safety).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context

from engine.clock import SystemClock
from engine.core.decisions import FinishReason, RequestFinished
from engine.core.scheduler import Core
from engine.core.vocabulary import entry_from_array, entry_to_array
from tests.simulation.checks import Run
from tests.simulation.marks import marks_of
from tests.simulation.simulate import simulate, simulate_counts, solo_tokens

AHEAD = "-ahead"
KINDS = ("contents", "counts", "contents" + AHEAD, "counts" + AHEAD)
COMPLETE = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass
class Performed:
    """What one seed's run was worth."""

    seed: int
    num_steps: int
    num_tokens_compared: int = 0
    marks: set[str] = field(default_factory=set)


def perform(kind: str, seed: int) -> Performed:
    """One seed with all its checks. What it raises says how to perform it again."""
    mode = "liveness" if seed % 2 else "safety"
    plans_ahead = kind.endswith(AHEAD)
    try:
        if kind.startswith("contents"):
            run = simulate(seed, mode, plans_ahead=plans_ahead)
            check_replay(run, through_format=True)
            num_compared = check_contents(run)
        else:
            run = simulate_counts(seed, mode, plans_ahead=plans_ahead)
            num_compared = 0
            if seed % 4 == 0:
                check_replay(run, through_format=False)
        return Performed(seed, run.num_steps, num_compared, marks_of(run.limits, run.entries))
    except Exception as error:
        error.add_note(f"again: .venv/bin/python -m tests.simulation {kind} --seed {seed}")
        raise


def check_replay(run: Run, *, through_format: bool) -> None:
    """The recorded inputs, fed to a fresh core, give the recorded decisions; also after a trip through the format."""
    core = Core(run.limits)
    for entry in run.entries:
        decoded = entry_from_array(entry_to_array(entry)) if through_format else entry
        assert decoded == entry
        assert tuple(core.handle(decoded.event, decoded.now_ns)) == entry.decisions  # type: ignore[arg-type]


def check_contents(run: Run) -> int:
    """Every client got what the request gives alone, as far as it went; returns how many tokens were compared."""
    num_compared = 0
    for request, (end,) in run.ends.items():
        if not isinstance(end, RequestFinished) or request not in run.arrivals:
            continue
        received = run.tokens.get(request, [])
        if not received:
            continue
        tokens, digests = solo_tokens(run, request)
        assert received == tokens[: len(received)]
        assert run.digests.get(request, []) == digests[: len(received)]
        if end.reason in COMPLETE:
            assert received == tokens
        num_compared += len(received)
    return num_compared


@dataclass
class Soaked:
    """
    marks   → seeds that reached it
    """

    num_runs: int = 0
    num_steps: int = 0
    seconds: float = 0.0
    marks: Counter[str] = field(default_factory=Counter)


def soak(kind: str, first_seed: int, minutes: float, num_processes: int) -> Soaked:
    """From `first_seed` on until the time is up; a process that fails ends it all with its seed's error."""
    clock, total = SystemClock(), Soaked()
    began_ns = clock.now_ns()
    end_ns = began_ns + int(minutes * 60e9)
    for performed in _performed(kind, first_seed, num_processes):
        total.num_runs += 1
        total.num_steps += performed.num_steps
        total.marks.update(performed.marks)
        if clock.now_ns() >= end_ns:
            break
    total.seconds = (clock.now_ns() - began_ns) / 1e9
    return total


def _performed(kind: str, first_seed: int, num_processes: int) -> Iterator[Performed]:
    if num_processes == 1:
        yield from (perform(kind, seed) for seed in count(first_seed))
    with get_context("spawn").Pool(num_processes) as pool:
        yield from pool.imap_unordered(_perform_pair, _pairs(kind, first_seed), chunksize=1)


def _perform_pair(pair: tuple[str, int]) -> Performed:
    return perform(*pair)


def _pairs(kind: str, first_seed: int) -> Iterable[tuple[str, int]]:
    """Bounded, for a pool takes all of it at once."""
    return [(kind, seed) for seed in range(first_seed, first_seed + 100_000)]
