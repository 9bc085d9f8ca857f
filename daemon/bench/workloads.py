"""What is asked of a server, and when: the workloads W1 to W4 as lengths and arrivals. It knows no words and no server.

All of it is drawn from the seed, lengths apart from arrivals: another rate or number of requests changes no length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple

from daemon.bench.draws import Draws, draws_for

SHARED_TOKENS = 512  # W4: the system prompt in front of every request


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many clients, each sending its next request when the one before has ended."""

    num_clients: int
    num_requests: int

    def __str__(self) -> str:
        return f"closed loop, {_plural(self.num_clients, 'client')}, {_plural(self.num_requests, 'request')}"


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Arrivals of a Poisson process, whatever the server makes of them.

    rate           mean requests per second
    duration_s     arrivals end after it
    num_requests   instead of a duration: so many arrivals
    """

    rate: float
    duration_s: float | None = 60.0
    num_requests: int | None = None

    def __str__(self) -> str:
        until = f"for {self.duration_s:g} s" if self.num_requests is None else _plural(self.num_requests, "request")
        return f"open loop, Poisson, {self.rate:g} requests/s, {until}"


@dataclass(frozen=True, slots=True)
class TraceTimes:
    """Arrivals at given times, the last one `span_s` after the first, whatever the server makes of them."""

    num_requests: int
    span_s: float

    def __str__(self) -> str:
        return f"open loop, the trace's own times, {_plural(self.num_requests, 'request')} in {self.span_s:,.1f} s"


Load = ClosedLoop | OpenLoop | TraceTimes


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """
    num_prompt_tokens   the shared ones included
    num_output_tokens   max_tokens; reached, unless the server ends the answer before
    due_s               after the start; None in a closed loop: whenever a client is free
    """

    index: int
    kind: str
    num_prompt_tokens: int
    num_output_tokens: int
    due_s: float | None


@dataclass(frozen=True, slots=True)
class Workload:
    """
    seed                what its lengths and arrivals were drawn from
    num_shared_tokens   all prompts begin with the same so many tokens
    """

    name: str
    seed: int
    load: Load
    num_shared_tokens: int
    requests: tuple[PlannedRequest, ...]


def plan_workload(name: str, seed: int, load: Load | None = None) -> Workload:
    """The workload `name`, a key of SHAPES, with its own load or another."""
    shape = SHAPES[name]
    load = load or shape.load
    assert not isinstance(load, TraceTimes), "a trace brings its own requests"
    lengths = draws_for("lengths", name, seed)
    dues: list[float | None]
    dues = [None] * load.num_requests if isinstance(load, ClosedLoop) else [*_arrivals(name, seed, load)]
    requests = tuple(PlannedRequest(index, *shape.draw(lengths), due) for index, due in enumerate(dues))
    return Workload(name, seed, load, shape.num_shared_tokens, requests)


def _arrivals(name: str, seed: int, load: OpenLoop) -> list[float]:
    draws = draws_for("arrivals", name, seed)
    time_s, times = 0.0, list[float]()
    for _ in islice(count(), load.num_requests):
        time_s += draws.expovariate(load.rate)
        if load.num_requests is None and load.duration_s is not None and time_s >= load.duration_s:
            break
        times.append(time_s)
    return times


class Lengths(NamedTuple):
    kind: str
    num_prompt_tokens: int
    num_output_tokens: int


def _single(draws: Draws) -> Lengths:
    return Lengths("single", 128, 128)


def _skewed(draws: Draws) -> Lengths:
    """Most answers are short, a few are long: what a static batch waits for."""
    low, high = draws.choices(((16, 48), (48, 128), (128, 256)), (60, 25, 15))[0]
    return Lengths("chat", draws.randint(32, 256), draws.randint(low, high))


def _mixed(draws: Draws) -> Lengths:
    if draws.random() < 0.08:
        return Lengths("long", 1000, 32)
    return Lengths("short", draws.randint(32, 128), draws.randint(16, 96))


def _shared(draws: Draws) -> Lengths:
    return Lengths("shared", SHARED_TOKENS + draws.randint(32, 64), 48)


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload before it is drawn: `meaning` is its line in --help, `load` the one it is defined with."""

    meaning: str
    draw: Callable[[Draws], Lengths]
    load: Load
    num_shared_tokens: int = 0


SHAPES = {
    "W1": Shape("128 tokens in, 128 out", _single, ClosedLoop(1, 5)),
    "W2": Shape("32-256 tokens in, 16-256 out, most answers short", _skewed, ClosedLoop(16, 64)),
    "W3": Shape("short chats and 8 % prompts of 1,000 tokens", _mixed, OpenLoop(4.5)),
    "W4": Shape("512 shared tokens before each prompt, 48 out", _shared, ClosedLoop(16, 32), SHARED_TOKENS),
}


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
