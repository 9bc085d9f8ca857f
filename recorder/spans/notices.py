"""Decisions that are moments and no more: the names under which trace viewers show them."""

from typing import Any

from engine.core.decisions import (
    AdmissionThrottled,
    RequestDeferred,
    RequestDemoted,
    StarvationSeen,
    ThrashingBegan,
    ThrashingEnded,
)
from recorder.spans.moments import Noted

_NAMES: dict[type[Any], str] = {
    StarvationSeen: "starvation",
    RequestDemoted: "demoted",
    RequestDeferred: "waits",
    ThrashingBegan: "thrashing began",
    ThrashingEnded: "thrashing ended",
    AdmissionThrottled: "admission throttled",
}


def notice_of(decision: Any, now_ns: int) -> Noted | None:
    """The moment that it is; None for a decision of another sort."""
    name = _NAMES.get(type(decision))
    return Noted(name, now_ns, getattr(decision, "request", -1), plain_fields(decision)) if name else None


def plain_fields(record: Any) -> dict[str, Any]:
    """Its fields but for those that hold many values."""
    return {name: value for name, value in record._asdict().items() if not isinstance(value, tuple)}
