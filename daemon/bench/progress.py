"""A bar on a terminal's stderr while requests are under way; nothing where nobody would see it."""

import sys
from types import TracebackType

from engine.clock import Clock

_WIDTH = 30
_REFRESH_NS = 100_000_000


class ProgressBar:
    """`with ProgressBar("W2 A 1/3", 64, clock) as bar: bar.advance()`; the line is wiped at the end."""

    def __init__(self, label: str, total: int, clock: Clock) -> None:
        self._label = label
        self._total = total
        self._clock = clock
        self._num_done = 0
        self._is_shown = sys.stderr.isatty()
        self._started_ns = clock.now_ns()
        self._shown_ns = 0

    def advance(self) -> None:
        """One more is done."""
        self._num_done += 1
        now_ns = self._clock.now_ns()
        if now_ns - self._shown_ns >= _REFRESH_NS:
            self._shown_ns = now_ns
            self._show(now_ns)

    def _show(self, now_ns: int) -> None:
        filled = _WIDTH * self._num_done // max(1, self._total)
        bar = "█" * filled + "·" * (_WIDTH - filled)
        seconds = (now_ns - self._started_ns) / 1e9
        self._write(f"\r\x1b[K{self._label}  {bar}  {self._num_done} of {self._total}, {seconds:.0f} s")

    def _write(self, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(text)
            sys.stderr.flush()

    def __enter__(self) -> "ProgressBar":
        self._show(self._started_ns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("\r\x1b[K")
