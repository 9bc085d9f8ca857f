"""What the live reading of the stream costs: `Timeline.apply` per entry, as the daemon does it for /metrics."""

import statistics

from engine.clock import SystemClock
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from recorder.timeline import Timeline
from tests.recorder.samples import step_entry

NUM_ENTRIES = 2_000
FIRST_REQUEST = 1_000  # as step_entry numbers its rows


def measure_apply_us(num_rows: int) -> float:
    """Median µs of one step's entry with so many decoding requests."""
    clock, timeline = SystemClock(), Timeline(Limits(num_kv_blocks=100_000))
    for number in range(num_rows):
        request = FIRST_REQUEST + number
        arrived = RequestArrived(request, str(request), "t", 0, 0, 300, 100, (), SamplingParams())
        timeline.apply(Entry(number, number, arrived, ()))
    costs: list[int] = []
    for sequence in range(num_rows, num_rows + NUM_ENTRIES):
        entry = step_entry(sequence, num_rows)
        before = clock.now_ns()
        timeline.apply(entry)
        costs.append(clock.now_ns() - before)
    return statistics.median(costs) / 1_000


def report() -> list[str]:
    lines = ["timeline cost: spans, gauges and totals from one step's entry"]
    for num_rows in (1, 16, 64, 256):
        cost_us = measure_apply_us(num_rows)
        lines.append(f"  {num_rows:4d} rows   {cost_us:7.2f} µs per entry   {cost_us / num_rows:5.2f} µs per row")
    return lines
