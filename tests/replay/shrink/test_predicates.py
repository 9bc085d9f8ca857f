"""Predicates hold where the failure is, name whose it is, and refuse what they do not know."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted, RequestFinished, StepPlanned
from engine.core.vocabulary import Entry
from replay.shrink.evidence import Evidence, evidences_of
from replay.shrink.invariants import first_broken
from replay.shrink.predicates import UnknownPredicate, parse
from tests.replay.recorded_runs import LIMITS, changed_decision, entries_of


@pytest.fixture
def evidence(recording: Path) -> Evidence:
    (evidence,) = evidences_of(recording)
    return evidence


@pytest.mark.parametrize("text", ["invariant-broken", "starvation", "engine-dies", "ttft-above:1e9", "expr:False"])
def test_a_healthy_recording_fails_with_none_of_these(recording: Path, text: str) -> None:
    assert not parse(text).holds(recording)


def test_latencies_and_preemptions_are_looked_at_for_all_or_for_one(evidence: Evidence) -> None:
    slowest = max(evidence.timeline.spans.values(), key=lambda span: span.ttft_ns or 0)
    assert slowest.ttft_ns is not None
    bound = slowest.ttft_ns / 1e6 - 0.5
    found = parse(f"ttft-above:{bound}").find(evidence)
    assert found is not None
    assert found.request == slowest.request
    assert parse(f"ttft-above:{bound}:{slowest.request_id}").holds(evidence)
    assert not parse(f"ttft-above:{bound}:req-0").holds(evidence)
    most = max(span.num_preemptions for span in evidence.timeline.spans.values())
    assert parse(f"preempted-more-than:{most - 1}").holds(evidence)
    assert not parse(f"preempted-more-than:{most}").holds(evidence)


def test_an_expression_sees_requests_totals_decisions_and_limits(evidence: Evidence) -> None:
    num_preemptions = len([d for e in evidence.entries for d in e.decisions if type(d).__name__ == "RequestPreempted"])
    assert parse(f"expr:totals.num_preemptions == {num_preemptions}").holds(evidence)
    assert parse(f"expr:len(decisions('RequestPreempted')) == {num_preemptions}").holds(evidence)
    assert parse("expr:limits.block_size == 4 and ms == 10**6").holds(evidence)
    found = parse("expr:next((r.request for r in requests if r.num_preemptions), False)").find(evidence)
    assert found is not None
    assert evidence.timeline.spans[found.request].num_preemptions


def test_a_request_numbered_0_is_a_finding_too(evidence: Evidence) -> None:
    found = parse("expr:0").find(evidence)
    assert found is not None
    assert found.request == 0


@pytest.mark.parametrize("text", ["", "slow", "ttft-above", "ttft-above:soon", "expr:", "expr:1 +", "output-lacks"])
def test_what_is_no_predicate_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UnknownPredicate, match="isolation-differs"):
        parse(text)


def test_entries_alone_are_enough_where_no_model_is_needed(recording: Path) -> None:
    assert parse("expr:totals.num_preemptions").holds(entries_of(recording)[:-1])


BROKEN: list[tuple[type[Any], int, Callable[[Any], Any], str]] = [
    (RequestAdmitted, 9, lambda d: d._replace(block_ids=(d.block_ids[0],) * len(d.block_ids)), "is given to"),
    (RequestAdmitted, 0, lambda d: d._replace(num_hit_blocks=1), "hits block"),
    (RequestFinished, 9, lambda d: d._replace(request=0), "ends twice"),
    (RequestAdmitted, 9, lambda d: d._replace(request=99), "does not live"),
    (StepPlanned, 7, lambda d: d._replace(rows=tuple((r, s + 1, c) for r, s, c in d.rows)), "it has come to"),
    (StepPlanned, 7, lambda d: d._replace(rows=tuple((r, s, c + 99) for r, s, c in d.rows)), "tokens, at most"),
]


@pytest.mark.parametrize(("kind", "occurrence", "change", "told"), BROKEN)
def test_each_promise_is_missed_when_it_is_broken(
    recording: Path, kind: type[Any], occurrence: int, change: Callable[[Any], Any], told: str
) -> None:
    entries, _sequence, _index = changed_decision(entries_of(recording), kind, change, occurrence=occurrence)
    found = first_broken(entries, LIMITS)
    assert found is not None
    assert told in found.text


def test_work_that_waits_while_no_step_is_under_way_is_found(recording: Path) -> None:
    def without_plan(entry: Entry) -> Entry:
        return entry._replace(decisions=tuple(d for d in entry.decisions if not isinstance(d, StepPlanned)))

    entries = entries_of(recording)
    at = next(e.sequence for e in entries[50:] if any(isinstance(d, StepPlanned) for d in e.decisions))
    asleep = [without_plan(entry) if entry.sequence == at else entry for entry in entries]
    found = first_broken(asleep, LIMITS)
    assert found is not None
    assert "none is under way" in found.text
    assert found.sequence == at
