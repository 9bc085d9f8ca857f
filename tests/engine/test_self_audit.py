"""The self-audit: finished requests are computed again at idle, in memory of their own, and what differs is told."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine import self_audit
from engine.clock import ManualClock
from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.events import AuditCompleted, AuditResult, RequestArrived
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.alone import steps_alone
from engine.execution.interface import Runner, StepResult
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop, NoRecord
from engine.protocol import Arrive, Cancel, Message, Stop
from engine.self_audit import SelfAudit

KEY = b"k" * 16
LIMITS = Limits(num_kv_blocks=32, block_size=4, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=64)


class Inbox:
    """`during[n]` comes at the n-th time the inbox is looked into without waiting."""

    def __init__(self, idle: list[Message], during: dict[int, list[Message]]) -> None:
        self._idle = [*idle, Stop("done")]
        self._during = during
        self.num_looks = 0

    def get(self) -> Message:
        return self._idle.pop(0)

    def drain(self) -> list[Message]:
        self.num_looks += 1
        return self._during.get(self.num_looks, [])


def make_runner(num_blocks: int = LIMITS.num_kv_blocks) -> ScriptedRunner:
    return ScriptedRunner(num_blocks, LIMITS.block_size, KEY, keeps_kv_digests=True)


def arrive(number: int, *, prompt: int = 6, output: int = 9) -> Arrive:
    contents = RequestContents(tuple(range(1 + 40 * number, 1 + 40 * number + prompt)))
    return Arrive(number, f"r{number}", "t", 0, 0, output, SamplingParams(seed=number, ignore_eos=True), contents)


def serve(
    messages: list[Message],
    *,
    rate: float = 1.0,
    runner: ScriptedRunner | None = None,
    during: dict[int, list[Message]] | None = None,
    make_private: Callable[[int], Runner] = make_runner,
    limits: Limits = LIMITS,
) -> list[Entry]:
    entries: list[Entry] = []
    serving = runner or make_runner()
    audit = SelfAudit(rate, limits, make_private, serving.watch)
    loop = EngineLoop(
        Core(limits),
        serving,
        ManualClock(),
        NoRecord(),
        lambda entry, outputs: entries.append(entry),
        watch=serving.watch,
        audit=audit,
    )
    with capture_logs():
        loop.serve(Inbox(messages, during or {}))
    return entries


def audits(entries: list[Entry]) -> list[AuditCompleted]:
    return [entry.event for entry in entries if isinstance(entry.event, AuditCompleted)]


def test_every_token_of_a_sound_engine_is_equal_alone() -> None:
    found = audits(serve([arrive(0), arrive(1), arrive(2)]))
    assert [(audit.request, audit.num_tokens, audit.result) for audit in found] == [
        (number, 9, AuditResult.EQUAL) for number in range(3)
    ]
    assert all(audit.first_difference == audit.first_block == -1 for audit in found)


def test_the_share_is_kept() -> None:
    requests: list[Message] = [arrive(number, output=1) for number in range(10)]
    assert [audit.request for audit in audits(serve(requests, rate=0.25))] == [3, 7]


def test_of_a_cancelled_request_what_it_emitted_is_compared() -> None:
    found = audits(serve([arrive(0)], during={3: [Cancel(0, "client")]}))
    assert [(audit.num_tokens, audit.result) for audit in found] == [(2, AuditResult.EQUAL)]


def test_of_a_handed_over_request_what_this_engine_emitted_is_compared() -> None:
    whole = arrive(0)
    alone = ScriptedRunner(32, 4, KEY)
    digests = alone.prompt_digests(whole.contents)
    arrived = RequestArrived(0, "", "", 0, 0, 6, 9, digests, whole.sampling)
    results = steps_alone(arrived, whole.contents, LIMITS, alone)
    tokens = [output.token_id for result in results for output in result.outputs]
    handed_over = whole._replace(contents=whole.contents._replace(output_token_ids=tuple(tokens[:4])), num_handovers=1)
    found = audits(serve([handed_over]))
    assert [(audit.num_tokens, audit.result) for audit in found] == [(5, AuditResult.EQUAL)]


def test_a_request_that_arrives_waits_for_one_step_of_an_audit() -> None:
    """Between two looks into the inbox lies one step of at most STEP_TOKENS tokens."""
    counted: list[int] = []

    class Counting(ScriptedRunner):
        def execute(self, plan: StepPlanned) -> StepResult:
            counted.append(sum(count for _request, _start, count in plan.rows))
            return super().execute(plan)

    limits = replace(LIMITS, num_kv_blocks=128, max_model_len=400, max_num_batched_tokens=256)
    entries = serve(
        [arrive(0, prompt=200, output=3)],
        during={6: [arrive(1)]},  # three steps, one look of the audit, a slice, and then
        runner=ScriptedRunner(128, 4, KEY),
        make_private=lambda num_blocks: Counting(num_blocks, 4, KEY),
        limits=limits,
    )
    assert max(counted) <= self_audit.STEP_TOKENS
    kinds = [type(entry.event) for entry in entries]
    assert kinds.index(AuditCompleted) > [number for number, kind in enumerate(kinds) if kind is RequestArrived][1]
    assert [(audit.request, audit.result) for audit in audits(entries)] == [(0, "equal"), (1, "equal")]


def test_a_long_request_is_compared_as_far_as_the_memory_of_audits_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_audit, "MAX_TOKENS", 16)
    found = audits(serve([arrive(0, prompt=6, output=30), arrive(1, prompt=16)]))
    assert [(audit.request, audit.num_tokens, audit.result) for audit in found] == [(0, 10, AuditResult.EQUAL)]


def test_no_more_than_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_audit, "MAX_REQUESTS", 2)
    burst: list[Message] = [arrive(number, output=2) for number in range(1, 8)]
    assert len(audits(serve([arrive(0)], during={1: burst}))) == 2


def test_an_audit_that_raises_is_told_and_ends_nothing() -> None:
    class Raising(ScriptedRunner):
        def execute(self, plan: StepPlanned) -> StepResult:
            if plan.rows[0][1] > 6:
                raise FloatingPointError("overflow in a kernel")
            return super().execute(plan)

    entries = serve([arrive(0), arrive(1)], make_private=lambda num_blocks: Raising(num_blocks, 4, KEY))
    assert [(audit.result, audit.error) for audit in audits(entries)] == [
        (AuditResult.FAILED, "FloatingPointError: overflow in a kernel")
    ] * 2


def test_a_token_of_another_is_found_with_its_position() -> None:
    class Swapping(ScriptedRunner):
        """In step 3 two rows get each other's result."""

        def execute(self, plan: StepPlanned) -> StepResult:
            result = super().execute(plan)
            if plan.step != 3:
                return result
            first, second = result.completed.emitted
            swapped = ((first[0], *second[1:]), (second[0], *first[1:]))
            return result._replace(completed=result.completed._replace(emitted=swapped))

    entries = serve([arrive(0)], during={1: [arrive(1)]}, runner=Swapping(32, 4, KEY))
    found = {audit.request: audit for audit in audits(entries)}
    assert (found[0].result, found[0].first_difference) == (AuditResult.DIFFERENT, 3)
    assert (found[1].result, found[1].first_difference) == (AuditResult.DIFFERENT, 2)
