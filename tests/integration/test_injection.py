"""An engine that was told to fail does so where it was told, says it in the recording, and serves on."""

import asyncio
from pathlib import Path

from engine.core.decisions import FinishReason, RequestFinished
from engine.core.events import StepFailed
from recorder.reader import Recording
from replay.check import check
from tests.integration.client import completion, connect
from tests.integration.daemon_process import DaemonProcess

ENDED_WITHIN_S = 60


def test_injected_faults_fail_their_requests_and_no_other(tmp_path: Path) -> None:
    async def ask() -> list[int]:
        counts: list[int] = []
        async with connect(daemon.base_url) as client:
            for number in range(3):  # one after the other: the first two meet a fault in their fourth step
                stream = client.send(completion(10, number, output=8))
                await stream.until_end(ENDED_WITHIN_S)
                counts.append(len(stream.token_ids))
        return counts

    with DaemonProcess(tmp_path, inject="nan-logits@step=3,alloc-fails@step=7") as daemon:
        num_tokens = asyncio.run(ask())
        recording = daemon.recording
    assert num_tokens == [0, 0, 8], "an answer that is not streamed fails as a whole"
    entries = list(Recording.open(recording).entries())
    errors = [entry.event.error for entry in entries if isinstance(entry.event, StepFailed)]
    assert errors == ["MemoryError: injected: no memory for step 7"]
    ends = [d.reason for entry in entries for d in entry.decisions if isinstance(d, RequestFinished)]
    assert ends == [FinishReason.FAILED, FinishReason.FAILED, FinishReason.LENGTH]
    assert check(recording).exit_code == 0
