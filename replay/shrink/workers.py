"""Tries in parallel processes: the first of several scenarios, in their order, that still fails.

The order decides, not the speed, so that any number of processes finds the same. A time limit ends it between tries.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType

from engine.clock import Clock, SystemClock
from replay.progress import Progress
from replay.shrink.scenario import Scenario
from replay.shrink.trial import Setting, Trial

_trial: Trial | None = None  # of this worker process


class TimeOver(Exception):
    """The time limit has come; what was found so far stands."""


class Workers:
    """`with Workers(setting, num_jobs, time_limit_s) as workers: workers.first_failing(scenarios)`.

    num_tries   scenarios performed so far
    """

    def __init__(self, setting: Setting, num_jobs: int, time_limit_s: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._num_jobs = num_jobs
        self._began_ns = self._clock.now_ns()
        self._ends_ns = self._began_ns + int(time_limit_s * 1e9) if time_limit_s else 0
        self.own = Trial(setting)
        self.num_tries = 0
        self._progress = Progress("shrink", "tries")
        self._pool: ProcessPoolExecutor | None = None
        if num_jobs > 1:
            self._pool = ProcessPoolExecutor(num_jobs, get_context("spawn"), _begin, (setting,))

    @property
    def seconds(self) -> float:
        return (self._clock.now_ns() - self._began_ns) / 1e9

    def first_failing(self, scenarios: Sequence[Scenario]) -> int | None:
        """Its index; None when none fails. Raises TimeOver."""
        for begin in range(0, len(scenarios), self._num_jobs):
            if self._ends_ns and self._clock.now_ns() >= self._ends_ns:
                raise TimeOver
            batch = scenarios[begin : begin + self._num_jobs]
            self.num_tries += len(batch)
            for index, fails in enumerate(self._tried(batch)):
                if fails:
                    return begin + index
            self._progress.at(self.num_tries)
        return None

    def _tried(self, batch: Sequence[Scenario]) -> list[bool]:
        if self._pool is None:
            return [self.own.fails(scenario) for scenario in batch]
        return list(self._pool.map(_fails, batch))

    def __enter__(self) -> "Workers":
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _begin(setting: Setting) -> None:
    global _trial
    _trial = Trial(setting)


def _fails(scenario: Scenario) -> bool:
    assert _trial is not None
    return _trial.fails(scenario)
