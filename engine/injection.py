"""Faults on purpose: named points at which a step goes wrong, by number or by seed. For tests and simulations only.

    POINT@step=N[:ms=M]              at that step
    POINT@seed=S[:every=K][:ms=M]    at steps drawn from the seed, one in K (50)

    alloc-fails    the step raises: memory cannot be had
    step-slow      it takes M milliseconds longer (500)
    nan-logits     its first emitting row has no finite logits
    client-leaves  the client of its first row leaves during it
    disk-full      from here on the recording cannot be written
    clock-jumps    the clock is M milliseconds further afterwards (10,000)
    executor-dies  the process is gone

What a strike does where, `Effects` says: an engine's are in `injected_faults.py`, a simulation's in the simulator.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from engine.clock import Clock
from engine.core.decisions import StepPlanned
from engine.core.errors import EngineError
from engine.core.events import FinishFlag, StepCompleted

POINTS = {
    "alloc-fails": 0,
    "step-slow": 500,
    "nan-logits": 0,
    "client-leaves": 0,
    "disk-full": 0,
    "clock-jumps": 10_000,
    "executor-dies": 0,
}  # → milliseconds, where it takes any
_EVERY = 50
_NS_PER_MS = 1_000_000


class UnknownInjection(EngineError):
    """The text names no fault point, or says not when."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} injects nothing: give POINT@step=N or POINT@seed=S[:every=K], with [:ms=M] where it takes time; "
            f"points are {', '.join(POINTS)}"
        )


class Injection(NamedTuple):
    """step: -1 where a seed says when. every: one step in so many."""

    point: str
    step: int
    seed: int
    every: int
    ms: int

    def strikes(self, step: int) -> bool:
        if self.step >= 0:
            return step == self.step
        draw = hashlib.blake2b(b"%s %d %d" % (self.point.encode(), self.seed, step), digest_size=8).digest()
        return int.from_bytes(draw, "little") % self.every == 0


def parse_injection(text: str) -> Injection:
    """Raises UnknownInjection."""
    point, _, when = text.partition("@")
    try:
        given = {name: int(value) for name, _, value in (part.partition("=") for part in when.split(":"))}
    except ValueError:
        raise UnknownInjection(text) from None
    is_told = ("step" in given) != ("seed" in given)
    if point not in POINTS or not is_told or given.keys() - {"step", "seed", "every", "ms"} or min(given.values()) < 0:
        raise UnknownInjection(text)
    every = max(1, given.get("every", _EVERY))
    return Injection(point, given.get("step", -1), given.get("seed", 0), every, given.get("ms", POINTS[point]))


class Effects(Protocol):
    """What a strike does to what surrounds the step."""

    def slow_down(self, nanoseconds: int) -> None: ...

    def jump(self, nanoseconds: int) -> None: ...

    def fill_disk(self) -> None: ...

    def leave(self, request: int) -> None: ...

    def die(self) -> None: ...


class Injector:
    """Asked before each step and after it."""

    def __init__(self, injections: Sequence[Injection], effects: Effects) -> None:
        self._injections = injections
        self._effects = effects

    def before(self, plan: StepPlanned) -> None:
        """Raises MemoryError where the step is to fail."""
        for injection in self._striking(plan.step):
            match injection.point:
                case "step-slow":
                    self._effects.slow_down(injection.ms * _NS_PER_MS)
                case "clock-jumps":
                    self._effects.jump(injection.ms * _NS_PER_MS)
                case "disk-full":
                    self._effects.fill_disk()
                case "client-leaves":
                    self._effects.leave(plan.rows[0][0])
                case "executor-dies":
                    self._effects.die()
                case "alloc-fails":
                    raise MemoryError(f"injected: no memory for step {plan.step}")

    def after(self, completed: StepCompleted) -> StepCompleted:
        """The result, a row of it spoilt where that was asked for."""
        if not completed.emitted or not any(each.point == "nan-logits" for each in self._striking(completed.step)):
            return completed
        request, _flag, digest, bits = completed.emitted[0]
        spoilt = (request, str(FinishFlag.ERROR), digest, bits)
        return completed._replace(emitted=(spoilt, *completed.emitted[1:]))

    def _striking(self, step: int) -> list[Injection]:
        return [injection for injection in self._injections if injection.strikes(step)]


class JumpingClock:
    """A clock that can be put forward."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ns = 0

    def now_ns(self) -> int:
        return self._clock.now_ns() + self._ahead_ns

    def wall_ns(self) -> int:
        return self._clock.wall_ns() + self._ahead_ns

    def jump(self, nanoseconds: int) -> None:
        self._ahead_ns += nanoseconds
