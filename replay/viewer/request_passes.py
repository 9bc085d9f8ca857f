"""Answers about many requests from one pass through a recording: each entry is read once, and told to whom it concerns.

They are the same as `answers/request.py` gives one by one, without contents. It must not know what becomes of them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.decisions import RequestPreempted, StepPlanned, TokensEmitted
from engine.core.events import ExecutorRestarted, KVMismatch, StepCompleted, StepFailed
from engine.core.vocabulary import Entry
from recorder.timeline import Timeline
from replay.lives import Life
from replay.request_story import Line, story_in
from replay.viewer.answers.contents import NOT_ASKED_FOR
from replay.viewer.answers.request import MAX_STORY_LINES, Company, told_of
from replay.viewer.viewed import Viewed


@dataclass(slots=True)
class _Told:
    company: Company
    lines: list[Line] = field(default_factory=list)


def request_answers(viewed: Viewed, wanted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(life, number, answer) of each, in this order; of (life, number) in `wanted`."""
    timeline = Timeline(keep_spans=True)
    told = {number: _Told(Company(number)) for _, number in wanted}
    for life in viewed.run.lives:
        _pass(life, timeline, told)
    contents, reason = NOT_ASKED_FOR
    for life_number, number in wanted:
        span, it = timeline.spans.get(number), told[number]
        if span is not None:
            answer = told_of(viewed, life_number, span, it.lines, it.company)
            yield life_number, number, {**answer, "contents": contents, "contents_reason": reason}


def _pass(life: Life, timeline: Timeline, told: dict[int, _Told]) -> None:
    planned: deque[Entry] = deque(maxlen=2)  # the next step may have been planned before this one failed
    for entry in life.entries():
        timeline.apply(entry)
        about = concerned(entry)
        before = tuple(planned) if isinstance(entry.event, StepFailed) else ()
        about.update(*map(concerned, before))
        for number in about:
            it = told.get(number)
            if it is not None and len(it.lines) <= MAX_STORY_LINES:
                lines = story_in(life, (*before, entry), number)
                it.lines += [line for line in lines if line.sequence == entry.sequence]
                it.company.watch((entry,))
        if entry.decisions and isinstance(entry.decisions[-1], StepPlanned):
            planned.append(entry)


def concerned(entry: Entry) -> set[int]:
    """Numbers of the requests that the entry says something about."""
    found: set[int] = set()
    for record in (entry.event, *entry.decisions):
        match record:
            case StepPlanned() | TokensEmitted():
                found.update(row[0] for row in record.rows)
            case StepCompleted():
                found.update(int(row[0]) for row in record.emitted)
            case ExecutorRestarted():
                found.update(int(row[0]) for row in (*record.handed_over, *record.lost))
                found.update(record.blamed)
            case KVMismatch():
                found.update((record.writer, record.request, *record.readers))
            case RequestPreempted():
                found.update((record.request, record.for_request))
            case _:
                found.add(int(getattr(record, "request", -1)))
    found.discard(-1)
    return found
