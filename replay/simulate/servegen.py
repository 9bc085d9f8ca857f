"""ServeGen's tenants: rates and gap distributions of each by ten minutes, lengths as quantiles by six hours.

The trace holds no requests: they are drawn, each tenant's from a generator of its own, so that equal arguments give
equal arrivals anywhere. Gaps are drawn as the authors fitted them (Gamma or Weibull, shape and scale), and a length
lies between two neighbouring quantiles. Prompt and output lengths are drawn apart.

Source: Xiang et al., ServeGen, 2025; github.com/alibaba/ServeGen.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from random import Random

from replay.simulate.arrivals import NS_PER_S, Arrival

HEADING = "client,window_start_s,rate_rps,gap_cv,arrival_pattern,param1,param2"
WINDOW_S = 600
_Quantiles = dict[str, dict[str, list[int]]]  # window's start in s → input_tokens, output_tokens → 21 quantiles


def read_servegen(lines: Sequence[str], lengths: str, from_s: float, to_s: float, divide_rate: float) -> list[Arrival]:
    """All tenants' arrivals of that part of the day, in order of time, all rates divided alike.

    Raises ValueError or KeyError.
    """
    quantiles: dict[str, _Quantiles] = json.loads(lengths)
    arrivals: list[Arrival] = []
    for line in lines[1:]:
        client, start, _rate, _cv, pattern, shape, scale = line.split(",")
        begin_s = float(start)
        if not pattern or begin_s + WINDOW_S <= from_s or begin_s >= to_s:
            continue
        draws = Random(f"{client}/{start}")
        sizes = _sizes_at(quantiles[client], begin_s)
        for at_s in _times(draws, pattern, float(shape), float(scale) * divide_rate):
            prompt, output = (_between(draws, sizes[name]) for name in ("input_tokens", "output_tokens"))
            arrivals.append(Arrival(int((begin_s + at_s) * NS_PER_S), prompt, output, tenant=client))
    arrivals.sort(key=lambda arrival: arrival.at_ns)
    return arrivals


def _times(draws: Random, pattern: str, shape: float, scale: float) -> Iterator[float]:
    """Seconds into a window."""
    at_s = 0.0
    while True:
        at_s += draws.gammavariate(shape, scale) if pattern == "Gamma" else draws.weibullvariate(scale, shape)
        if at_s >= WINDOW_S:
            return
        yield at_s


def _sizes_at(windows: _Quantiles, at_s: float) -> dict[str, list[int]]:
    """Of the window that `at_s` lies in, or the last one before it that had traffic, or the first."""
    starts = sorted(windows, key=int)
    return windows[starts[max(0, bisect_right([int(start) for start in starts], at_s) - 1)]]


def _between(draws: Random, quantiles: Sequence[int]) -> int:
    place = draws.random() * (len(quantiles) - 1)
    below = int(place)
    return max(1, round(quantiles[below] + (place - below) * (quantiles[below + 1] - quantiles[below])))
