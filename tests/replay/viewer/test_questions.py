"""The saved questions run, and answer what they ask, on a recording whose answers `show` gives too."""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.core.decisions import RequestAdmitted, RequestDeferred, RequestFinished, RequestPreempted, StepPlanned
from recorder.request_span import RequestSpan
from recorder.timeline import Timeline
from replay.figures import read_timeline
from replay.lives import Run
from replay.viewer.questions import QUESTIONS
from replay.viewer.sql_box import ask
from replay.viewer.viewed import Viewed
from tests.replay.recorded_runs import entries_of

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def timeline(run: Path) -> Timeline:
    return read_timeline(Run.open(run))


@pytest.fixture(scope="module")
def answer(viewed: Viewed) -> Callable[[str], Rows]:
    def of(name: str) -> Rows:
        (question,) = [each for each in QUESTIONS if each.name == name]
        found = ask(viewed.index.path, question.sql, SystemClock())
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    return of


@pytest.fixture(scope="module")
def preemptions(run: Path) -> list[RequestPreempted]:
    decisions = [decision for entry in entries_of(run) for decision in entry.decisions]
    return [decision for decision in decisions if isinstance(decision, RequestPreempted)]


def ms(nanoseconds: float | None) -> float:
    assert nanoseconds is not None
    return nanoseconds / 1e6


def most(spans: list[RequestSpan], value: Callable[[RequestSpan], float | None]) -> list[float]:
    return sorted((found / 1e6 for found in map(value, spans) if found is not None), reverse=True)


def test_every_question_runs_and_has_a_name_of_its_own(answer: Callable[[str], Rows]) -> None:
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS) >= 12
    for question in QUESTIONS:
        assert answer(question.name), question.name


def test_who_waited_longest_and_behind_whom(answer: Callable[[str], Rows], timeline: Timeline, run: Path) -> None:
    rows = answer("longest-wait")
    spans, entries = timeline.spans, entries_of(run)
    waited = {
        number: ms(span.queue_ns if span.queue_ns is not None else (span.ended_ns or 0) - span.arrival_ns)
        for number, span in spans.items()
    }
    assert [row["waited_ms"] for row in rows] == pytest.approx(sorted(waited.values(), reverse=True)[:20])
    assert {row["admitted"] for row in rows} <= {"yes", "never"}
    told: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    for entry in entries:
        for it in entry.decisions:
            if isinstance(it, RequestDeferred | RequestAdmitted | RequestFinished):
                told[it.request].append((entry.now_ns, it))
    for row in rows:
        until = spans[row["request"]].first_admitted_ns or 2**62
        for_ns, behind_ns = Counter[str](), Counter[int]()
        for (now_ns, it), (next_ns, _) in pairwise(told[row["request"]]):
            if isinstance(it, RequestDeferred) and next_ns <= until:
                for_ns[str(it.reason)] += next_ns - now_ns
                behind_ns[it.behind] += next_ns - now_ns
        del behind_ns[-1]
        assert row["for_ms"] == (ms(max(for_ns.values())) if for_ns else None)
        assert row["behind_ms"] == (ms(max(behind_ns.values())) if behind_ns else None)
        if for_ns:
            assert for_ns[row["mostly_for"]] == max(for_ns.values())
        if behind_ns:
            assert behind_ns[row["behind"]] == max(behind_ns.values())
            assert row["behind_id"] == spans[row["behind"]].request_id
    assert sum(row["behind"] is not None for row in rows) > 5


def test_who_preempted_whom(answer: Callable[[str], Rows], preemptions: list[RequestPreempted]) -> None:
    counts = Counter((it.for_request, it.request, str(it.reason)) for it in preemptions)
    lost: Counter[tuple[int, int, str]] = Counter()
    for it in preemptions:
        lost[(it.for_request, it.request, str(it.reason))] += it.num_tokens_lost
    rows = answer("preempted-by")
    got = {(row["beneficiary"], row["victim"], row["reason"]): (row["times"], row["tokens_lost"]) for row in rows}
    assert got == {key: (count, lost[key]) for key, count in counts.items()}


def test_cascades(answer: Callable[[str], Rows], preemptions: list[RequestPreempted]) -> None:
    chains: dict[int, list[int]] = defaultdict(list)
    for it in preemptions:
        chains[it.chain].append(it.request)
    longest = {it.chain: it.chain_length for it in preemptions if it.chain_length > 1}
    rows = answer("cascades")
    assert {row["chain"] for row in rows} == set(longest)
    for row in rows:
        assert row["victims"] == " → ".join(map(str, chains[row["chain"]]))


def test_reasons_for_waiting(answer: Callable[[str], Rows], timeline: Timeline) -> None:
    got = {row["reason"]: row["times"] for row in answer("waiting-reasons")}
    assert got == {str(reason): count for reason, count in timeline.totals.deferrals.items()}


def test_the_slowest_tokens(answer: Callable[[str], Rows], timeline: Timeline) -> None:
    spans = list(timeline.spans.values())
    first = answer("slowest-first-token")
    assert [row["ttft_ms"] for row in first] == most(spans, lambda span: span.ttft_ns)[:20]
    assert all(
        row["prefill_ms"] == pytest.approx(ms(timeline.spans[row["request"]].prefill_ns), abs=1e-6) for row in first
    )
    gaps = [row["itl_max_ms"] for row in answer("longest-gap")]
    assert gaps == most(spans, lambda span: max(span.itl_ns or [], default=None))[:20]


def test_the_slowest_steps(answer: Callable[[str], Rows], run: Path) -> None:
    planned: dict[int, int] = {}
    took = {}
    for entry in entries_of(run):
        step = getattr(entry.event, "step", -1)
        if step in planned:
            took[step] = (entry.now_ns - planned[step]) / 1e6
        planned |= {it.step: entry.now_ns for it in entry.decisions if isinstance(it, StepPlanned)}
    rows = answer("slowest-steps")
    assert [row["step_ms"] for row in rows] == sorted(took.values(), reverse=True)[:20]
    assert all(took[row["step"]] == row["step_ms"] for row in rows)


def test_who_ran_beside_it(answer: Callable[[str], Rows], run: Path) -> None:
    beside = set()
    for entry in entries_of(run):
        for it in entry.decisions:
            if isinstance(it, StepPlanned) and 0 in {row[0] for row in it.rows}:
                beside |= {row[0] for row in it.rows}
    assert {row["request"] for row in answer("beside-it")} == beside - {0}


def test_thrashing_has_a_beginning_and_an_end(answer: Callable[[str], Rows], timeline: Timeline) -> None:
    rows = answer("thrashing")
    assert len(rows) == timeline.totals.num_thrashings
    ended = [row["ended_ms"] for row in rows]
    assert all(end is not None for end in ended) is not timeline.is_thrashing
    assert all((row["ended_on"] is None) is (row["ended_ms"] is None) for row in rows)
    assert all(row["preemptions"] > 0 and "watermark_blocks" in row["throttled"] for row in rows)


def test_tenants_ends_and_hits(answer: Callable[[str], Rows], timeline: Timeline) -> None:
    spans = list(timeline.spans.values())
    (tenant,) = answer("tenants")
    assert tenant["requests"] == len(spans)
    assert tenant["output_tokens"] == sum(span.num_output_tokens for span in spans)
    assert tenant["preemptions"] == timeline.totals.num_preemptions
    ends = {row["reason"]: row["requests"] for row in answer("ends")}
    assert ends == Counter(str(span.outcome) for span in spans)
    hits = [row["cached_tokens"] for row in answer("cache-hits")]
    assert hits == sorted((it.num_cached_tokens for it in spans if it.num_cached_tokens > 0), reverse=True)[:50]


def test_steps_with_budget_left_while_somebody_waited(answer: Callable[[str], Rows], run: Path) -> None:
    plans = [it for entry in entries_of(run) for it in entry.decisions if isinstance(it, StepPlanned)]
    left = sorted((it.token_budget_left for it in plans if it.num_waiting and it.token_budget_left), reverse=True)
    assert [row["budget_left"] for row in answer("idle-budget")] == left[:50]


def test_everything_out_of_the_ordinary(answer: Callable[[str], Rows], timeline: Timeline) -> None:
    kinds = Counter(row["kind"] for row in answer("marks"))
    assert kinds["thrashing"] == timeline.totals.num_thrashings
