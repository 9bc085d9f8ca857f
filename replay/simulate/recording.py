"""A simulation's recording, written by the engine's own recorder: `check`, `show` and the viewer take it.

An engine's recorder loses entries, and says so, rather than make the engine wait; a simulation waits for it.
"""

from pathlib import Path
from time import sleep

from engine.clock import Clock
from engine.core.limits import MAX_RECORD_QUEUE_ENTRIES, Limits
from engine.core.vocabulary import Entry
from recorder.header import Header
from recorder.writer import Recorder
from replay.simulate.step_cost import StepCost

_SALT = b"simulated-salt--"
_SEGMENT_BYTES = 64 << 20
_MAX_BEHIND = MAX_RECORD_QUEUE_ENTRIES // 2


class SimulatedRecording:
    """Raises RecordingUnwritable when the folder cannot be written."""

    def __init__(self, directory: Path, header: Header, clock: Clock) -> None:
        self._recorder = Recorder(
            directory, header, clock, record_content=False, max_segment_bytes=_SEGMENT_BYTES, sync_interval_ms=1_000
        )
        self._num_entries = 0

    def read(self, entry: Entry) -> None:
        self._recorder.record(entry)
        self._num_entries += 1
        if self._num_entries % 1_024 == 0:
            while self._num_entries - self._recorder.num_entries - self._recorder.num_gap_entries > _MAX_BEHIND:
                sleep(0.01)

    def close(self) -> None:
        self._recorder.close("the simulation is over")


def simulated_header(limits: Limits, cost: StepCost, trace: str) -> Header:
    """Of a trace's simulation: no model stood behind it."""
    return Header(
        salt=_SALT,
        limits=limits.to_dict(),
        config={"model": "simulated", "trace": trace, "step_cost_ns": cost.as_flags()},
        environment={"numerics_class": "simulated", "backend": "simulated", "model": "simulated"},
    )
