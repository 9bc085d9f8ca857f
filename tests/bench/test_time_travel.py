"""The benchmark of time travel still runs: a small size, no word about its figures."""

from pathlib import Path

import pytest

from tests.bench.time_travel import main


def test_every_kind_of_question_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path), "--steps", "60", "--places", "2"])
    out = capsys.readouterr().out
    assert "index built in" in out
    assert all(f"\n  {kind} " in out for kind in ("goto", "state", "block", "why", "preempted", "next", "back"))
