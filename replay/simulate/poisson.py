"""Arrival times for a trace that has none: a Poisson process, drawn from a seed.

Each gap comes from a digest of the seed and the request's place, so that equal arguments give equal times anywhere.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from replay.simulate.arrivals import NS_PER_S, Arrival

DEFAULT_RATE = 1.0


def at_rate(arrivals: Iterable[Arrival], rate: float, seed: int) -> Iterator[Arrival]:
    """The same requests in the same order, `rate` a second on average, the first one at 0."""
    at_s = 0.0
    for number, arrival in enumerate(arrivals):
        yield replace(arrival, at_ns=int(at_s * NS_PER_S))
        at_s += -math.log(_draw(seed, number)) / rate


def _draw(seed: int, number: int) -> float:
    """Above 0, up to 1."""
    digest = hashlib.blake2b(b"gap %d %d" % (seed, number), digest_size=8).digest()
    return (int.from_bytes(digest, "little") + 1) / (1 << 64)
