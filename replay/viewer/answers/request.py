"""One request: what `reprise show` says of it, its slices, what preempted it or was preempted for it, its neighbours.

Contents are read only when they are asked for, and each reading leaves an audit line.
"""

import shlex
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.core.decisions import StepPlanned
from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry
from recorder.request_span import RequestSpan
from recorder.timeline import Timeline
from replay.figures import request_values
from replay.lives import Life, Run
from replay.rendering import record_as_values
from replay.request_story import Line, story_in
from replay.viewer.answers.contents import NOT_ASKED_FOR, contents_of
from replay.viewer.answers.waits import MAX_WAITS, waits
from replay.viewer.entries_of_request import entries_of_request
from replay.viewer.errors import BadQuestion
from replay.viewer.parameters import Parameters
from replay.viewer.rows import name_of_request
from replay.viewer.viewed import Viewed

MAX_NEIGHBOURS = 500
MAX_STORY_LINES = 20_000
_SLICES = """
SELECT kind, from_ns - :opened AS from_ns, to_ns - :opened AS to_ns, from_step, to_step, tokens, detail, is_open
FROM slices WHERE life = :life AND request = :request ORDER BY from_ns, id
"""
_PREEMPTIONS = """
SELECT sequence, now_ns - :opened AS now_ns, step, victim, beneficiary, reason, mode, tokens_lost, blocks_freed, chain,
       chain_length
FROM preemptions WHERE life = :life AND (victim = :request OR beneficiary = :request) ORDER BY sequence, at
"""


class Neighbour(NamedTuple):
    """steps: those whose batch held both; first_step, last_step: of them."""

    request: int
    steps: int
    first_step: int
    last_step: int


def request(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """Raises BadQuestion where no such request arrived."""
    life, number = asked.integer("life", 1), asked.integer("number")
    viewed.opened_ns(life)
    run = viewed.run
    company = Company(number)
    timeline = Timeline(keep_spans=True)
    told: list[Line] = []
    for each_number, each in enumerate(run.lives, 1):
        entries = list(entries_of_request(viewed, each_number, each, number))
        told += story_in(each, entries, number)
        company.watch(entries)
        for entry in entries:
            timeline.apply(entry)
    span = timeline.spans.get(number)
    if span is None:
        raise BadQuestion(f"no request {number} arrived in this recording", "number", 404)
    found, reason = contents_of(run.lives[:life], number) if asked.integer("contents", 0, 0, 1) else NOT_ASKED_FOR
    return {**told_of(viewed, life, span, told, company), "contents": found, "contents_reason": reason}


def told_of(viewed: Viewed, life: int, span: RequestSpan, told: list[Line], company: "Company") -> dict[str, Any]:
    """All but the contents.

    story_steps   of each line of the story the step that was planned then, or next; None behind the last
    """
    opened_ns, number = viewed.opened_ns(life), span.request
    values = {"life": life, "opened": opened_ns, "request": number}
    story = told[:MAX_STORY_LINES]
    with viewed.database() as database:
        slices = [dict(row) for row in database.execute(_SLICES, values)]
        preemptions = [dict(row) for row in database.execute(_PREEMPTIONS, values)]
        names = {it.request: name_of_request(database, it.request) for it in company.neighbours()}
        waited = waits(database, life, opened_ns, number)
        steps = _steps_of(database, life, story)
    return {
        "request": {**request_values(span), "tenant": span.tenant, "priority": span.priority},
        "arrived": record_as_values(company.arrived),
        "arrival_ns": span.arrival_ns - opened_ns,
        "token_times_ns": [at - opened_ns for at in span.token_times_ns or ()],
        "chunks": [list(chunk) for chunk in span.chunks or ()],
        "waits": waited[:MAX_WAITS],
        "story": [line._asdict() for line in story],
        "story_steps": steps,
        "slices": slices,
        "preemptions": preemptions,
        "neighbours": [{**it._asdict(), "request_id": names[it.request]} for it in company.neighbours()],
        "is_cut": any(
            (len(told) > MAX_STORY_LINES, len(company.others) > MAX_NEIGHBOURS, len(waited) > MAX_WAITS),
        ),
        "command": command(viewed, number),
    }


def _steps_of(database: sqlite3.Connection, life: int, story: list[Line]) -> list[int | None]:
    """One look for each line's entry: between the first and the last lie as many steps as a request may wait."""
    sql = "SELECT step FROM steps WHERE life = ? AND sequence >= ? ORDER BY sequence LIMIT 1"
    found: dict[int, int | None] = {}
    for line in story:
        if line.sequence not in found:
            row = database.execute(sql, (life, line.sequence)).fetchone()
            found[line.sequence] = row[0] if row else None
    return [found[line.sequence] for line in story]


def command(viewed: Viewed, number: int) -> str:
    return f"reprise show {shlex.quote(str(viewed.shown_path))} --request {number}"


class Company:
    """Whose rows stood in the same steps.

    arrived   the request's last arrival
    others    request → steps together, the first and the last
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.arrived: Any = None
        self.others: dict[int, tuple[int, int, int]] = {}

    def watch(self, entries: Iterable[Entry]) -> None:
        """A life's entries about the request, others among them or not."""
        for entry in entries:
            event = entry.event
            if isinstance(event, RequestArrived) and event.request == self._number:
                self.arrived = event
            if entry.decisions and isinstance(entry.decisions[-1], StepPlanned):
                self._note(entry.decisions[-1])

    def _note(self, plan: StepPlanned) -> None:
        requests = [request for request, _start, _count in plan.rows]
        if self._number not in requests:
            return
        for request in requests:
            if request != self._number:
                steps, first, _ = self.others.get(request, (0, plan.step, 0))
                self.others[request] = (steps + 1, first, plan.step)

    def neighbours(self) -> list[Neighbour]:
        """Those of the most steps first."""
        found = [Neighbour(request, *steps) for request, steps in self.others.items()]
        return sorted(found, key=lambda it: (-it.steps, it.request))[:MAX_NEIGHBOURS]


def run_of(viewed: Viewed, life: int) -> tuple[Run, Life]:
    """Raises BadQuestion."""
    run = viewed.run
    if not 1 <= life <= len(run.lives):
        raise BadQuestion(f"life {life} is not in this recording: 1 to {len(run.lives)}", "life", 404)
    return run, run.lives[life - 1]
