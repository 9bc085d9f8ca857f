"""Whether a prediction is to be trusted: how well the same means predict what was recorded.

Two things are predicted that are known. The control is the recorded load under the recorded settings, from its first
event on: it fails when what came from outside, or what lies between steps, is not understood. And each recorded step's
time is predicted without it, from the others: that fails when times do not follow from shapes. Beyond the bounds the
answer is not to be trusted.

The control has the machine's slow and fast moments where they were, so it is no test of step times. It must, to be as
near as the bounds: a busy engine answers the smallest change of a step with another batch, and the median of a hundred
requests then moves by several percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replay.figures import quantiles
from replay.what_if.recorded_load import StepSample
from replay.what_if.step_times import StepTimes

DISTANCES = (1, 2, 3)  # over which deviations are exchanged: more draws than one, for the last percent is few steps
MANY_STEPS = 20_000  # their last percent is many enough for one draw, and the time is better saved
BOUNDS = {"p50": 0.02, "p99": 0.05}
_NAMES = {"ttft_ms": "TTFT", "itl_ms": "ITL", "step_ms": "steps, each without its own time:"}


@dataclass(frozen=True, slots=True)
class Trust:
    """errors   (latency, quantile) → relative error; empty when nothing was observed."""

    errors: dict[tuple[str, str], float]

    @property
    def holds(self) -> bool:
        return bool(self.errors) and all(abs(error) <= BOUNDS[rank] for (_, rank), error in self.errors.items())

    def as_text(self) -> str:
        if not self.errors:
            return "NOT TO BE TRUSTED: no request got a token when recorded, so there is nothing to measure it by"
        found: dict[str, list[str]] = {}
        for (latency, rank), error in self.errors.items():
            found.setdefault(latency, []).append(f"{rank} {error:+.1%}")
        figures = "; ".join(f"{_NAMES[latency]} {', '.join(parts)}" for latency, parts in found.items())
        bounds = ", ".join(f"{rank} {bound:.0%}" for rank, bound in BOUNDS.items())
        verdict = "trusted" if self.holds else "NOT TO BE TRUSTED"
        return f"{verdict}: what was recorded comes out by the same means with {figures} (bounds: {bounds})"

    def as_values(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "errors": {f"{latency}_{rank}": error for (latency, rank), error in self.errors.items()},
            "bounds": BOUNDS,
        }


def trust_in(
    recorded: dict[str, Any], control: dict[str, Any], samples: Sequence[StepSample], times: StepTimes | None
) -> Trust:
    """From the values of `outcome.py`; `times` are None where steps were executed, not predicted."""
    known, predicted = dict(recorded), dict(control)
    known["step_ms"] = predicted["step_ms"] = None
    if times is not None:
        distances = DISTANCES if len(samples) <= MANY_STEPS else DISTANCES[:1]
        strangers = [times.exchanged(distance) for distance in distances]
        known["step_ms"] = quantiles([sample.total_ns - sample.swap_ns for sample in samples])
        predicted["step_ms"] = quantiles(
            [stranger.of(it.shape, it.began_ns, 0).total_ns for stranger in strangers for it in samples]
        )
    errors: dict[tuple[str, str], float] = {}
    for latency in _NAMES:
        was, came = known[latency], predicted[latency]
        if was is None or came is None:
            continue
        for rank in BOUNDS:
            if was[rank] > 0:
                errors[latency, rank] = came[rank] / was[rank] - 1
    return Trust(errors)
