"""Whether the viewer keeps up with a recording that is being written: 1,000 steps a second of 64 requests each.

    python -m tests.bench.viewer_live RECORDING --seconds 20   # whose entries are written anew, at that pace

RECORDING as `tests.bench.viewer_server` makes it. Prints how many steps the page's arrays lack behind the recorder, at
samples four times a second, and what the indexing process takes of a core. Exit code 1 when it falls behind: more than
MAX_BEHIND_S of steps are lacking at the end.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from engine.clock import SystemClock
from engine.core.decisions import StepPlanned
from engine.core.vocabulary import Entry
from recorder.reader import Recording
from recorder.writer import Recorder
from replay.viewer.following import Following
from replay.viewer.viewed import Viewed

ENTRIES_PER_S = 1_000
MAX_BEHIND_S = 3.0


class Writing:
    """One entry a millisecond: each ends a step and plans the next. num_steps: planned so far."""

    def __init__(self, recorder: Recorder, entries: Sequence[Entry]) -> None:
        self.num_steps = 0
        self._recorder = recorder
        self._entries = entries

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, entry in enumerate(self._entries):
            self._recorder.record(entry)
            self.num_steps += bool(entry.decisions) and isinstance(entry.decisions[-1], StepPlanned)
            if (wait := began + number / ENTRIES_PER_S - loop.time()) > 0.005:
                await asyncio.sleep(wait)


async def follow(source: Path, seconds: float) -> int:
    recording = Recording.open(source)
    entries = list(islice(recording.entries(), round(seconds * ENTRIES_PER_S)))
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as temporary:
        run, folder = Path(temporary) / "run", Path(temporary) / "index"
        recorder = Recorder(
            run, recording.header, clock, record_content=False, max_segment_bytes=64 << 20, sync_interval_ms=1_000
        )
        writing = Writing(recorder, entries)
        task = asyncio.create_task(writing.run())
        viewed = Viewed.open(run, clock, folder)
        following = Following(viewed, folder)
        await following.start()
        behind = await sampled(viewed, writing, task)
        used = cpu_seconds("replay.viewer.indexing")
        await following.stop()
        viewed.states.close()
        recorder.close("bench over")
    print(f"{writing.num_steps:,} steps in {seconds:.0f} s, {len(behind)} samples; steps behind: ", end="")
    print(f"p50 {sorted(behind)[len(behind) // 2]:,}, at most {max(behind):,}, at the end {behind[-1]:,}")
    print(f"the indexing process used {used / seconds:.0%} of a core")
    return 1 if behind[-1] > MAX_BEHIND_S * ENTRIES_PER_S else 0


async def sampled(viewed: Viewed, writing: Writing, task: "asyncio.Task[None]") -> list[int]:
    found = []
    while not task.done():
        await asyncio.sleep(0.25)
        known = 0
        if viewed.generation:
            with viewed.columns(1) as columns:
                known = len(columns.steps.steps)
        found.append(writing.num_steps - known)
    return found


def cpu_seconds(module: str) -> float:
    """Of this process's children that run the module."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            values = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(values[1]) == os.getpid() and module.encode() in (entry / "cmdline").read_bytes():
                ticks += int(values[11]) + int(values[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args(arguments)
    return asyncio.run(follow(args.recording, args.seconds))


if __name__ == "__main__":
    sys.exit(main())
