"""Requests of every kind on the real model, each audited: a sound engine raises no alarm, whatever they ask for."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.decisions import RequestAdmitted, RequestFinished, RequestPreempted
from engine.core.events import AuditCompleted, KVMismatch
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.build import build_runner
from engine.loop import EngineLoop, NoRecord
from engine.protocol import Arrive, Cancel, Message, Stop
from engine.self_audit import SelfAudit
from tests.integration.daemon_process import MODEL

CONFIG = EngineConfig(
    model=MODEL,
    num_kv_blocks=19,
    max_model_len=256,
    max_num_seqs=6,
    max_num_batched_tokens=96,
    reserve_output="none",
    swap_space_bytes=1 << 23,
    kv_digests=True,
)
PREFIX = tuple(range(2_000, 2_040))
WORDS = tuple(range(400, 460))


class Inbox:
    """All at once, one cancelled in mid-answer; `late` comes when the audits of the others are done."""

    def __init__(self, messages: list[Message], late: list[Message]) -> None:
        self._messages = messages
        self._late = late
        self._num_looks = 0

    def get(self) -> Message:
        if self._messages:
            return self._messages.pop(0)
        return self._late.pop(0) if self._late else Stop("test over")

    def drain(self) -> list[Message]:
        self._num_looks += 1
        messages, self._messages = self._messages, []
        return [*messages, Cancel(5, "client")] if self._num_looks == 12 else messages


def arrive(number: int, prompt: tuple[int, ...], sampling: SamplingParams, **contents: Any) -> Arrive:
    of = RequestContents(prompt, **contents)
    return Arrive(number, f"request-{number}", "t", 0, 0, 24, sampling, of)


def requests() -> list[Message]:
    greedy, drawn = SamplingParams(temperature=0.0, ignore_eos=True), SamplingParams(seed=7, top_p=0.9, top_k=50)
    penalties = replace_of(drawn, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2)
    return [
        arrive(0, (*PREFIX, 11, 12), greedy),
        arrive(1, (*PREFIX, 13), drawn),
        arrive(2, WORDS, penalties),
        arrive(3, WORDS[::-1], replace_of(drawn, min_p=0.05, min_tokens=8, num_logprobs=3)),
        arrive(4, WORDS[:30], greedy, logit_bias=((500, 4.0), (501, -4.0)), stop_strings=(" the", "e")),
        arrive(5, (*WORDS[10:], 9), drawn),
        arrive(6, (*PREFIX, 15), replace_of(drawn, seed=8), stop_token_ids=(28, 260, 253)),
    ]


def replace_of(sampling: SamplingParams, **changes: Any) -> SamplingParams:
    return sampling._replace(**changes)


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    clock = SystemClock()
    built = build_runner(CONFIG, bytes(16), clock)
    limits = replace(built.limits, thrash_bound_permille=0)
    audit = SelfAudit(1.0, limits, lambda n: built.runner.emptied(n, limits.block_size, 0), built.runner.watch)
    entries: list[Entry] = []
    loop = EngineLoop(
        Core(limits),
        built.runner,
        clock,
        NoRecord(),
        lambda entry, outputs: entries.append(entry),
        watch=built.runner.watch,
        audit=audit,
    )
    with capture_logs():
        loop.serve(Inbox(requests(), [arrive(7, (*PREFIX, 16), SamplingParams(seed=3))]))
    return entries


def test_no_alarm_is_raised(entries: list[Entry]) -> None:
    audits = [entry.event for entry in entries if isinstance(entry.event, AuditCompleted)]
    assert sorted(audit.request for audit in audits) == list(range(8))
    assert [audit for audit in audits if audit.result != "equal"] == []
    ends = {d.request: d for entry in entries for d in entry.decisions if isinstance(d, RequestFinished)}
    assert {audit.request: audit.num_tokens for audit in audits} == {
        request: end.num_output_tokens for request, end in ends.items()
    }
    assert not [entry for entry in entries if isinstance(entry.event, KVMismatch)]


def test_the_requests_met_what_may_happen(entries: list[Entry]) -> None:
    decisions = [decision for entry in entries for decision in entry.decisions]
    assert {d.reason for d in decisions if isinstance(d, RequestFinished)} >= {"stop", "length", "cancelled"}
    assert [d for d in decisions if isinstance(d, RequestPreempted)]
    assert [d for d in decisions if isinstance(d, RequestAdmitted) and d.num_hit_blocks]
