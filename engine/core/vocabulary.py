"""The kind numbers of all records, and the step from named tuples to positional arrays and back.

The same arrays lie in a recording's frames and travel between the processes. A kind number is never used again for
another meaning. Reading tolerates a newer writer: fields beyond those known here are dropped, and an unknown kind is
kept as `UnknownRecord`; a record from an older writer may lack only fields that have defaults.
"""

from typing import Any, NamedTuple

from engine.core import decisions, events
from engine.core.decisions import Decision
from engine.core.events import Event
from engine.core.sampling_params import SamplingParams


class UnknownRecord(NamedTuple):
    """A record of a kind that this version does not know."""

    kind: int
    fields: tuple[Any, ...]


class RecordingGap(NamedTuple):
    """Written by the recorder in place of entries that it could not keep: a gap is never silent."""

    first_sequence: int
    num_entries: int
    cause: str


class RecordingClosed(NamedTuple):
    """The last entry of a recording that was shut in order."""

    cause: str


class CoreKeyframe(NamedTuple):
    """The core's whole state, between the entry before and the entry whose sequence it bears.

    num_steps   planned until then
    state       as `keyframes/layout.py` says; None for a keyframe of which only the place matters
    """

    num_steps: int
    state: Any


Record = Event | Decision | RecordingGap | RecordingClosed | CoreKeyframe | UnknownRecord


class Entry(NamedTuple):
    """One turn of the loop: an event, the time it was handled, and what the core decided on it.

    sequence   0, 1, 2 … without a hole in one engine process
    now_ns     monotonic time, the only clock reading the core was given
    event      an Event, or a notice of the recorder (RecordingGap, RecordingClosed) or its CoreKeyframe
    """

    sequence: int
    now_ns: int
    event: Event | RecordingGap | RecordingClosed | CoreKeyframe | UnknownRecord
    decisions: tuple[Decision | UnknownRecord, ...]


KINDS: dict[int, type[Any]] = {
    1: events.RequestArrived,
    2: events.RequestCancelled,
    3: events.StepCompleted,
    4: events.StepFailed,
    5: events.DrainRequested,
    6: events.ExecutorRestarted,
    7: events.PolicyChanged,
    8: events.TimerFired,
    9: events.KVMismatch,
    10: events.AuditCompleted,
    11: events.StepLaunched,
    101: decisions.RequestRejected,
    102: decisions.RequestDeferred,
    103: decisions.RequestAdmitted,
    104: decisions.RequestPreempted,
    105: decisions.StepPlanned,
    106: decisions.TokensEmitted,
    107: decisions.RequestFinished,
    108: decisions.StarvationSeen,
    109: decisions.RequestDemoted,
    110: decisions.ThrashingBegan,
    111: decisions.ThrashingEnded,
    112: decisions.AdmissionThrottled,
    113: decisions.PrefixIndexDropped,
    201: RecordingGap,
    202: RecordingClosed,
    203: CoreKeyframe,
}
KIND_OF: dict[type[Any], int] = {record_type: kind for kind, record_type in KINDS.items()}


def to_array(record: Any) -> tuple[Any, ...]:
    """(kind, field, field …), ready for msgpack."""
    if type(record) is UnknownRecord:
        return (record.kind, *record.fields)
    return (KIND_OF[type(record)], *record)


def from_array(array: tuple[Any, ...]) -> Any:
    """The record in `array`, whose nested arrays must be tuples (msgpack's use_list=False)."""
    record_type = KINDS.get(array[0])
    if record_type is None:
        return UnknownRecord(array[0], tuple(array[1:]))
    record = record_type(*array[1 : 1 + len(record_type._fields)])
    if record_type is events.RequestArrived:
        sampling = record.sampling[: len(SamplingParams._fields)]
        return record._replace(sampling=SamplingParams(*sampling))
    return record


def entry_to_array(entry: Entry) -> tuple[Any, ...]:
    """(sequence, now_ns, event, (decision …)) with each record as an array."""
    return (
        entry.sequence,
        entry.now_ns,
        to_array(entry.event),
        tuple([to_array(decision) for decision in entry.decisions]),
    )


def entry_from_array(array: tuple[Any, ...]) -> Entry:
    return Entry(array[0], array[1], from_array(array[2]), tuple([from_array(item) for item in array[3]]))
