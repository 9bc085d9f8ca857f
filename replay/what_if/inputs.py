"""What came from outside in a recording, and when each of it was there to be handled.

While a step is executed the engine does not look into its inbox, so an event handled at a step's end came at some time
during it. An arrival names when the daemon had read it; what it then takes to the engine is learned from the arrivals
that found the engine idle. Of other events half of the step is as good a guess as any.
"""

from collections.abc import Sequence
from statistics import median_low
from typing import NamedTuple

from engine.core.decisions import RequestFinished
from engine.core.events import (
    DrainRequested,
    Event,
    ExecutorRestarted,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
)
from engine.core.vocabulary import Entry

_FROM_OUTSIDE = (RequestArrived, RequestCancelled, PolicyChanged, DrainRequested, ExecutorRestarted)


class Input(NamedTuple):
    """An event from outside, and when it was there to be handled."""

    at_ns: int
    event: Event


class Handled(NamedTuple):
    """An input as recorded: when it was handled, and since when a step had been under way; -1: the engine was idle."""

    now_ns: int
    step_began_ns: int
    event: Event


def is_input(entry: Entry) -> bool:
    """It came from outside. A cancel that came too late did not count: its client had the whole answer."""
    if isinstance(entry.event, RequestCancelled):
        return any(isinstance(decision, RequestFinished) for decision in entry.decisions)
    return isinstance(entry.event, _FROM_OUTSIDE)


def placed(handled: Sequence[Handled]) -> list[Input]:
    """Each at the time at which it was there, times not falling."""
    transit_ns = _transit_ns(handled)
    inputs: list[Input] = []
    last_ns = 0
    for now_ns, step_began_ns, event in handled:
        at_ns = now_ns
        if step_began_ns >= 0:
            guess_ns = (step_began_ns + now_ns) // 2
            if isinstance(event, RequestArrived):
                guess_ns = event.arrival_ns + transit_ns
            at_ns = min(max(guess_ns, step_began_ns + 1), now_ns)
        last_ns = max(last_ns, at_ns)
        inputs.append(Input(last_ns, event))
    return inputs


def _transit_ns(handled: Sequence[Handled]) -> int:
    """From the daemon's reading a request to the core's handling it, when nothing is in the way."""
    waits = [
        (step_began_ns < 0, now_ns - event.arrival_ns)
        for now_ns, step_began_ns, event in handled
        if isinstance(event, RequestArrived)
    ]
    idle = [wait_ns for was_idle, wait_ns in waits if was_idle]
    return max(0, median_low(idle) if idle else min([wait_ns for _, wait_ns in waits], default=0))
