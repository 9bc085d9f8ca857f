"""A runner in the middle of a life: brought to where a keyframe's requests stood, and kept right from there on.

Their tokens are known from the vault, so their keys and values are computed again by prefill: by P4 they are the same
bits as those that were there. Cached blocks of requests that had ended are computed when somebody is found to read
them, from the reader's own tokens, which are the same. Whose tokens are not known is left out, with all its rows; by P4
nobody else's bits depend on it. It decides nothing and compares nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from engine.core.contents import RequestContents
from engine.core.decisions import (
    Decision,
    FinishReason,
    PreemptMode,
    PreemptReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import StepCompleted
from engine.core.limits import Limits
from engine.core.request import Request
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.interface import Runner, StepResult
from recorder.vault import Contents

_REBUILDING = -1  # step number of what is no recorded step


class Rebuilt(NamedTuple):
    """
    counts      request → output tokens that it had, of those that are held
    left_out    requests whose rows are not computed: their tokens are not known, or they ended while the step under way
                was computed
    plan        the step under way, to be executed; None: there is none
    num_tokens  computed again
    """

    counts: dict[int, int]
    left_out: frozenset[int]
    plan: StepPlanned | None
    num_tokens: int

    def without_left_out(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The entries as if those rows had never been recorded."""
        for entry in entries:
            yield entry._replace(event=self._cleared(entry.event)) if isinstance(entry.event, StepCompleted) else entry

    def _cleared(self, event: StepCompleted) -> StepCompleted:
        return event._replace(
            emitted=tuple([row for row in event.emitted if row[0] not in self.left_out]),
            filled=tuple([row for row in event.filled if row[0] not in self.left_out]),
            kv_digests=tuple([row for row in event.kv_digests if row[0] not in self.left_out]),
            prompt_logprobs=tuple([row for row in event.prompt_logprobs if row[0] not in self.left_out]),
        )


class MidwayRunner:
    """Stands before a Runner. Until `rebuild` it only passes on what it is told."""

    def __init__(self, runner: Runner, limits: Limits) -> None:
        self._runner = runner
        self._block_size = limits.block_size
        self._max_row = limits.max_num_batched_tokens
        self._tables: dict[int, list[int]] = {}  # of those held
        self._written: set[int] | None = None  # blocks whose contents are right; None: all that anybody reads
        self._num_tokens = 0

    # ── as any Runner ────────────────────────────────────────────────────────────────────────────────────────────

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        return self._runner.prompt_digests(contents)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        self._tables.setdefault(request, [])
        self._runner.add_request(request, sampling, contents, digests)

    def carry_out(self, decision: Decision) -> None:
        number = getattr(decision, "request", None)
        if self._written is not None and number not in self._tables:
            return
        self._runner.carry_out(decision)
        if isinstance(decision, RequestAdmitted):
            self._tables[decision.request] = list(decision.block_ids)
            first = decision.num_hit_blocks
            self._note_written(decision.block_ids[first : first + len(decision.host_blocks)])
            self._write_hits(decision.request, decision.block_ids[:first])
        elif isinstance(decision, RequestPreempted):
            self._tables[decision.request] = []
        elif isinstance(decision, RequestFinished | RequestRejected):
            self._tables.pop(decision.request, None)

    def execute(self, plan: StepPlanned) -> StepResult:
        if self._written is None:
            return self._runner.execute(plan)
        new_blocks = tuple([(number, block) for number, block in plan.new_blocks if number in self._tables])
        rows = tuple([row for row in plan.rows if row[0] in self._tables])
        for number, block in new_blocks:
            self._tables[number].append(block)
        for number, start, count in rows:
            last = (start + count - 1) // self._block_size
            self._note_written(self._tables[number][start // self._block_size : last + 1])
        return self._runner.execute(plan._replace(rows=rows, new_blocks=new_blocks))

    # ── at a keyframe ────────────────────────────────────────────────────────────────────────────────────────────

    def rebuild(self, core: Core, contents: Contents) -> Rebuilt:
        """Hold what `core` holds, and nothing else. Whatever executing raises comes through."""
        for number in [*self._tables]:
            self._runner.carry_out(RequestFinished(number, FinishReason.LOST, 0, 0, 0, 0, 0))
        self._tables, self._written, self._num_tokens = {}, set(), 0
        known = [request for request in core.requests.values() if self._add(request, contents)]
        for request in known:
            if request.host_blocks:
                self._swap_out(request)
        self._written = set()  # what was lent for that is given back
        plan = core.step_under_way
        new_blocks = [number for number, _block in plan.new_blocks] if plan is not None else []
        for request in known:
            if request.block_table:
                num_before = len(request.block_table) - new_blocks.count(request.number)
                self._write(request.number, request.block_table[:num_before], request.num_computed_tokens)
        in_plan = {row[0] for row in plan.rows} if plan is not None else set[int]()
        left_out = frozenset((core.requests.keys() | in_plan) - {request.number for request in known})
        counts = {request.number: request.num_output_tokens for request in known}
        return Rebuilt(counts, left_out, plan, self._num_tokens)

    def _add(self, request: Request, contents: Contents) -> bool:
        """Hold the request, if its tokens are known and those whose digests were recorded."""
        prompt = contents.prompts.get(request.number)
        outputs = tuple(contents.outputs(request.number)[: request.num_output_tokens])
        if prompt is None or len(outputs) < request.num_output_tokens:
            return False
        known = prompt._replace(prompt_token_ids=(*prompt.prompt_token_ids, *outputs), output_token_ids=())
        digests = self._runner.prompt_digests(known)
        num_digests = min(len(digests), len(request.block_digests))
        if list(digests[:num_digests]) != request.block_digests[:num_digests]:
            return False
        self.add_request(
            request.number,
            request.sampling,
            prompt._replace(output_token_ids=outputs),
            digests[: request.num_prompt_tokens // self._block_size],
        )
        return True

    def _swap_out(self, request: Request) -> None:
        """What it has in the host pool, by way of blocks that nobody has yet."""
        number, host_blocks = request.number, tuple(request.host_blocks)
        self._write(number, [*range(len(host_blocks))], request.num_swapped_tokens)
        reason, mode = PreemptReason.OUT_OF_BLOCKS, PreemptMode.SWAP
        self.carry_out(RequestPreempted(number, number, reason, mode, 0, 0, 0, 0, host_blocks))

    def _write(self, number: int, blocks: list[int], num_tokens: int) -> None:
        self.carry_out(RequestAdmitted(number, tuple(blocks), 0, (), 0, 0))
        self._prefill(number, 0, num_tokens)

    def _write_hits(self, number: int, hits: tuple[int, ...]) -> None:
        """Found blocks that nobody has written since the keyframe."""
        if self._written is not None:
            for index, block in enumerate(hits):
                if block not in self._written:
                    self._prefill(number, index * self._block_size, (index + 1) * self._block_size)

    def _prefill(self, number: int, start: int, end: int) -> None:
        self._num_tokens += end - start
        for first in range(start, end, self._max_row):
            row = (number, first, min(self._max_row, end - first))
            self.execute(StepPlanned(_REBUILDING, (row,), (), (), 0, 0, 0, 0))

    def _note_written(self, blocks: "list[int] | tuple[int, ...]") -> None:
        if self._written is not None:
            self._written.update(blocks)
