"""A request's rows in company and alone: the first operation whose bits differ, and whose data was in its blocks.

The recorded plans are carried out again up to the step of the difference, as `execute` does; the request runs alone as
`isolate` does. Each row's digests are laid beside those of the same token alone; at the first step with a difference
the KV cache that the step read is compared row by row, and a foreign row is looked for among all that anybody wrote.
"""

from collections.abc import Callable, Iterator

import numpy as np

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from engine.execution.interface import Runner, StepResult
from kernels.trace import operation_at
from recorder.vault import Contents
from replay.environment import Agreement
from replay.isolation_report import Subject
from replay.model_runs.alone import run_alone
from replay.model_runs.kv_log import KVLog
from replay.model_runs.reexecution import Counts, Reexecution
from replay.model_runs.tracing import Digests, StepSeen, TracedRunner
from replay.progress import Progress
from replay.proof import ForeignRow, OperationPlace, Proof
from replay.refusal import CannotCompare

_NOT_HERE = (
    "the fault was in the run that was recorded, or in the version that recorded it "
    "(reprise bisect REC --good REVISION --bad REVISION finds the change)"
)
_NOT_READ = "the keys and values that it read are its own: "


def prove_difference(
    subject: Subject, given: RequestContents, num_equal: int, runners: tuple[Runner, Runner], agreement: Agreement
) -> Proof:
    """The proof beneath a request's first unequal output token, number `num_equal` of those recorded, 0-based.

    given     what its client gave
    runners   one for the request alone, another with an empty KV memory for the recorded steps
    Raises CannotCompare where the runner computes no layers, or the recording's first steps are not there.
    """
    life, history, contents, recorded = subject
    if life.refusal is not None:
        raise life.refusal
    arrived, request = recorded.arrived, recorded.arrived.request
    for_alone, for_company = runners
    alone = AloneTrace(arrived, given, Limits.from_dict(life.header.limits), for_alone)
    alone.run(num_equal + 1)
    names = {number: of.arrived.request_id for number, of in history.requests.items()}
    company = CompanyTrace(request, alone, for_company, names)
    last_step = recorded.moments[min(num_equal, len(recorded.moments) - 1)].step  # past all: a block differs, no token
    refusals: list[CannotCompare] = []
    with Progress("prove", "steps", last_step + 1) as progress:
        entries = life.comparable_entries(refusals.append)
        left_at = company.run(entries, contents, agreement, last_step, progress.at)
    if company.proof is not None:
        return company.proof
    if left_at is None or left_at == last_step:
        return Proof(None, None, "carried out again here, the recorded steps give what it gives alone: " + _NOT_HERE)
    return Proof(None, None, f"carried out again here, step {left_at} gives other bits than recorded: " + _NOT_HERE)


class AloneTrace:
    """What a request computes alone, by token position.

    operations   position → u64 [places]
    kv           position → u64 [layers]
    """

    def __init__(self, arrived: RequestArrived, contents: RequestContents, limits: Limits, runner: Runner) -> None:
        self.operations: dict[int, Digests] = {}
        self.kv: dict[int, Digests] = {}
        self._traced = TracedRunner(runner, self._seen)
        self._tokens = run_alone(arrived, contents, limits, self._traced)

    def run(self, num_tokens: int) -> None:
        """Up to the output token of this number, or its end."""
        try:
            for _token in zip(range(num_tokens), self._tokens, strict=False):
                pass
        finally:
            self._tokens.close()
            self._traced.detach()

    def _seen(self, seen: StepSeen, result: StepResult) -> None:
        kv = self._traced.kv_digests(seen.slots)
        for row, position in enumerate(seen.positions.tolist()):
            self.operations[position] = seen.digests[row]
            self.kv[position] = kv[row]


class CompanyTrace:
    """The recorded steps carried out again, until the request's rows differ from those alone.

    proof   what was found; None: nothing was
    """

    def __init__(self, request: int, alone: AloneTrace, runner: Runner, names: dict[int, str]) -> None:
        self.proof: Proof | None = None
        self._request, self._alone = request, alone
        self._log = KVLog(names)
        self.runner = TracedRunner(runner, self._seen, self._has_rows)

    def run(
        self,
        entries: Iterator[Entry],
        contents: Contents,
        agreement: Agreement,
        last_step: int,
        at: Callable[[int], None] = lambda step: None,
    ) -> int | None:
        """Follow the entries through `last_step`; returns the step whose result was not the recorded one, if any."""
        reexecution = Reexecution(self.runner, contents, Counts(), agreement)
        try:
            for entry in entries:
                difference = reexecution.handle(entry)
                if self.proof is not None:
                    return None
                if difference is not None:
                    return difference.plan.step if difference.plan else -1
                step = getattr(entry.event, "step", -1)
                if step >= last_step:
                    return None
                at(step + 1)
        finally:
            self.runner.detach()
        return None

    def _has_rows(self, plan: StepPlanned) -> bool:
        return any(number == self._request for number, _start, _count in plan.rows)

    def _seen(self, seen: StepSeen, result: StepResult) -> None:
        self._log.add(seen, self.runner.kv_digests(seen.slots))
        if self.proof is None and len(seen.digests):
            first = self._first_unequal(seen)
            if first is not None:
                foreign = self._first_foreign(seen, first.position)
                self.proof = Proof(first, foreign, _remark(first, foreign))

    def _first_unequal(self, seen: StepSeen) -> OperationPlace | None:
        """The lowest position that differs, and its first operation."""
        rows = np.flatnonzero(seen.requests == self._request)
        for row in rows[np.argsort(seen.positions[rows], kind="stable")].tolist():
            position = int(seen.positions[row])
            alone, company = self._alone.operations.get(position), seen.digests[row]
            if alone is None:
                continue
            unequal = np.flatnonzero((alone != company) & (alone != 0) & (company != 0))
            if len(unequal):
                place = operation_at(int(unequal[0]), self.runner.num_layers)
                return OperationPlace(seen.step, self._request, position, *place)
        return None

    def _first_foreign(self, seen: StepSeen, last_position: int) -> ForeignRow | None:
        """The lowest position up to `last_position` whose key or value is not what the request computes alone."""
        positions = np.array([position for position in range(last_position + 1) if position in self._alone.kv])
        block_size = self.runner.block_size
        slots = seen.tables[self._request][positions // block_size] * block_size + positions % block_size
        company = self.runner.kv_digests(slots)
        unequal = company != np.array([self._alone.kv[position] for position in positions.tolist()])
        differing = np.flatnonzero(unequal.any(axis=1))
        if not len(differing):
            return None
        row = int(differing[0])
        layers = np.flatnonzero(unequal[row])
        position, slot = int(positions[row]), int(slots[row])
        owners = self._log.owners(company[row], layers, but_not=(self._request, position))
        owners.sort(key=lambda owner: owner.request == self._request)  # another request's rather than its own other row
        return ForeignRow(
            position=position,
            block=slot // block_size,
            offset=slot % block_size,
            layer=int(layers[0]),
            num_layers=len(layers),
            num_positions=len(differing),
            owner=owners[0] if owners else None,
            num_owners=len(owners),
            last_writer=self._log.last_writer(slot),
        )


def _remark(first: OperationPlace, foreign: ForeignRow | None) -> str:
    if foreign is not None and foreign.position == first.position:
        return f"it was computed otherwise here: the row's own {first.operation} differs, and so what it wrote"
    if foreign is not None:
        return f"{first.operation} read them in step {first.step}"
    if first.operation == "attention":
        return _NOT_READ + "attention read others, or its result depends on what runs beside it"
    if first.operation == "embedding":
        return "it was given another token here than alone"
    return _NOT_READ + f"{first.operation} had equal inputs and gave other bits, so it depends on what runs beside it"
