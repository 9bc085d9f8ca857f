"""One loaded recording, made once and read by many tests."""

from pathlib import Path

import pytest

from tests.replay.recorded_runs import mixed_load, record_run


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with preemptions, cancels, prefix hits and refusals, with contents."""
    return record_run(tmp_path_factory.mktemp("runs") / "loaded", mixed_load(48))
