"""A recording read in every way that there is: what the verbs say, and the files that they write."""

from pathlib import Path

import pytest

from replay.__main__ import main
from replay.export.command import FORMATS

VIEWS: tuple[list[str], ...] = ([], ["--requests"], ["--request", "1"], ["--transcript"], ["--fsck"])


def read_in_every_way(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed; the files lie in `folder`. A verb may refuse, as those do that want contents."""
    folder.mkdir()
    commands = [["show", *view, *as_json] for view in VIEWS for as_json in ([], ["--json"])]
    commands += [["check"], ["check", "--json"], ["execute"], ["isolate", "1"], ["mark", "--reason", "seen"]]
    commands += [["repair", str(folder / "repaired")], ["redact", str(folder / "redacted")]]
    uncompressed = [name for name in FORMATS if name != "parquet"]  # which holds the columns of jsonl
    commands += [["export", "--format", name, "--output", str(folder / name)] for name in uncompressed]
    commands += [["export", "--pytest", str(folder / "test")]]
    codes = {}
    for verb, *arguments in commands:
        codes[verb, *arguments[:2]] = main([verb, str(run), *arguments])
    told = capsys.readouterr()
    assert codes["check",] == codes["show",] == codes["export", "--format", "jsonl"] == 0
    assert {path.name for path in folder.iterdir()} >= {"repaired", "redacted", "jsonl", "chrome", "otlp", "mooncake"}
    return told.out + told.err
