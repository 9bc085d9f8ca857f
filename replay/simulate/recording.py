"""A simulation's recording, written by the engine's own recorder: `check`, `show` and the viewer take it.

An engine's recorder loses entries, and says so, rather than make the engine wait; a simulation waits for it.
"""

from pathlib import Path
from time import sleep

from engine.clock import Clock
from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.freezing import keyframe_of
from engine.core.limits import MAX_RECORD_QUEUE_ENTRIES, Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from recorder.header import Header
from recorder.writer import Recorder
from replay.simulate.step_cost import StepCost

_SALT = b"simulated-salt--"
_SEGMENT_BYTES = 64 << 20
_MAX_BEHIND = MAX_RECORD_QUEUE_ENTRIES // 2


class SimulatedRecording:
    """Raises RecordingUnwritable when the folder cannot be written.

    core   whose entries `read` is given, each before the next: its states become keyframes
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        clock: Clock,
        core: Core | None = None,
        max_segment_bytes: int = _SEGMENT_BYTES,
    ) -> None:
        self._recorder = Recorder(
            directory, header, clock, record_content=False, max_segment_bytes=max_segment_bytes, sync_interval_ms=1_000
        )
        self._core = core
        self._num_entries = 0

    def read(self, entry: Entry) -> None:
        self._recorder.record(entry)
        if self._core is not None and self._recorder.wants_keyframe:
            self._record_keyframe(self._core, entry)
        self._num_entries += 1
        if self._num_entries % 1_024 == 0:
            while self._num_entries - self._recorder.num_entries - self._recorder.num_gap_entries > _MAX_BEHIND:
                sleep(0.01)

    def _record_keyframe(self, core: Core, entry: Entry) -> None:
        try:
            self._recorder.record_keyframe(Entry(entry.sequence + 1, entry.now_ns, keyframe_of(core), ()))
        except KeyframeError:  # an operator's own policy that cannot be frozen: the recording goes without
            self._core = None

    def fill_disk(self) -> None:
        """As if nothing more could be written: what follows is a gap."""
        self._recorder.pause("the disk is full (injected)")

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
