"""Whether a prediction is to be trusted: how well the same means predict what was recorded.

The control serves the recorded load under the recorded settings, with step times that do not know what the recorded
steps took. Its TTFT and ITL are laid beside the recorded ones; beyond the bounds the answer is not to be trusted.
"""

from dataclasses import dataclass
from typing import Any

BOUNDS = {"p50": 0.02, "p99": 0.05}
_LATENCIES = {"ttft_ms": "TTFT", "itl_ms": "ITL"}


@dataclass(frozen=True, slots=True)
class Trust:
    """errors   (latency, quantile) → relative error of the control; empty when nothing was observed."""

    errors: dict[tuple[str, str], float]

    @property
    def holds(self) -> bool:
        return bool(self.errors) and all(abs(error) <= BOUNDS[rank] for (_, rank), error in self.errors.items())

    def as_text(self) -> str:
        found: dict[str, list[str]] = {}
        for (latency, rank), error in self.errors.items():
            found.setdefault(_LATENCIES[latency], []).append(f"{rank} {error:+.1%}")
        figures = ", ".join(f"{name} {' and '.join(parts)}" for name, parts in found.items())
        bounds = " and ".join(f"{bound:.0%} at {rank}" for rank, bound in BOUNDS.items())
        if not self.errors:
            return "NOT TO BE TRUSTED: no request got a token when recorded, so there is nothing to measure it by"
        if self.holds:
            return f"trusted: the recorded settings, by the same means, come out at {figures} (within {bounds})"
        return f"NOT TO BE TRUSTED: the recorded settings, by the same means, come out at {figures} (bounds: {bounds})"

    def as_values(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "errors": {f"{latency}_{rank}": error for (latency, rank), error in self.errors.items()},
            "bounds": BOUNDS,
        }


def trust_in(recorded: dict[str, Any], control: dict[str, Any]) -> Trust:
    """From the values of `outcome.py`."""
    errors: dict[tuple[str, str], float] = {}
    for latency in _LATENCIES:
        was, came = recorded[latency], control[latency]
        if was is None or came is None:
            continue
        for rank in BOUNDS:
            if was[rank] > 0:
                errors[latency, rank] = came[rank] / was[rank] - 1
    return Trust(errors)
