"""A request's rows in company and alone: the first operation whose bits differ, and whose data was in its blocks.

The recorded plans are carried out again up to the step of the difference, as `execute` does, from the last keyframe
before the request had a row; if nothing is found, from the engine's beginning. Each row's digests are laid beside those
of the same token alone (`alone_trace.py`); at the first step with a difference the KV cache that the step read is
compared row by row, and a foreign row is looked for among all that anybody wrote.
"""

from collections.abc import Callable, Iterator

import numpy as np

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from engine.execution.interface import Runner, StepResult
from engine.execution.runner import ModelRunner
from kernels.trace import operation_at
from recorder.vault import Contents
from replay.environment import Agreement
from replay.isolation_report import Subject
from replay.lives import Life
from replay.model_runs.alone_trace import AloneTrace
from replay.model_runs.kv_log import KVLog
from replay.model_runs.midway import MidwayRunner
from replay.model_runs.reexecution import Counts, Reexecution
from replay.model_runs.tracing import StepSeen, TracedRunner
from replay.own_policy import thawed_core
from replay.progress import Progress
from replay.proof import ForeignRow, OperationPlace, Proof
from replay.span import Beginning, beginning_of, moments, stretches

_NOT_HERE = (
    "the fault was in the run that was recorded, or in the version that recorded it "
    "(reprise bisect REC --good REVISION --bad REVISION finds the change)"
)
_NOT_READ = "the keys and values that it read are its own: "


def prove_difference(
    subject: Subject, given: RequestContents, num_equal: int, runner: Runner, agreement: Agreement
) -> Proof:
    """The proof beneath a request's first unequal output token, number `num_equal` of those recorded, 0-based.

    given    what its client gave
    runner   for the request alone; the recorded steps get another one on its weights, with a memory of its own
    Raises CannotCompare where the runner computes no layers, or no recorded state before the request is there.
    """
    life, history, contents, recorded = subject
    limits = Limits.from_dict(life.header.limits)
    alone = AloneTrace(recorded.arrived, given, limits, runner)
    alone.run(num_equal + 1)
    names = {number: of.arrived.request_id for number, of in history.requests.items()}
    last_step = recorded.moments[min(num_equal, len(recorded.moments) - 1)].step  # past all: a block differs, no token
    proof: Proof | None = None
    for beginning in _beginnings(life, recorded.arrived.request, last_step):
        assert isinstance(runner, ModelRunner), "it has been traced alone"
        for_company = runner.emptied(limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
        company = CompanyTrace(recorded.arrived.request, alone, (for_company, limits), names)
        with Progress("prove", "steps", last_step + 1) as progress:
            left_at = company.run(life, beginning, (contents, agreement), last_step, progress.at)
        if company.proof is not None:
            return company.proof
        proof = _nothing_found(left_at, last_step)
    assert proof is not None, "there is a beginning, or none was refused"
    return proof


def _beginnings(life: Life, request: int, last_step: int) -> Iterator[Beginning]:
    """The nearest keyframe before the request had a row; then the life's own beginning, for what was wrong before."""
    first_step = _first_step(life, request, last_step)
    nearest = beginning_of(life, first_step)
    yield nearest
    if nearest.at_keyframe and life.refusal is None:
        yield beginning_of(life, None)


def _first_step(life: Life, request: int, last_step: int) -> int:
    for entry in life.entries_about(request):
        for decision in entry.decisions:
            if isinstance(decision, StepPlanned) and any(row[0] == request for row in decision.rows):
                return decision.step
    return last_step


def _nothing_found(left_at: int | None, last_step: int) -> Proof:
    if left_at is None or left_at == last_step:
        return Proof(None, None, "carried out again here, the recorded steps give what it gives alone: " + _NOT_HERE)
    return Proof(None, None, f"carried out again here, step {left_at} gives other bits than recorded: " + _NOT_HERE)


class CompanyTrace:
    """The recorded steps carried out again, until the request's rows differ from those alone.

    proof   what was found; None: nothing was
    """

    def __init__(self, request: int, alone: AloneTrace, runner: tuple[Runner, Limits], names: dict[int, str]) -> None:
        self.proof: Proof | None = None
        self._request, self._alone = request, alone
        self._log = KVLog(names)
        self.runner = TracedRunner(runner[0], self._seen, self._has_rows)
        self._midway = MidwayRunner(self.runner, runner[1])

    def run(
        self,
        life: Life,
        beginning: Beginning,
        recorded: tuple[Contents, Agreement],
        last_step: int,
        at: Callable[[int], None] = lambda step: None,
    ) -> int | None:
        """Follow the life from there through `last_step`; returns the step whose result was not the recorded one, if
        any. Raises CannotCompare when a keyframe is of no use."""
        found = stretches(moments(life, beginning, lambda refusal: None))
        resumption, entries = next(found)
        if beginning.at_keyframe:
            for _entry in entries:  # there is none before it
                pass
            resumption, entries = next(found, (None, iter(())))
        reexecution = Reexecution(self._midway, recorded[0], Counts(), recorded[1])
        try:
            if resumption is not None:
                rebuilt = self._midway.rebuild(thawed_core(life.header, resumption.keyframe), recorded[0])
                reexecution.begin_at(rebuilt.counts, rebuilt.plan)
                entries = rebuilt.without_left_out(entries)
            return self._follow(reexecution, entries, last_step, at)
        finally:
            self.runner.detach()

    def _follow(
        self, reexecution: Reexecution, entries: Iterator[Entry], last_step: int, at: Callable[[int], None]
    ) -> int | None:
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
        return None

    def _has_rows(self, plan: StepPlanned) -> bool:
        return any(number == self._request for number, _start, _count in plan.rows)

    def _seen(self, seen: StepSeen, result: StepResult) -> None:
        self._log.add(seen, self.runner.kv_digests(seen.slots))
        is_rebuilding = seen.step < 0  # what was there at a keyframe is computed again, right as it is
        if self.proof is None and len(seen.digests) and not is_rebuilding:
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
