"""One try: a scenario performed, and whether it still fails. What a worker process does, again and again."""

from dataclasses import dataclass, replace
from time import sleep
from typing import NamedTuple

from engine.core.limits import Limits
from recorder.header import Header
from replay.model_runs.open_model import OpenRunner, Overrides
from replay.own_policy import recorded_core
from replay.shrink.counted import CountedExecutor
from replay.shrink.evidence import Evidence, Stage
from replay.shrink.invariants import Finding
from replay.shrink.predicates import parse
from replay.shrink.rehearsal import Executor, Performed, perform
from replay.shrink.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Setting:
    """
    predicate    as on the command line
    uses_model   the recorded model computes tokens; else only counts are performed
    at_pace      steps and gaps take their time on the wall clock: for failures that depend on one
    open_runner  a function by name, for it goes to other processes; None opens the recorded model
    """

    predicate: str
    uses_model: bool
    at_pace: bool = False
    overrides: Overrides = Overrides()  # noqa: RUF009  # immutable
    open_runner: OpenRunner | None = None


class Tried(NamedTuple):
    """What came of a try; `finding` is None when it did not fail."""

    performed: Performed
    finding: Finding | None
    stage: Stage | None


class Trial:
    """Keeps the model loaded from one try to the next; each has an empty memory."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._predicate = parse(setting.predicate)
        self._stage: Stage | None = None

    def fails(self, scenario: Scenario) -> bool:
        """As `attempt`, and without performing it where nobody is in it whom the predicate asks about."""
        if not self._predicate.may_concern(caller.arrived for caller in scenario.callers):
            return False
        return self.attempt(scenario).finding is not None

    def attempt(self, scenario: Scenario) -> Tried:
        scenario = replace(scenario, header=_header(scenario))
        core = recorded_core(scenario.header)
        wait = pass_time if self._setting.at_pace else None
        performed = perform(scenario, self._executor(scenario), core, wait)
        finding = self._predicate.find(Evidence.of_performed(performed, self._stage))
        return Tried(performed, finding, self._stage)

    def _executor(self, scenario: Scenario) -> Executor:
        if not self._setting.uses_model:
            return CountedExecutor(scenario.limits.block_size)
        from replay.model_runs.stage import ModelStage

        if self._stage is None:
            self._stage = ModelStage(scenario.header, self._setting.overrides, self._setting.open_runner)
        assert isinstance(self._stage, ModelStage)
        return self._stage.executor(scenario.limits)


def _header(scenario: Scenario) -> Header:
    """As the engine would write it under the scenario's limits."""
    limits: Limits = scenario.limits
    return replace(scenario.header, limits=limits.to_dict())


def pass_time(nanoseconds: int) -> None:
    """For `perform`: on the wall clock."""
    sleep(nanoseconds / 1e9)
