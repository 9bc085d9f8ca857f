"""The verbs that tend recordings: fsck, repair, mark, keys; what they print and how they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from recorder.format import segment_paths
from recorder.incidents import pins_of
from recorder.keys import KeyRing
from recorder.sealing import seal
from replay.__main__ import main
from tests.recorder.samples import record, step_entry


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = record(tmp_path / "run", [step_entry(n, num_rows=4) for n in range(60)], max_segment_bytes=9000)
    seal(segment_paths(folder)[0])
    return folder


def test_fsck_of_a_sound_recording_ends_with_0(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run), "--fsck"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "fsck: sound"
    assert [line.split()[:2] for line in lines[:-1]] == [[path.name, "sound"] for path in sorted(run.iterdir())]


def test_fsck_names_what_is_damaged_and_ends_with_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment_paths(run)[1]
    path.write_bytes(path.read_bytes()[:-5])
    assert main(["show", str(run), "--fsck", "--json"]) == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["is_sound"] is False
    assert [file["path"] for file in told["files"] if file["faults"]] == [str(path)]
    assert main(["show", str(run), "--fsck"]) == 1
    assert "reprise repair REC OUT" in capsys.readouterr().out


def test_a_repaired_recording_can_be_examined_again(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment_paths(run)[1]
    path.write_bytes(path.read_bytes()[:-5])
    assert main(["repair", str(run), str(tmp_path / "whole")]) == 1
    assert "lost: " in capsys.readouterr().out
    assert main(["repair", str(tmp_path / "whole"), str(tmp_path / "again")]) == 1, "the gap stays told"
    assert main(["repair", str(run), str(tmp_path / "whole")]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_mark_pins_every_segment_of_a_run_with_its_reason(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mark", str(run), "--reason", "customer 4711: wrong answer"]) == 0
    for segment in segment_paths(run):
        (pin,) = pins_of(segment)
        assert (pin.reason, pin.is_automatic) == ("customer 4711: wrong answer", False)
    capsys.readouterr()
    assert main(["show", str(run)]) == 0
    assert "  pinned     customer 4711: wrong answer\n" in capsys.readouterr().out
    assert main(["mark", str(run / "000009.rpr"), "--reason", "x"]) == 2


def test_keys_are_listed_rotated_and_erased(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    master = tmp_path / "master.key"
    master.write_bytes(b"m" * 32)
    ring = KeyRing(tmp_path / "keys", b"m" * 32, SystemClock())
    first = ring.current("ada")
    arguments = ["keys", str(tmp_path), "--key-file", str(master)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.split()[::4] == [first.key_id.hex(), "ada"]
    assert main([*arguments, "--rotate", "ada"]) == 0
    assert len(ring.all()) == 2
    assert main([*arguments, "--erase", "ada"]) == 0
    assert "num erased: 2" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "holds no keys" in capsys.readouterr().err
