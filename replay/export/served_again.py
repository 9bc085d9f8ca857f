"""What an exported test calls: the recorded load served again by the core of today, and looked at.

Arrivals, cancels and lengths are the recording's; decisions are made anew. So a core that decides as the recorded one
did fails as it did, and one that decides otherwise goes its own way from there. Steps are counted, not computed; where
bits decide (`isolation-differs`) they are computed with a small stand-in model, so that what is done with the decisions
is seen as well. After every event the core's own invariants are checked.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from replay.shrink.predicates import Predicate, parse
from replay.shrink.rehearsal import Executor, Performed, perform
from replay.shrink.scenario import Scenario, scenario_of
from replay.shrink.trial import pass_time

if TYPE_CHECKING:
    from replay.model_runs.stage import ModelStage

INVARIANTS = "invariant-broken"  # of the core or of its decisions, or an error of the core
_OF_ANY_MODEL = "isolation-differs"


class Served(NamedTuple):
    """What came of serving a load again; `finding` is None when nothing was found in it."""

    performed: Performed
    finding: Finding | None


def finding_in(recording: Path, fails_with: str = INVARIANTS, *, at_pace: bool = False) -> Finding | None:
    """Serve the recording's first life again; what `fails_with` finds in it, None when it finds nothing.

    fails_with   a predicate of `replay/shrink/predicates.py` that needs no answers
    at_pace      steps take their time, for what depends on a real clock
    Raises RecordingError, UnknownPredicate, and CannotCompare for a predicate that needs them.
    """
    refusals: list[CannotCompare] = []
    scenario = scenario_of(Run.open(recording).lives[0], refusals.append, with_contents=False)
    return serve_again(scenario, fails_with, at_pace=at_pace).finding


def serve_again(scenario: Scenario, fails_with: str, *, at_pace: bool = False) -> Served:
    """By the core of today, to the end of the load or of the core. Raises as `finding_in`."""
    predicate = parse(fails_with)
    stage: ModelStage | None = None
    executor: Executor = CountedExecutor(scenario.limits.block_size)
    if predicate.needs_model:
        scenario, stage = _with_stand_in(scenario, predicate)
        executor = stage.executor(scenario.limits)
    core = cast("Core", _WatchedCore(scenario.header))
    performed = perform(scenario, executor, core, pass_time if at_pace else None)
    return Served(performed, predicate.find(Evidence.of_performed(performed, stage)))


def _with_stand_in(scenario: Scenario, predicate: Predicate) -> "tuple[Scenario, ModelStage]":
    if predicate.text.partition(":")[0] != _OF_ANY_MODEL:
        raise CannotCompare(
            f"{predicate.text!r} is about answers, which need the model's weights", "export what decisions tell"
        )
    from replay.model_runs.open_model import Overrides
    from replay.model_runs.stage import ModelStage
    from replay.model_runs.stand_in import open_stand_in, with_stand_in_contents

    return with_stand_in_contents(scenario), ModelStage(scenario.header, Overrides(), open_stand_in)


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
