"""A loaded recording as the viewer sees it, made once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.clock import SystemClock
from replay.viewer.viewed import Viewed
from tests.replay.recorded_runs import LIMITS, SALT, TimedRunner, mixed_load, record_run

LOADED = replace(LIMITS, num_kv_blocks=20, swap_space_blocks=6, thrash_bound_permille=30)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With preemptions, swaps, cascades, cancels, prefix hits, keyframes and contents."""
    folder = tmp_path_factory.mktemp("viewed") / "run"
    runner = TimedRunner(LOADED.num_kv_blocks, LOADED.block_size, SALT)
    return record_run(folder, mixed_load(60), limits=LOADED, runner=runner, keyframe_every=60)


@pytest.fixture(scope="session")
def index_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture(scope="session")
def viewed(run: Path, index_folder: Path) -> Iterator[Viewed]:
    """Indexed to the end."""
    found = Viewed.open(run, SystemClock(), index_folder)
    found.index.update()
    found.state.state = "ready"
    yield found
    found.states.close()
