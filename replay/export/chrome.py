"""A recording as Chrome JSON trace events, for chrome://tracing, Perfetto and speedscope: small recordings only.

A process for the steps and the scheduler, one for each tenant with a thread for each request. Times are microseconds
since the recording's opening. Viewers hold all of it in memory; `perfetto.py` is the format for long recordings.

Source: Trace Event Format, Google, 2016.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from recorder.spans.moments import Began, Closed, Counted, Ended, Moment, Noted, Opened, StepRan
from recorder.spans.request_values import flat_request_values
from replay.export.telling import Telling
from replay.lives import Run

_WHOLE, _STEPS, _SCHEDULER = 1, 1, 2  # the first process and its threads
_Event = dict[str, Any]


def write_chrome(run: Run, file: BinaryIO) -> dict[str, int]:
    """Returns what was written, in counts."""
    telling, events, num_events = Telling(), _Events(run.recording.header.created_now_ns), 0
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    for event in events.of(telling.of(run), run.recording.path.resolve().name):
        file.write(b",\n" if num_events else b"")
        file.write(json.dumps(event, separators=(",", ":")).encode())
        num_events += 1
    file.write(b"\n]}\n")
    return {"requests": telling.num_requests, "steps": telling.num_steps, "events": num_events}


class _Events:
    def __init__(self, opened_ns: int) -> None:
        self._opened_ns = opened_ns
        self._tenants: dict[str, int] = {}
        self._process_of: dict[int, int] = {}  # of the requests that live

    def of(self, moments: Iterator[Moment], name: str) -> Iterator[_Event]:
        yield _named("process_name", _WHOLE, 0, name)
        yield _named("thread_name", _WHOLE, _STEPS, "steps")
        yield _named("thread_name", _WHOLE, _SCHEDULER, "scheduler")
        for moment in moments:
            yield from self._moment(moment)

    def _moment(self, moment: Moment) -> Iterator[_Event]:
        match moment:
            case StepRan():
                yield from self._step(moment)
            case Opened():
                yield from self._opened(moment)
            case Closed():
                yield self._of_request("E", moment.request, moment.at_ns, args=flat_request_values(moment.span))
                del self._process_of[moment.request]
            case Began():
                yield self._of_request("B", moment.request, moment.at_ns, name=moment.name, args=moment.values)
                if moment.flow:
                    yield self._flow("s", moment.request, moment.at_ns, moment.flow)
            case Ended():
                yield self._of_request("E", moment.request, moment.at_ns, args=moment.values)
            case Counted():
                for name, value in moment.values.items():
                    yield self._event("C", moment.at_ns, _WHOLE, _STEPS, name=name, args={"value": value})
            case Noted():
                yield from self._noted(moment)

    def _opened(self, moment: Opened) -> Iterator[_Event]:
        arrived = moment.arrived
        process = self._tenants.get(arrived.tenant)
        if process is None:
            process = self._tenants[arrived.tenant] = _WHOLE + 1 + len(self._tenants)
            yield _named("process_name", process, 0, f"tenant {arrived.tenant}" if arrived.tenant else "requests")
        self._process_of[moment.request] = process
        yield _named("thread_name", process, moment.request, f"{arrived.request_id} (#{moment.request})")
        values = {"priority": arrived.priority, "max_output_tokens": arrived.max_output_tokens}
        yield self._of_request("B", moment.request, moment.at_ns, name="request", args=values)

    def _step(self, ran: StepRan) -> Iterator[_Event]:
        values = {"step": ran.step, "num_rows": ran.num_rows, "num_tokens": ran.num_tokens}
        values |= {"swap_ns": ran.swap_ns, "execute_ns": ran.execute_ns, "sample_ns": ran.sample_ns}
        args = values | ({"error": ran.error} if ran.error else {})
        duration_us = (ran.ended_ns - ran.planned_ns) / 1e3
        yield self._event("X", ran.planned_ns, _WHOLE, _STEPS, name="step", dur=duration_us, args=args)

    def _noted(self, moment: Noted) -> Iterator[_Event]:
        if moment.request < 0:
            yield self._event("i", moment.at_ns, _WHOLE, _SCHEDULER, name=moment.name, s="p", args=moment.values)
            return
        yield self._of_request("i", moment.request, moment.at_ns, name=moment.name, s="t", args=moment.values)
        if moment.flow:
            yield self._flow("f", moment.request, moment.at_ns, moment.flow)

    def _flow(self, phase: str, request: int, at_ns: int, flow: int) -> _Event:
        return self._of_request(phase, request, at_ns, name="gives way", cat="preemption", id=flow, bp="e")

    def _of_request(self, phase: str, request: int, at_ns: int, **fields: Any) -> _Event:
        return self._event(phase, at_ns, self._process_of[request], request, **fields)

    def _event(self, phase: str, at_ns: int, process: int, thread: int, **fields: Any) -> _Event:
        return {"ph": phase, "ts": (at_ns - self._opened_ns) / 1e3, "pid": process, "tid": thread, **fields}


def _named(kind: str, process: int, thread: int, name: str) -> _Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
