"""Contents are kept apart, only on demand, and come back whole or with a notice."""

from pathlib import Path
from typing import Any

import pytest

from engine.core.contents import RequestContents, TokenOutput
from recorder.errors import NoContents
from recorder.reader import Recording
from tests.recorder.samples import record, recorder, step_entry, wait_until_written

PROMPT = RequestContents((1, 70_000, 3), (2,), ((5, -1.5), (9, 0.25)), ("\n\n", "END☃"))


def write(folder: Path, **options: Any) -> Path:
    writer = recorder(folder, **options)
    for request in range(3):
        writer.record_contents(request, PROMPT._replace(prompt_token_ids=(request,) * 5))
    for step in range(40):
        writer.record_tokens(step, tuple([TokenOutput(request, 100 * request + step, -0.5) for request in range(3)]))
        writer.record(step_entry(step, num_rows=3))
        wait_until_written(writer, step + 1)  # so that each is an append of its own
    writer.close("done")
    return folder


def test_prompts_and_tokens_come_back(tmp_path: Path) -> None:
    contents = Recording.open(write(tmp_path / "run", record_content=True)).contents()
    assert contents.prompts == {n: PROMPT._replace(prompt_token_ids=(n,) * 5) for n in range(3)}
    assert contents.tokens[7] == [(0, 7), (1, 107), (2, 207)]
    assert contents.outputs(1) == list(range(100, 140))
    assert contents.outputs(99) == []
    assert (contents.num_missing, contents.notices) == (0, [])


def test_contents_are_not_kept_unless_asked_for(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", record_content=False)
    assert [path.name for path in folder.iterdir()] == ["000001.rpr"]
    with pytest.raises(NoContents, match="--record-content"):
        Recording.open(folder).contents()


def test_no_content_ever_enters_the_stream(tmp_path: Path) -> None:
    """A canary among stop strings: it is in the vault, and not in the segment."""
    folder = write(tmp_path / "run", record_content=True)
    canary = "END☃".encode()
    assert canary in (folder / "000001.vault").read_bytes()
    assert canary not in (folder / "000001.rpr").read_bytes()


def test_each_segment_has_its_own_vault(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", record_content=True, max_segment_bytes=4000)
    assert len(list(folder.glob("*.vault"))) > 1
    assert Recording.open(folder).contents().outputs(2) == list(range(200, 240))


def test_a_torn_vault_yields_what_is_whole_and_a_notice(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", record_content=True)
    path = folder / "000001.vault"
    path.write_bytes(path.read_bytes()[:-5])
    contents = Recording.open(folder).contents()
    assert contents.outputs(0) == list(range(39))
    assert len(contents.notices) == 1
    assert "are lost" in contents.notices[0]


def test_contents_that_find_the_queue_full_are_counted(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run", record_content=True, max_queue_entries=0)
    for request in range(4):
        writer.record_contents(request, PROMPT)
    writer.close("done")
    contents = Recording.open(tmp_path / "run").contents()
    assert contents.prompts == {}
    assert contents.num_missing == 4
    assert "queue was full" in contents.notices[0]


def test_engine_processes_of_a_run_keep_their_steps_apart(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", record_content=True)
    writer = recorder(folder, record_content=True)
    writer.record_tokens(0, (TokenOutput(8, 4, 0.0),))
    writer.close("done")
    first, second = Recording.open(folder).sections
    assert first.contents().tokens[0] == [(0, 0), (1, 100), (2, 200)]
    assert second.contents().tokens == {0: [(8, 4)]}


def test_a_recorder_without_a_vault_takes_no_notice_of_contents(tmp_path: Path) -> None:
    assert [path.name for path in record(tmp_path / "run", []).iterdir()] == ["000001.rpr"]
