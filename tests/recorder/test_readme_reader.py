"""The reader that the README prints is run as it stands there, over every golden recording."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.core.vocabulary import KINDS
from recorder.reader import Recording
from tests.golden.make import GOLDEN

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    section = README.read_text("utf-8").split("## Reading a recording without us")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert not re.search(r"(engine|recorder|replay)", program), "it uses something of ours"
    path = tmp_path_factory.mktemp("reader") / "reader.py"
    path.write_text(program, "utf-8")
    return path


@pytest.mark.parametrize("segment", sorted(GOLDEN.glob("*/*.rp[rs]")), ids=lambda path: path.parent.name)
def test_it_prints_every_entry(reader: Path, segment: Path) -> None:
    printed = run(reader, segment)
    entries = list(Recording.open(segment).entries(keyframes=True))
    assert len(printed) == len(entries) > 70
    for line, entry in zip(printed, entries, strict=True):
        assert line.startswith(f"{entry.sequence} {entry.now_ns} ('{type(entry.event).__name__}'")
        names = [kind.__name__ for kind in KINDS.values()]
        found = [name for name in re.findall(r"\('(\w+)'", line) if name in names]
        assert found == [type(record).__name__ for record in (entry.event, *entry.decisions)]


def test_it_stops_at_a_torn_tail(reader: Path, tmp_path: Path) -> None:
    data = (GOLDEN / "format-1" / "000001.rpr").read_bytes()
    torn = tmp_path / "000001.rpr"
    torn.write_bytes(data[:-5])
    assert len(run(reader, torn)) == 72
    torn.write_bytes(data[:6000] + b"?" + data[6001:])
    assert 0 < len(run(reader, torn)) < 72


def run(reader: Path, segment: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", reader, segment], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()
