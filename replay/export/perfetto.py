"""A recording as a Perfetto trace (protobuf), for ui.perfetto.dev and `trace_processor`.

Tracks: `steps` with each step's phases inside it, `scheduler` with moments of the whole, a counter for each gauge, and
below each tenant one track for each of its requests. Arrows lead from a preemption to who got the room, and along a
cascade. Times are the recording's monotonic nanoseconds, tied to the wall clock by a snapshot of both.

Of a step's phases only their lengths are recorded: they are drawn one after the other from its planning on.

Source: perfetto.dev, reference of TracePacket, TrackDescriptor and TrackEvent.
"""

from collections.abc import Sequence
from typing import Any, BinaryIO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from recorder.spans.moments import GAUGES, Began, Closed, Counted, Ended, Noted, Opened, StepRan
from recorder.spans.request_values import flat_request_values
from replay.export.telling import Telling
from replay.lives import Run

_SEQUENCE = 1
_MONOTONIC, _REALTIME = 3, 1  # BuiltinClock
_ROOT, _STEPS, _SCHEDULER, _FIRST_GAUGE, _FIRST_TENANT, _FIRST_REQUEST = 1, 2, 3, 16, 1 << 20, 1 << 40


def write_perfetto(run: Run, file: BinaryIO) -> dict[str, int]:
    """Returns what was written, in counts."""
    telling, writer = Telling(), _Writer(file, run)
    for moment in telling.of(run):
        match moment:
            case StepRan():
                writer.step(moment)
            case Opened():
                writer.opened(moment)
            case Closed():
                writer.closed(moment)
            case Began():
                writer.began(moment)
            case Ended():
                writer.slice_end(_FIRST_REQUEST + moment.request, moment.at_ns, moment.values)
            case Counted():
                writer.counted(moment)
            case Noted():
                writer.noted(moment)
    return {"requests": telling.num_requests, "steps": telling.num_steps, "packets": writer.num_packets}


class _Writer:
    """Moments → packets, each a whole `Trace` message: their concatenation is one, too."""

    def __init__(self, file: BinaryIO, run: Run) -> None:
        self._file = file
        self._tenants: dict[str, int] = {}
        self.num_packets = 0
        header = run.recording.header
        packet = TracePacket(sequence_flags=TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
        snapshot = packet.clock_snapshot
        snapshot.primary_trace_clock = _MONOTONIC
        snapshot.clocks.add(clock_id=_MONOTONIC, timestamp=header.created_now_ns)
        snapshot.clocks.add(clock_id=_REALTIME, timestamp=header.created_wall_ns)
        self._put(packet)
        self._track(_ROOT, run.recording.path.resolve().name, 0)
        self._track(_STEPS, "steps", _ROOT)
        self._track(_SCHEDULER, "scheduler", _ROOT)
        for number, gauge in enumerate(GAUGES):
            self._track(_FIRST_GAUGE + number, gauge, _ROOT, is_counter=True)

    def opened(self, moment: Opened) -> None:
        arrived = moment.arrived
        track = _FIRST_REQUEST + moment.request
        self._track(track, f"{arrived.request_id} (#{moment.request})", self._tenant(arrived.tenant))
        values = {
            "tenant": arrived.tenant,
            "priority": arrived.priority,
            "max_output_tokens": arrived.max_output_tokens,
        }
        self.slice_begin(track, "request", moment.at_ns, values)

    def closed(self, moment: Closed) -> None:
        self.slice_end(_FIRST_REQUEST + moment.request, moment.at_ns, flat_request_values(moment.span))

    def began(self, moment: Began) -> None:
        flows = [2 * moment.flow, 2 * moment.chain + 1] if moment.flow else []
        self.slice_begin(_FIRST_REQUEST + moment.request, moment.name, moment.at_ns, moment.values, flows)

    def noted(self, moment: Noted) -> None:
        track = _SCHEDULER if moment.request < 0 else _FIRST_REQUEST + moment.request
        event = TrackEvent(type=TrackEvent.TYPE_INSTANT, track_uuid=track, name=moment.name)
        if moment.flow:
            event.terminating_flow_ids.append(2 * moment.flow)
        self._event(moment.at_ns, event, moment.values)

    def counted(self, moment: Counted) -> None:
        for name, value in moment.values.items():
            track = _FIRST_GAUGE + GAUGES.index(name)
            self._event(
                moment.at_ns, TrackEvent(type=TrackEvent.TYPE_COUNTER, track_uuid=track, counter_value=value), {}
            )

    def step(self, ran: StepRan) -> None:
        values = {"step": ran.step, "num_rows": ran.num_rows, "num_tokens": ran.num_tokens}
        self.slice_begin(_STEPS, "step", ran.planned_ns, values | ({"error": ran.error} if ran.error else {}))
        at_ns = ran.planned_ns
        for name, length_ns in (("swap", ran.swap_ns), ("execute", ran.execute_ns), ("sample", ran.sample_ns)):
            if length_ns:
                self.slice_begin(_STEPS, name, at_ns, {f"{name}_ns": length_ns})
                at_ns = min(at_ns + length_ns, ran.ended_ns)
                self.slice_end(_STEPS, at_ns, {})
        self.slice_end(_STEPS, ran.ended_ns, {})

    def slice_begin(self, track: int, name: str, at_ns: int, values: dict[str, Any], flows: Sequence[int] = ()) -> None:
        event = TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, track_uuid=track, name=name, flow_ids=flows)
        self._event(at_ns, event, values)

    def slice_end(self, track: int, at_ns: int, values: dict[str, Any]) -> None:
        self._event(at_ns, TrackEvent(type=TrackEvent.TYPE_SLICE_END, track_uuid=track), values)

    def _tenant(self, name: str) -> int:
        track = self._tenants.get(name)
        if track is None:
            track = self._tenants[name] = _FIRST_TENANT + len(self._tenants)
            self._track(track, f"tenant {name}" if name else "requests", _ROOT)
        return track

    def _track(self, uuid: int, name: str, parent: int, *, is_counter: bool = False) -> None:
        packet = TracePacket()
        packet.track_descriptor.uuid = uuid
        packet.track_descriptor.name = name
        if parent:
            packet.track_descriptor.parent_uuid = parent
        if is_counter:
            packet.track_descriptor.counter.SetInParent()
        self._put(packet)

    def _event(self, at_ns: int, event: TrackEvent, values: dict[str, Any]) -> None:
        for name, value in values.items():
            annotation = event.debug_annotations.add(name=name)
            if isinstance(value, bool | int):
                annotation.int_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            elif value is not None:
                annotation.string_value = str(value)
        self._put(TracePacket(timestamp=at_ns, timestamp_clock_id=_MONOTONIC, track_event=event))

    def _put(self, packet: TracePacket) -> None:
        packet.trusted_packet_sequence_id = _SEQUENCE
        self.num_packets += 1
        self._file.write(Trace(packet=[packet]).SerializeToString())
