"""What is worth a mark on a timeline: faults, interventions, changes of the rules."""

from typing import Any

from engine.core.decisions import AdmissionThrottled, RequestDemoted, StarvationSeen, ThrashingBegan, ThrashingEnded
from engine.core.events import (
    AuditCompleted,
    DrainRequested,
    ExecutorRestarted,
    KVMismatch,
    PolicyChanged,
    StepFailed,
)
from engine.core.vocabulary import RecordingGap
from replay.index.moment import Moment
from replay.index.sink import Sink
from replay.transcript import describe

_KINDS: dict[type[Any], str] = {
    ThrashingBegan: "thrashing",
    AdmissionThrottled: "throttled",
    StarvationSeen: "starvation",
    RequestDemoted: "demoted",
    PolicyChanged: "policy",
    KVMismatch: "mismatch",
    AuditCompleted: "audit",
    ExecutorRestarted: "restart",
    DrainRequested: "drain",
    StepFailed: "error",
    RecordingGap: "gap",
}


def tell_mark(sink: Sink, moment: Moment, record: Any) -> None:
    """Of an event or a decision, if it is one of those."""
    kind = _KINDS.get(type(record))
    if kind is not None:
        until_ns = None if kind == "thrashing" else moment.now_ns
        place = (moment.life, moment.sequence, moment.now_ns, until_ns, moment.step)
        sink.add("marks", *place, kind, getattr(record, "request", -1), describe(record))
    elif type(record) is ThrashingEnded:
        sink.end_thrashing(moment.life, moment.now_ns)
