"""One line on a terminal's stderr while a long replay runs; silent where nobody would see it."""

import sys
from types import TracebackType

from engine.clock import Clock, SystemClock

_REFRESH_NS = 100_000_000


class Progress:
    """`with Progress("check", "entries") as progress: progress.at(n)`; the line is wiped at the end.

    total   how many there will be; 0 when that is not known
    """

    def __init__(self, verb: str, unit: str, total: int = 0, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._verb, self._unit, self._total = verb, unit, total
        self._is_shown = sys.stderr.isatty()
        self._started_ns = self._clock.now_ns()
        self._last_ns = self._started_ns

    @property
    def elapsed_ns(self) -> int:
        return self._clock.now_ns() - self._started_ns

    def at(self, count: int) -> None:
        """`count` units are done."""
        if not self._is_shown:
            return
        now_ns = self._clock.now_ns()
        if now_ns - self._last_ns < _REFRESH_NS:
            return
        self._last_ns = now_ns
        of_total = f" of {self._total:,}" if self._total else ""
        rate = count * 1e9 / max(1, now_ns - self._started_ns)
        sys.stderr.write(f"\r\x1b[K{self._verb}: {count:,}{of_total} {self._unit}, {rate:,.0f}/s")
        sys.stderr.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
