"""One life read for the sake of its requests: what each emitted, in whose company, and what befell it before.

It reads entries and contents; it computes nothing anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from engine.core.decisions import (
    RequestAdmitted,
    RequestPreempted,
    StepPlanned,
)
from engine.core.events import RequestArrived, StepCompleted
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from recorder.vault import Contents
from replay.divergence import EmittedToken
from replay.refusal import CannotCompare
from replay.span import Resumption
from replay.stretch import as_arrived
from replay.tokens import OutputCounter, recorded_tokens


@dataclass(frozen=True, slots=True)
class Moment:
    """Where one output token was recorded, and what had befallen its request by then."""

    sequence: int
    now_ns: int
    step: int
    num_preemptions: int
    num_hit_blocks: int


@dataclass(slots=True)
class RequestHistory:
    """A request as recorded.

    tokens, moments   one each per output token
    lenders           request → block: blocks in its table that other requests had held before
    kv_digests        place in its block table → digest, of the blocks that it filled itself, as filled last
    kv_moments        … and when that was
    prompt            as `StepCompleted.prompt_logprobs` has it, and when that was; None: it was told nothing of it
    """

    arrived: RequestArrived
    tokens: list[EmittedToken] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    num_preemptions: int = 0
    num_hit_blocks: int = 0
    lenders: dict[int, int] = field(default_factory=dict)
    kv_digests: dict[int, int] = field(default_factory=dict)
    kv_moments: dict[int, Moment] = field(default_factory=dict)
    prompt: tuple[tuple[int, int, int], Moment] | None = None

    def moment(self, entry: Entry, step: int) -> Moment:
        return Moment(entry.sequence, entry.now_ns, step, self.num_preemptions, self.num_hit_blocks)


class LifeHistory:
    """All requests of a life by number, and the rows of every step.

    It may begin at a keyframe, and go on at one behind a gap: requests that were under way there are followed from the
    tokens on that they had.

    requests   as followed last
    earlier    what was seen before a gap of requests that were still under way behind it
    """

    def __init__(
        self,
        entries: Iterator[Entry] | Iterator[Entry | Resumption],
        contents: Contents,
        thaw: Callable[[Resumption], Core] | None = None,
    ) -> None:
        """`thaw` makes the core of a keyframe, where the entries have any; what it raises comes through."""
        self.requests: dict[int, RequestHistory] = {}
        self.earlier: list[RequestHistory] = []
        self._ended: set[int] = set()  # while the step was computed that was under way at the keyframe
        self.rows_of_step: dict[int, tuple[tuple[int, int, int], ...]] = {}
        self._contents = contents
        self._counter = OutputCounter()
        self._holder_of_block: dict[int, int] = {}
        for entry in entries:
            if isinstance(entry, Resumption):
                assert thaw is not None, "entries that have keyframes come with somebody who thaws them"
                self._go_on(thaw(entry))
                continue
            try:
                self._read(entry)
            except KeyError as error:
                raise CannotCompare(
                    f"the entry at sequence {entry.sequence} tells of request {error}, which never arrived",
                    "the recording was changed: run reprise check",
                ) from error

    def neighbours(self, step: int, request: int) -> list[int]:
        """The other requests whose rows were computed in `step`."""
        return [number for number, _start, _count in self.rows_of_step.get(step, ()) if number != request]

    def _go_on(self, core: Core) -> None:
        self._counter = OutputCounter()
        for request in core.requests.values():
            if request.number in self.requests:
                self.earlier.append(self.requests[request.number])
            self.requests[request.number] = RequestHistory(as_arrived(request, core.limits.block_size))
            self._counter.begin(request.number, request.num_output_tokens)
        plan = core.step_under_way
        if plan is not None:
            self.rows_of_step[plan.step] = plan.rows
            self._ended = {row[0] for row in plan.rows} - core.requests.keys()

    def _read(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, RequestArrived):
            self.requests[event.request] = RequestHistory(event)
            self._counter.begin(event.request, event.num_output_tokens)
        elif isinstance(event, StepCompleted):
            self._read_step(event, entry)
        for decision in entry.decisions:
            if isinstance(decision, StepPlanned):
                self.rows_of_step[decision.step] = decision.rows
                for request, block in decision.new_blocks:
                    self._lend(block, request)
            elif isinstance(decision, RequestAdmitted):
                self.requests[decision.request].num_hit_blocks += decision.num_hit_blocks
                for block in decision.block_ids:
                    self._lend(block, decision.request)
            elif isinstance(decision, RequestPreempted):
                self.requests[decision.request].num_preemptions += 1

    def _read_step(self, event: StepCompleted, entry: Entry) -> None:
        for request, index, digest in event.kv_digests:
            filling = self.requests[request]
            filling.kv_digests[index], filling.kv_moments[index] = digest, filling.moment(entry, event.step)
        for told in event.prompt_logprobs:
            if told[0] not in self._ended:
                self.requests[told[0]].prompt = told, self.requests[told[0]].moment(entry, event.step)
        token_ids = self._contents.tokens.get(event.step, ())
        for token in recorded_tokens(event, token_ids, self._counter):
            if token.request in self._ended:
                continue
            history = self.requests[token.request]
            history.tokens.append(token)
            history.moments.append(history.moment(entry, event.step))

    def _lend(self, block: int, request: int) -> None:
        lender = self._holder_of_block.get(block, request)
        self._holder_of_block[block] = request
        if lender != request:
            self.requests[request].lenders.setdefault(lender, block)
