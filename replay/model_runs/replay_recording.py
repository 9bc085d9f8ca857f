"""What `execute` computed, as a recording beside the one that it followed: for `view`, `diff` and `check`.

Plans, decisions and times are the recorded ones, for the replay follows them; tokens and digests are those that came
out here. It ends with the first result that differs. It must not know what is compared.
"""

import os
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

from engine.clock import ManualClock, SystemClock
from engine.core.decisions import StepPlanned
from engine.core.events import RequestArrived, StepCompleted
from engine.core.limits import MAX_RECORD_QUEUE_ENTRIES
from engine.core.vocabulary import Entry, RecordingClosed
from engine.execution.interface import Runner, StepResult
from engine.execution.passing_on import PassingOn
from recorder.header import Header
from recorder.vault import Contents
from recorder.writer import Recorder

ORIGIN = "replayed"
_SEGMENT_BYTES = 64 << 20
_MAX_BEHIND = MAX_RECORD_QUEUE_ENTRIES // 2


class ReplayRecording:
    """One life's. Raises RecordingUnwritable when the folder cannot be written."""

    def __init__(self, folder: Path, header: Header, environment: dict[str, Any], contents: Contents) -> None:
        """environment: of what computes here."""
        from recorder.keys import open_ring  # cryptography is for those who keep contents

        self._contents = contents
        self._results: dict[int, StepResult] = {}
        self._num_entries = 0
        header = replace(header, origin=ORIGIN, segment_number=1, first_sequence=0, starts_fresh=True)
        self._recorder = Recorder(
            folder,
            replace(header, environment={**header.environment, **environment}),
            ManualClock(header.created_now_ns),
            record_content=True,
            max_segment_bytes=_SEGMENT_BYTES,
            sync_interval_ms=1_000,
            keys=open_ring(folder.resolve().parent / "keys", SystemClock(), os.environ),
        )

    def listening_to(self, runner: Runner) -> Runner:
        """That runner, its results kept until the recorded ones are read."""
        return _Listener(runner, self._results)

    def read(self, entry: Entry) -> None:
        """The next recorded entry; where it is a step's result the one computed here stands in its place."""
        event = entry.event
        if isinstance(event, RecordingClosed):
            return
        if isinstance(event, RequestArrived) and event.request in self._contents.prompts:
            self._recorder.record_contents(event.request, self._contents.prompts[event.request])
        if isinstance(event, StepCompleted):
            result = self._results.pop(event.step, None)
            if result is None:  # it raised here
                return
            got = result.completed
            event = event._replace(emitted=got.emitted, filled=got.filled, kv_digests=got.kv_digests)
            event = event._replace(prompt_logprobs=got.prompt_logprobs)
            self._recorder.record_tokens(event.step, result.outputs)
        self._recorder.record(entry._replace(event=event))
        self._num_entries += 1
        while self._num_entries - self._recorder.num_entries - self._recorder.num_gap_entries > _MAX_BEHIND:
            sleep(0.01)

    def close(self) -> None:
        self._recorder.close("the replay is over")


class _Listener(PassingOn):
    """`results` by step."""

    def __init__(self, runner: Runner, results: dict[int, StepResult]) -> None:
        super().__init__(runner)
        self._results = results

    def execute(self, plan: StepPlanned) -> StepResult:
        result = self._results[plan.step] = super().execute(plan)
        return result
