"""`python -m tests.golden.make`: the golden recordings of the current format, made anew where they are not there.

A change of the format keeps those before it and adds one under its own number.
"""

from dataclasses import replace
from pathlib import Path

from engine.clock import SystemClock
from engine.core.decisions import RequestAdmitted
from recorder.format import FORMAT_VERSION, segment_path
from recorder.keys import open_ring
from recorder.sealing import seal
from tests.replay.recorded_runs import (
    LIMITS,
    asking_load,
    changed_decision,
    entries_of,
    mixed_load,
    record_run,
    rewrite,
    stopping_load,
)

GOLDEN = Path(__file__).parent
DIVERGES = GOLDEN / "diverges"
KEYFRAMES = GOLDEN / "keyframes"
ASKED = GOLDEN / "asked"  # about prompts
AHEAD = GOLDEN / "ahead"  # of an engine that plans each step while the one before runs
CHANGED_ADMISSION = 4  # its num_blocks_free is one too many


def make(folder: Path) -> None:
    current = folder / f"format-{FORMAT_VERSION}"
    if not current.exists():
        keys = open_ring(folder / "keys", SystemClock(), {})
        seal(segment_path(record_run(current, mixed_load(10), keys=keys), 1))
    if not (folder / KEYFRAMES.name).exists():
        keys = open_ring(folder / "keys", SystemClock(), {})
        seal(segment_path(record_run(folder / KEYFRAMES.name, mixed_load(10), keys=keys, keyframe_every=20), 1))
    if not (folder / AHEAD.name).exists():
        keys = open_ring(folder / "keys", SystemClock(), {})
        limits = replace(LIMITS, async_scheduling=True)
        load = [*mixed_load(10), *stopping_load(4)]
        run = record_run(folder / AHEAD.name, load, limits=limits, keys=keys, keyframe_every=20)
        seal(segment_path(run, 1))
    if not (folder / ASKED.name).exists():
        keys = open_ring(folder / "keys", SystemClock(), {})
        run = record_run(folder / ASKED.name, asking_load(12), keys=keys, keyframe_every=20)
        seal(segment_path(run, 1))
    if not (folder / DIVERGES.name).exists():
        entries, _, _ = changed_decision(
            entries_of(current),
            RequestAdmitted,
            lambda it: it._replace(num_blocks_free=it.num_blocks_free + 1),
            occurrence=CHANGED_ADMISSION,
        )
        changed = rewrite(current, folder / DIVERGES.name, lambda _: entries)
        for vault in changed.glob("*.vault"):
            vault.unlink()
        seal(segment_path(changed, 1))


if __name__ == "__main__":
    make(GOLDEN)
