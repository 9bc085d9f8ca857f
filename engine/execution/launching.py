"""A step in two halves: it is launched, and collected when it is done. Between the two the caller is free.

Whoever launches touches nothing of what the step reads or writes before it has collected it, and launches one at a
time. A runner that has only `execute` does it all when the step is collected: the order of events is the same then,
and nothing is gained. It must not know the core, nor when to launch.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, runtime_checkable

from engine.core.decisions import StepPlanned
from engine.execution.interface import Runner, StepResult


@runtime_checkable
class Launcher(Protocol):
    """What a `Runner` may be beside."""

    def launch(self, plan: StepPlanned) -> None:
        """Begin the planned step. Rows of requests that are not held, or have drawn their last token, are left out.

        May raise: the step has failed.
        """
        ...

    def collect(self) -> StepResult:
        """Wait for the step that was launched. May raise: it has failed."""
        ...


def launcher_of(runner: Runner) -> Launcher:
    return runner if isinstance(runner, Launcher) else LateLauncher(runner)


class LateLauncher:
    """For a runner that can only `execute`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._plan: StepPlanned | None = None

    def launch(self, plan: StepPlanned) -> None:
        self._plan = plan

    def collect(self) -> StepResult:
        plan, self._plan = self._plan, None
        assert plan is not None, "no step was launched"
        return self._runner.execute(plan)


class Worker:
    """A thread that makes one call at a time: for a backend that computes in it, without the interpreter's lock."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        self._thread: Thread | None = None

    def begin(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Returns what waits for the result, and raises what the call has raised."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="reprise-step", daemon=True)
            self._thread.start()
        self._calls.put(call)
        return self._wait

    def _wait(self) -> Any:
        result, error = self._results.get()
        if error is not None:
            raise error
        return result

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            try:
                outcome: tuple[Any, Exception | None] = call(), None
            except Exception as error:  # told to whoever waits
                outcome = None, error
            self._results.put(outcome)
            del call, outcome
