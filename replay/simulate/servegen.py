"""ServeGen's tenants: rates and gap distributions of each by ten minutes, lengths as quantiles by six hours.

The trace holds no requests: they are drawn, each tenant's from a generator of its own, so that equal arguments give
equal arrivals anywhere. Gaps are drawn as the authors fitted them (Gamma or Weibull, shape and scale), and a length
lies between two neighbouring quantiles. Prompt and output lengths are drawn apart.

Source: Xiang et al., ServeGen, 2025; github.com/alibaba/ServeGen.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from replay.simulate.arrivals import NS_PER_S, Arrival, UnusableTrace
from replay.simulate.trace_lines import TraceText
from replay.simulate.trace_rows import MAX_TOKENS, Row

COLUMNS = frozenset({"client", "windowstarts", "arrivalpattern", "param1", "param2"})
WINDOW_S = 600
MAX_DRAWN = 5_000_000
_MAX_DAY_S = 10_000_000
_MAX_PARAMETER = 1e9
_PATTERNS = ("Gamma", "Weibull")
_Quantiles = dict[str, dict[str, list[int]]]  # window's start in s → input_tokens, output_tokens → 21 quantiles


def read_servegen(
    rows: Iterable[Row], lengths: TraceText, from_s: float, to_s: float, divide_rate: float
) -> list[Arrival]:
    """All tenants' arrivals of that part of the day, in order of time, all rates divided alike.

    Raises UnusableTrace.
    """
    quantiles = _read_lengths(lengths)
    arrivals: list[Arrival] = []
    for row in rows:
        client, start, pattern = row.text("client"), row.text("windowstarts"), row.text("arrivalpattern")
        begin_s = row.whole("windowstarts", 0, _MAX_DAY_S)
        if not pattern or begin_s + WINDOW_S <= from_s or begin_s >= to_s:
            continue
        if pattern not in _PATTERNS:
            row.fail("arrivalpattern", f"must be one of {', '.join(_PATTERNS)}")
        if client not in quantiles:
            row.fail("client", f"is not in {lengths.path}")
        shape, scale = row.positive("param1", _MAX_PARAMETER), row.positive("param2", _MAX_PARAMETER)
        draws = Random(f"{client}/{start}")
        sizes = _sizes_at(quantiles[client], begin_s)
        for at_s in _times(draws, pattern, shape, scale * divide_rate):
            prompt, output = (_between(draws, sizes[name]) for name in ("input_tokens", "output_tokens"))
            arrivals.append(Arrival(int((begin_s + at_s) * NS_PER_S), prompt, output, tenant=client))
            if len(arrivals) > MAX_DRAWN:
                row.fail("param2", f"makes more than {MAX_DRAWN} requests: raise --divide-rate, or cut the day")
    arrivals.sort(key=lambda arrival: arrival.at_ns)
    return arrivals


def _read_lengths(text: TraceText) -> dict[str, _Quantiles]:
    """Raises UnusableTrace."""
    values = text.document()
    if not isinstance(values, dict):
        raise UnusableTrace(f"{text.path} is no JSON object of clients")
    for client, windows in values.items():
        if not isinstance(windows, dict) or not windows or not all(start.isdecimal() for start in windows):
            raise UnusableTrace(f"{text.path}: client {client[:40]} has no windows by their start in seconds")
        for start, sizes in windows.items():
            for name in ("input_tokens", "output_tokens"):
                _check_quantiles(text, f"client {client[:40]}, window {start[:40]}, {name}", sizes, name)
    return values


def _check_quantiles(text: TraceText, place: str, sizes: object, name: str) -> None:
    found = sizes.get(name) if isinstance(sizes, dict) else None
    if not isinstance(found, list) or len(found) < 2:
        raise UnusableTrace(f"{text.path}: {place} is no list of quantiles")
    if not all(type(value) in (int, float) and 0 <= value <= MAX_TOKENS for value in found):
        raise UnusableTrace(f"{text.path}: {place} holds what is no length from 0 to {MAX_TOKENS}")


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
