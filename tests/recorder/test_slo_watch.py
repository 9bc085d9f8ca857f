"""Who waits longer for a token than was promised pins the recording, at most once a minute."""

from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.core.decisions import FinishReason, RequestFinished, TokensEmitted
from engine.core.events import AuditCompleted, AuditResult, KVMismatch, KVNoticed, RequestArrived, TimerFired
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from recorder.incidents import Incident, incident_in, pins_of
from recorder.keeper import Keeper
from recorder.retention import Bounds
from recorder.slo_watch import SloWatch
from tests.recorder.samples import recorder

MS = 1_000_000
MINUTE = 60_000


def arrival(request: int, at_ms: int, num_output_tokens: int = 0) -> Entry:
    arrived = RequestArrived(request, f"r{request}", "", 0, at_ms * MS, 4, 9, (), SamplingParams())
    return Entry(0, at_ms * MS, arrived._replace(num_output_tokens=num_output_tokens), ())


def tokens(at_ms: int, *requests: int) -> Entry:
    return Entry(0, at_ms * MS, TimerFired(), (TokensEmitted(0, tuple([(request, 1) for request in requests])),))


def end(at_ms: int, request: int, reason: FinishReason = FinishReason.LENGTH) -> Entry:
    return Entry(0, at_ms * MS, TimerFired(), (RequestFinished(request, reason, 4, 1, 0, 0, 1),))


def breaches(watch: SloWatch, *entries: Entry) -> list[bool]:
    return [watch.breached(entry) for entry in entries]


def test_a_first_token_that_is_late_is_a_breach_and_one_in_time_is_none() -> None:
    watch = SloWatch(ttft_ms=100, itl_ms=0)
    assert breaches(watch, arrival(0, 0), arrival(1, 10), tokens(100, 0)) == [False] * 3
    assert breaches(watch, tokens(111, 1)) == [True]


def test_a_late_gap_is_a_breach_of_the_other_target() -> None:
    entries = arrival(0, 0), tokens(500, 0), tokens(520, 0), tokens(541, 0)
    assert breaches(SloWatch(0, 20), *entries) == [False, False, False, True]
    assert breaches(SloWatch(0, 21), *entries) == [False] * 4


def test_who_ends_without_a_token_after_its_time_has_breached_and_who_ends_with_one_has_not() -> None:
    watch = SloWatch(100, 100)
    assert breaches(watch, arrival(0, 0), tokens(50, 0), end(900, 0)) == [False] * 3
    assert breaches(watch, arrival(1, 1000), end(1050, 1, FinishReason.CANCELLED)) == [False] * 2
    assert breaches(watch, arrival(2, 2000), end(2101, 2, FinishReason.EXPIRED)) == [False, True]


def test_a_breach_is_told_once_a_minute() -> None:
    watch = SloWatch(1, 0)
    told = []
    for number in range(5):
        told += breaches(watch, arrival(number, number * MINUTE // 2), tokens(number * MINUTE // 2 + 9, number))
    assert told[1::2] == [True, False, True, False, True]


def test_a_request_from_another_engine_has_had_its_first_token() -> None:
    watch = SloWatch(10, 10)
    assert breaches(watch, arrival(0, 0, num_output_tokens=3), tokens(500, 0), tokens(511, 0)) == [False, False, True]


@pytest.mark.parametrize(
    ("event", "incident"),
    [
        (KVMismatch(3, 1, 2, 0, (1,), KVNoticed.HIT, 1, 0), Incident.KV_MISMATCH),
        (AuditCompleted(3, 1, 0, -1, AuditResult.DIFFERENT), Incident.AUDIT_DIFFERENCE),
        (AuditCompleted(3, 1, -1, -1, AuditResult.FAILED, "boom"), Incident.AUDIT_DIFFERENCE),
        (AuditCompleted(3, 1, -1, -1, AuditResult.EQUAL), None),
    ],
)
def test_corruption_is_an_incident(event: Any, incident: Incident | None) -> None:
    assert incident_in(Entry(0, 0, event, ())) is incident


def test_a_breach_pins_the_segment_it_is_in(tmp_path: Path) -> None:
    clock = SystemClock()
    writer = recorder(tmp_path / "run", clock=clock, slo=SloWatch(100, 0))
    keeper = Keeper(writer, Bounds(2**40, 10**9, 0, 2**40), clock, lambda text, figures: None)
    for sequence, entry in enumerate((arrival(0, 0), tokens(101, 0))):
        writer.record(entry._replace(sequence=sequence))
    writer.close("test")
    keeper.close()
    (segment,) = (tmp_path / "run").glob("*.rps")
    assert [(pin.reason, pin.is_automatic) for pin in pins_of(segment)] == [("slo_breach", True)]
