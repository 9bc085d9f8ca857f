"""The clock interface: the only place that reads time. Replay and tests use the manual clock."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ns(self) -> int:
        """Monotonic nanoseconds; comparable between processes of one machine and boot."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC: for headers and people, never for decisions."""
        ...


class SystemClock:
    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


class ManualClock:
    """Stands still until it is told to go on."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def wall_ns(self) -> int:
        return self._now_ns

    def advance(self, nanoseconds: int) -> None:
        self._now_ns += nanoseconds
