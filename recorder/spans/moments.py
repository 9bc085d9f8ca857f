"""What a trace viewer draws, told in order: requests opened and closed, stretches of their lives, steps, gauges.

Times are monotonic nanoseconds. `telling.py` makes them from entries; each trace format writes them in its own way.
"""

from typing import Any, NamedTuple

from engine.core.events import RequestArrived
from recorder.request_span import RequestSpan

QUEUED, PREFILL, DECODE, PREEMPTED, SWAPPED = "queued", "prefill chunk", "decode", "preempted", "swapped"
HANDED_OVER = "handed over"  # from the death of one engine to the admission by the next


class Opened(NamedTuple):
    """A request came; `at_ns` is its arrival, `sequence` the entry that tells of it."""

    request: int
    at_ns: int
    arrived: RequestArrived
    sequence: int


class Closed(NamedTuple):
    """It ended, was refused, or the recording ends (then `span.outcome` is ""); `sequence` is the entry that tells."""

    request: int
    at_ns: int
    span: RequestSpan
    sequence: int


class Began(NamedTuple):
    """A stretch of a request's life: one of the names above; a request has at most one at a time.

    flow    of a preemption: a number that the beneficiary's `Noted` bears too; else 0
    chain   of a preemption: a number shared by a cascade; else 0
    """

    request: int
    name: str
    at_ns: int
    values: dict[str, Any]
    flow: int = 0
    chain: int = 0


class Ended(NamedTuple):
    """The request's stretch is over."""

    request: int
    name: str
    at_ns: int
    values: dict[str, Any]


class StepRan(NamedTuple):
    """`ended_ns` is when its result was handled; phase times are the executor's, `error` its failure."""

    step: int
    planned_ns: int
    ended_ns: int
    num_rows: int
    num_tokens: int
    swap_ns: int = 0
    execute_ns: int = 0
    sample_ns: int = 0
    error: str = ""


class Counted(NamedTuple):
    """Gauges that have another value from now on."""

    at_ns: int
    values: dict[str, int]


class Noted(NamedTuple):
    """A moment of one request, or with `request` -1 of the whole.

    flow   the preemption that this is the other end of; else 0
    """

    name: str
    at_ns: int
    request: int
    values: dict[str, Any]
    flow: int = 0


Moment = Opened | Closed | Began | Ended | StepRan | Counted | Noted
GAUGES = ("running", "waiting", "free blocks", "token budget used", "step time us")
