"""What is looked at in every entry of a simulated run: blocks, rows, budgets, tokens, ends."""

from collections import Counter
from dataclasses import dataclass, field

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import (
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.loop import NoRecord
from engine.protocol import Arrive


@dataclass
class Run:
    """What a simulated run left behind."""

    limits: Limits
    core: Core
    entries: list[Entry] = field(default_factory=list)
    arrivals: dict[int, Arrive] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)  # as clients received them
    digests: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, list[RequestFinished | RequestRejected]] = field(default_factory=dict)
    num_steps: int = 0


class Checks(NoRecord):
    """The record sink and subscriber of a run: checks each entry against the core's state and the promises.

    blocks_every   the pool, whose check costs more than a step, is looked at in every so many entries
    """

    def __init__(self, run: Run, blocks_every: int = 1) -> None:
        self._run = run
        self._blocks_every = blocks_every
        self._num_cached_tokens: dict[int, int] = {}  # at first admission
        self._num_preemptions: Counter[int] = Counter()

    def record(self, entry: Entry) -> None:
        self._run.entries.append(entry)

    def record_contents(self, request: int, contents: RequestContents) -> None:
        pass

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None:
        pass

    def publish(self, entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        if entry.sequence % self._blocks_every == 0:
            self._check_blocks()
        if entry.decisions:
            self._check_decisions(entry, outputs)

    def _check_decisions(self, entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        preempted = set[int]()
        for decision in entry.decisions:
            match decision:
                case TokensEmitted():
                    self._check_tokens(entry, decision.rows, outputs)
                case StepPlanned():
                    self._check_plan(decision, preempted)
                case RequestAdmitted():
                    num_cached_tokens = decision.num_hit_blocks * self._run.limits.block_size
                    self._num_cached_tokens.setdefault(decision.request, num_cached_tokens)
                case RequestPreempted():
                    preempted.add(decision.request)
                    self._num_preemptions[decision.request] += 1
                case RequestFinished():
                    assert decision.num_cached_tokens == self._num_cached_tokens.get(decision.request, 0)
                    assert decision.num_preemptions == self._num_preemptions[decision.request]
                    self._run.ends.setdefault(decision.request, []).append(decision)
                case RequestRejected():
                    self._run.ends.setdefault(decision.request, []).append(decision)
                case _:
                    pass

    def _check_tokens(self, entry: Entry, rows: tuple[tuple[int, int], ...], outputs: tuple[TokenOutput, ...]) -> None:
        run = self._run
        assert [output.request for output in outputs] == [request for request, _count in rows]
        digests = {row[0]: row[2] for row in getattr(entry.event, "emitted", ())}
        for output, (request, count) in zip(outputs, rows, strict=True):
            tokens = run.tokens.setdefault(request, [])
            tokens.append(output.token_id)
            run.digests.setdefault(request, []).append(digests[request])
            assert len(tokens) == count

    def _check_blocks(self) -> None:
        """No block lost, none owned by more requests than it is counted for."""
        core = self._run.core
        core.check_invariants()
        held: dict[int, int] = {}
        for request in core.requests.values():
            assert len(set(request.block_table)) == len(request.block_table)
            assert request.block_table or request.num_computed_tokens == 0, "it counts tokens that lie nowhere"
            for block in request.block_table:
                held[block] = held.get(block, 0) + 1
        assert held == {b: c for b, c in enumerate(core.pool._reference_counts) if c > 0}

    def _check_plan(self, plan: StepPlanned, preempted: set[int]) -> None:
        limits, core = self._run.limits, self._run.core
        self._run.num_steps += 1
        counts = {request: count for request, _start, count in plan.rows}
        assert 0 < len(counts) == len(plan.rows) <= limits.max_num_seqs
        assert sum(counts.values()) + plan.token_budget_left == limits.max_num_batched_tokens
        assert plan.token_budget_left >= 0
        assert plan.num_blocks_free == core.pool.num_free
        assert (plan.num_running, plan.num_waiting) == (len(core.planner.running), len(core.planner.waiting))
        if preempted:
            assert not preempted & set(counts), "a step lists a request that it preempts"
        if limits.scheduling_phases in ("adaptive", "chunked"):
            ending = {r.number for r in core.requests.values() if r.num_output_tokens >= r.max_output_tokens > 0}
            decoding = {r.number for r in core.planner.running if r.num_uncomputed_tokens == 1} - ending
            assert decoding <= set(counts), "a running decode is left out of a step"
        for request, start, count in plan.rows:
            held = core.requests[request]
            assert count >= 1
            assert start == held.num_computed_tokens
            assert start + count <= held.num_tokens
            assert len(held.block_table) * limits.block_size >= start + count


def check_ends(run: Run) -> None:
    """Every request that arrived has exactly one end; nothing is left in the core."""
    assert dict.fromkeys(run.arrivals, 1) == {
        request: len(ends) for request, ends in run.ends.items() if request in run.arrivals
    }
    assert run.core.is_drained
    assert run.core.pool.num_free == run.limits.num_kv_blocks
    assert run.core.planner.swapping.host.num_free == run.limits.swap_space_blocks
    for request, (end,) in run.ends.items():
        if isinstance(end, RequestFinished) and request in run.arrivals:
            assert end.num_output_tokens == len(run.tokens.get(request, []))
