"""How fast memory can be read just now. Run beside each measurement: decoding reads all weights for every step, so a
figure taken in a slow moment of a shared machine says nothing about the server.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from engine.clock import Clock

_BUFFER_BYTES = 128 << 20  # larger than a last-level cache
_PROBE_NS = 100_000_000  # for each of the two figures


class Bandwidth(NamedTuple):
    """GB/s (10⁹ bytes), the best pass of about 0.1 s.

    one_gb_s   by one thread
    all_gb_s   by one thread on each usable core: machines differ more in this one from moment to moment
    """

    one_gb_s: float
    all_gb_s: float


class BandwidthProbe:
    """Holds its buffer (128 MiB) and its threads, which sleep between two probes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buffer = np.ones(_BUFFER_BYTES // 8, np.int64)
        self._num_threads = len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(self._num_threads)

    def probe(self) -> Bandwidth:
        """About 0.2 s, with all cores busy for the second half."""
        parts = np.array_split(self._buffer, self._num_threads)
        return Bandwidth(self._best_gb_s([self._buffer]), self._best_gb_s(parts))

    def _best_gb_s(self, parts: list[np.ndarray]) -> float:
        started_ns = before_ns = self._clock.now_ns()
        best_ns = 1 << 62
        while before_ns - started_ns < _PROBE_NS:
            list(self._threads.map(_read, parts))
            now_ns = self._clock.now_ns()
            best_ns, before_ns = min(best_ns, now_ns - before_ns), now_ns
        return _BUFFER_BYTES / best_ns


def _read(part: np.ndarray) -> None:
    """Looks at each number; numpy lets other threads run meanwhile."""
    part.max()
