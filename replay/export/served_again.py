"""What an exported test calls: the recorded load served again by the core of today, and looked at.

Arrivals, cancels and lengths are the recording's; decisions are made anew, and steps are counted, not computed. So a
core that decides as the recorded one did fails as it did, and one that decides otherwise goes its own way from there.
After every event the core's own invariants are checked.
"""

from pathlib import Path
from typing import Any, cast

from engine.core.decisions import Decision
from engine.core.events import Event
from engine.core.scheduler import Core
from recorder.header import Header
from replay.lives import Run
from replay.own_policy import recorded_core
from replay.refusal import CannotCompare
from replay.shrink.counted import CountedExecutor
from replay.shrink.evidence import Evidence
from replay.shrink.invariants import Finding
from replay.shrink.predicates import parse
from replay.shrink.rehearsal import Performed, perform
from replay.shrink.scenario import Scenario, scenario_of

INVARIANTS = "invariant-broken"  # of the core or of its decisions, or an error of the core


def finding_in(recording: Path, fails_with: str = INVARIANTS) -> Finding | None:
    """Serve the recording's first life again; what `fails_with` finds in it, None when it finds nothing.

    fails_with   a predicate of `replay/shrink/predicates.py` that needs no model
    Raises RecordingError, UnknownPredicate, and CannotCompare for a predicate that needs one.
    """
    refusals: list[CannotCompare] = []
    scenario = scenario_of(Run.open(recording).lives[0], refusals.append, with_contents=False)
    return look_at(serve_again(scenario), fails_with)


def look_at(performed: Performed, fails_with: str) -> Finding | None:
    """What the predicate finds in it."""
    predicate = parse(fails_with)
    if predicate.needs_model:
        raise CannotCompare(
            f"{fails_with!r} is about tokens or bits, which need the model's weights", "export what decisions tell"
        )
    return predicate.find(Evidence.of_performed(performed, None))


def serve_again(scenario: Scenario) -> Performed:
    """By the core of today, to the end of the load or of the core."""
    executor = CountedExecutor(scenario.limits.block_size)
    return perform(scenario, executor, cast("Core", _WatchedCore(scenario.header)))


class _WatchedCore:
    """The recorded policy's core, whose invariants are checked after every event."""

    def __init__(self, header: Header) -> None:
        self._core = recorded_core(header)

    def handle(self, event: Event, now_ns: int) -> list[Decision]:
        decisions = self._core.handle(event, now_ns)
        self._core.check_invariants()
        return decisions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)
