"""A recording's steps carried out again under somebody's eyes: a running digest per step, or one step in full.

The running digest is over every operation of every row so far and what was drawn from them, so two builds that agree at
a step agree at all before it: the first step that differs is found by halving. It compares with the recording only so
far as it stops where the build leaves it: behind that, plans and tokens do not belong together.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engine.core.decisions import StepPlanned
from engine.execution.interface import StepResult
from kernels.trace import LAYER_OPERATIONS, num_places, operation_at
from replay.environment import Agreement
from replay.lives import Life, Run
from replay.model_runs.open_model import OpenRunner, Overrides
from replay.model_runs.reexecution import Counts, Reexecution
from replay.model_runs.tracing import StepSeen, TracedRunner
from replay.refusal import CannotCompare

Moved = Callable[[int], None]  # told how many steps are done


class StepKey(NamedTuple):
    """A step of a recording: which of its engines' lives, 0-based, and its number there."""

    life: int
    step: int


class ChainLink(NamedTuple):
    """`digest` is over this step and all before it, u64."""

    key: StepKey
    digest: int


class TracedRow(NamedTuple):
    """One row of a step: digests u64 by place, 0 where not computed; drawn: what came of it, as text."""

    request: int
    position: int
    digests: tuple[int, ...]
    drawn: str


class StepTracer:
    """Traces one recording on the runners that `open_runner` makes."""

    def __init__(self, path: Path, overrides: Overrides, open_runner: OpenRunner) -> None:
        self._path, self._overrides, self._open_runner = path, overrides, open_runner

    def chain(self, moved: Moved = lambda count: None) -> list[ChainLink]:
        """Every step up to the end, or to where the build leaves the recording."""
        links: list[ChainLink] = []
        running = b""

        def seen(key: StepKey, step: StepSeen, result: StepResult) -> bool:
            nonlocal running
            digest = hashlib.blake2b(running, digest_size=8)
            for array in (step.requests, step.positions, step.digests):
                digest.update(array.tobytes())
            digest.update(repr(list(_drawn(result).items())).encode())
            running = digest.digest()
            links.append(ChainLink(key, int.from_bytes(running, "little")))
            moved(len(links))
            return True

        self._run(seen, lambda life, plan: True)
        return links

    def rows(self, key: StepKey, moved: Moved = lambda count: None) -> tuple[list[TracedRow], int]:
        """The rows of one step in full, and the model's number of layers. Raises CannotCompare: it is not reached."""
        found: list[TracedRow] = []
        num_layers = num_steps = 0

        def seen(at: StepKey, step: StepSeen, result: StepResult) -> bool:
            nonlocal num_layers, num_steps
            num_steps += 1
            moved(num_steps)
            if at != key:
                return True
            num_layers = (step.digests.shape[1] - num_places(0)) // len(LAYER_OPERATIONS)
            drawn = _drawn(result)
            last = {int(request): row for row, request in enumerate(step.requests)}
            for row, (request, position) in enumerate(
                zip(step.requests.tolist(), step.positions.tolist(), strict=True)
            ):
                text = drawn.get(request, "") if last[request] == row else ""
                found.append(TracedRow(request, position, tuple(step.digests[row].tolist()), text))
            return False

        self._run(seen, lambda life, plan: StepKey(life, plan.step) == key)
        if not found:
            raise CannotCompare(f"step {key.step} is not reached here", "reprise execute says where the build stops")
        return found, num_layers

    def _run(
        self, seen: Callable[[StepKey, StepSeen, StepResult], bool], wants: Callable[[int, StepPlanned], bool]
    ) -> None:
        for number, life in enumerate(Run.open(self._path).lives):
            if life.refusal is not None:
                raise life.refusal
            if not self._run_life(number, life, seen, wants):
                return

    def _run_life(
        self,
        number: int,
        life: Life,
        seen: Callable[[StepKey, StepSeen, StepResult], bool],
        wants: Callable[[int, StepPlanned], bool],
    ) -> bool:
        """Whether to go on with the next life."""
        goes_on = True

        def tell(step: StepSeen, result: StepResult) -> None:
            nonlocal goes_on
            goes_on = seen(StepKey(number, step.step), step, result)

        opened = self._open_runner(life.header, self._overrides)
        traced = TracedRunner(opened.runner, tell, lambda plan: wants(number, plan))
        reexecution = Reexecution(traced, life.contents(), Counts(), Agreement(False, (), (), compare_flags=False))
        refusals: list[CannotCompare] = []
        try:
            for entry in life.comparable_entries(refusals.append):
                if reexecution.handle(entry) is not None:
                    return False
                if not goes_on:
                    return False
        finally:
            traced.detach()
        return not refusals


def _drawn(result: StepResult) -> dict[int, str]:
    """Request → what its row emitted: token, bits of its log-probability, flag."""
    tokens = {output.request: output.token_id for output in result.outputs}
    return {
        request: f"token {tokens.get(request, -1)}, log-probability {bits:08x}, flag {flag!r}"
        for request, flag, _digest, bits in result.completed.emitted
    }


def name_of_place(place: int, num_layers: int) -> tuple[int, str]:
    """(layer, operation) of an index into a row's digests."""
    return operation_at(place, num_layers)
