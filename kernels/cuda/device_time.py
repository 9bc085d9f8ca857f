"""How long launches take on a device, by its own events. It must not know what is launched."""

import statistics
from collections.abc import Callable

import torch


def median_seconds(run: Callable[[], object], times: int, before: Callable[[], object] = lambda: None) -> float:
    """Of so many runs, each behind `before`, which is not counted; nor is what comes first, and compiles."""
    run()
    events = [(_event(), _event()) for _ in range(times)]
    for start, end in events:
        before()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(end) for start, end in events)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no types here
