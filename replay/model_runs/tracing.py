"""A runner looked into: per step, which rows the kernels were really given, and every operation's digest of each.

It wraps a runner and changes nothing of what it computes. Rows are named by request and token position, so that the
same row can be found in another execution, whatever ran beside it there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from engine.core.contents import RequestContents
from engine.core.decisions import Decision, RejectReason, RequestFinished, RequestRejected, StepPlanned
from engine.core.sampling_params import SamplingParams
from engine.execution.interface import Runner, StepResult
from engine.execution.runner import ModelRunner
from kernels.backend import Backend, KVMemory, StepBatch, StepOutput
from kernels.block_digest import digest_rows
from kernels.trace import num_places, place_of
from replay.refusal import CannotCompare

Digests = NDArray[np.uint64]
Integers = NDArray[np.int64]


class StepSeen(NamedTuple):
    """One executed step, row by row; rows in the kernels' order.

    requests, positions, slots   int64 [rows]: whose token, which one, and where its key and value went
    tables     request → its blocks, as the kernels were given them
    digests    u64 [rows, places]: of each operation (`kernels.trace.place_of`); 0 where it was not computed
    """

    step: int
    requests: Integers
    positions: Integers
    slots: Integers
    tables: dict[int, Integers]
    digests: Digests


class TracedRunner:
    """A Runner that tells `seen` of every step after it.

    wants   which steps are traced, the others are only told of, with no digests; None: all
    Raises CannotCompare for a runner without layers.
    """

    def __init__(
        self,
        runner: Runner,
        seen: Callable[[StepSeen, StepResult], None],
        wants: Callable[[StepPlanned], bool] | None = None,
    ) -> None:
        if not isinstance(runner, ModelRunner):
            raise CannotCompare("this runner computes no layers: there is nothing to look into")
        self._runner, self._seen, self._wants = runner, seen, wants
        self._held: set[int] = set()
        self._looking = _Looking(runner.backend)
        runner.backend = cast(Backend, self._looking)

    def detach(self) -> None:
        """The runner is as it was."""
        self._runner.backend = self._looking.backend

    def kv_digests(self, slots: Integers) -> Digests:
        """u64 [slots, layers] of what lies there now."""
        return kv_digests(self._looking.backend, (self._runner.kv_store.keys, self._runner.kv_store.values), slots)

    @property
    def block_size(self) -> int:
        return self._runner.kv_store.block_size

    @property
    def num_layers(self) -> int:
        return len(self._runner.kv_store.keys)

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        return self._runner.prompt_digests(contents)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        self._held.add(request)
        self._runner.add_request(request, sampling, contents, digests)

    def carry_out(self, decision: Decision) -> None:
        is_gone = isinstance(decision, RequestFinished) or (
            isinstance(decision, RequestRejected) and decision.reason != RejectReason.DUPLICATE_REQUEST
        )
        if is_gone:
            self._held.discard(decision.request)  # type: ignore[union-attr]
        self._runner.carry_out(decision)

    def execute(self, plan: StepPlanned) -> StepResult:
        rows = [(number, count) for number, _start, count in plan.rows if number in self._held]
        self._looking.prepare(is_traced=self._wants is None or self._wants(plan))
        result = self._runner.execute(plan)
        batch = self._looking.batch
        if batch is not None:
            requests = np.repeat([number for number, _ in rows], [count for _, count in rows]).astype(np.int64)
            tables = {number: batch.block_tables[index] for index, (number, _) in enumerate(rows)}
            digests = self._looking.digests
            self._seen(StepSeen(plan.step, requests, batch.positions, batch.slot_mapping, tables, digests), result)
        return result


def kv_digests(backend: Backend, memory: tuple[KVMemory, KVMemory], slots: Integers) -> Digests:
    """u64 [slots, layers] of the keys and values that lie in `slots`."""
    rows = backend.read_slots(memory, slots)
    return digest_rows(rows.reshape(rows.shape[0] * rows.shape[1], -1)).reshape(rows.shape[:2])


class _Looking:
    """The runner's backend, with eyes on `forward`."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.prepare(is_traced=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def prepare(self, *, is_traced: bool) -> None:
        self.batch: StepBatch | None = None  # of the step to come, once it has run
        self.digests: Digests = np.zeros((0, 0), np.uint64)
        self._is_traced = is_traced

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        self.batch = batch
        if not self._is_traced:
            return self.backend.forward(batch, keys, values)
        num_layers = len(keys)
        self.digests = digests = np.zeros((len(batch.token_ids), num_places(num_layers)), np.uint64)

        def tap(layer: int, operation: str, rows: Integers, result: NDArray[Any]) -> None:
            digests[rows, place_of(layer, operation, num_layers)] = digest_rows(result)

        return self.backend.forward_traced(batch, keys, values, tap)
