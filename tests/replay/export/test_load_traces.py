"""A recording's load goes out as a trace and comes back as the same arrivals; contents only from a vault."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.protocol import Arrive
from replay.__main__ import main
from replay.export.load_traces import made_up_prompt, write_mooncake, write_openai_batch
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.simulate.arrivals import Arrival
from replay.simulate.recorded_trace import recorded_arrivals
from replay.simulate.trace_files import read_trace
from tests.replay.recorded_runs import entries_of, mixed_load, record_run


def without_ids(arrivals: list[Arrival]) -> list[Arrival]:
    return [replace(arrival, prefix_ids=(), body=None, tokens_per_id=0) for arrival in arrivals]


def shared_blocks(arrivals: list[Arrival]) -> list[tuple[int, ...]]:
    """Who shares which piece with whom, whatever the ids are called."""
    numbers: dict[int, int] = {}
    return [tuple(numbers.setdefault(number, len(numbers)) for number in arrival.prefix_ids) for arrival in arrivals]


def test_a_recording_goes_to_mooncake_and_back_as_the_same_arrivals(recording: Path, tmp_path: Path) -> None:
    expected = read_trace(recording)
    with (tmp_path / "trace.jsonl").open("wb") as file:
        write_mooncake(Run.open(recording), file, [])
    arrivals = read_trace(tmp_path / "trace.jsonl")
    assert len(arrivals) == 48
    assert without_ids(arrivals) == without_ids(expected)
    assert shared_blocks(arrivals) == shared_blocks(expected)
    assert {arrival.tokens_per_id for arrival in arrivals} == {4}


def test_what_was_imported_from_a_trace_has_its_arrivals(recording: Path, tmp_path: Path) -> None:
    with (tmp_path / "trace.jsonl").open("wb") as file:
        write_mooncake(Run.open(recording), file, [])
    options = ["--block-size", "4", "--num-kv-blocks", "400", "--max-model-len", "96"]
    assert main(["import", str(tmp_path / "trace.jsonl"), "-o", str(tmp_path / "imported"), *options]) == 0
    assert main(["check", str(tmp_path / "imported")]) == 0
    imported = read_trace(tmp_path / "imported")
    assert without_ids(imported) == without_ids(read_trace(recording))
    assert shared_blocks(imported) == shared_blocks(read_trace(recording))


def test_importing_a_recording_itself_gives_the_same(recording: Path, tmp_path: Path) -> None:
    target = tmp_path / "imported"
    assert main(["import", str(recording), "-o", str(target), "--block-size", "4", "--max-model-len", "96"]) == 0
    assert without_ids(read_trace(target)) == without_ids(read_trace(recording))
    assert main(["import", str(recording), "-o", str(target)]) == 2, "an existing folder is not written into"


def test_pieces_of_several_blocks_share_what_whole_pieces_did(recording: Path) -> None:
    out = io.BytesIO()
    write_mooncake(Run.open(recording), out, [], tokens_per_id=8)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    for row, arrival in zip(rows, recorded_arrivals(Run.open(recording), []), strict=True):
        assert row["block_size"] == 8
        assert len(row["hash_ids"]) == -(-row["input_length"] // 8)
        assert (
            row["hash_ids"][: arrival.num_prompt_tokens // 8]
            == list(arrival.prefix_ids[1::2])[: arrival.num_prompt_tokens // 8]
        )
    with pytest.raises(CannotCompare, match="blocks of 4 tokens make no pieces of 6"):
        write_mooncake(Run.open(recording), io.BytesIO(), [], tokens_per_id=6)


def test_a_batch_holds_the_recorded_prompts_where_a_vault_does(recording: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    with (tmp_path / "batch.jsonl").open("wb") as file:
        assert write_openai_batch(Run.open(recording), file, notes) == {"requests": 48, "made_up_prompts": 0}
    prompts = Run.open(recording).lives[0].contents().prompts
    rows = [json.loads(line) for line in (tmp_path / "batch.jsonl").read_text().splitlines()]
    assert [tuple(row["body"]["prompt"]) for row in rows] == [prompts[n].prompt_token_ids for n in range(48)]
    assert any("holds the contents of 48 requests" in note for note in notes)
    back = read_trace(tmp_path / "batch.jsonl")
    expected = read_trace(recording)
    fields = ("at_ns", "num_prompt_tokens", "num_output_tokens", "max_output_tokens", "name")
    assert [[getattr(a, f) for f in fields] for a in back] == [[getattr(a, f) for f in fields] for a in expected]


def test_without_a_vault_prompts_are_made_up_and_share_the_recorded_prefixes(tmp_path: Path) -> None:
    plain = record_run(tmp_path / "plain", mixed_load(20), record_content=False)
    notes: list[str] = []
    out = io.BytesIO()
    assert write_openai_batch(Run.open(plain), out, notes)["made_up_prompts"] == 20
    assert any("20 prompts are made up" in note for note in notes)
    prompts = [json.loads(line)["body"]["prompt"] for line in out.getvalue().splitlines()]
    arrivals = list(recorded_arrivals(Run.open(plain), []))
    assert [len(prompt) for prompt in prompts] == [arrival.num_prompt_tokens for arrival in arrivals]
    num_shared = 0
    for number, arrival in enumerate(arrivals):
        for other, before in enumerate(arrivals[:number]):
            blocks = zip(arrival.prefix_ids, before.prefix_ids, strict=False)
            num_equal = next((place for place, (a, b) in enumerate(blocks) if a != b), 0)
            num_shared += num_equal
            assert prompts[number][: 4 * num_equal] == prompts[other][: 4 * num_equal]
            assert prompts[number] != prompts[other]
    assert num_shared > 10


def test_a_made_up_prompt_is_as_long_as_it_should_be() -> None:
    arrival = Arrival(0, 10, 1, prefix_ids=(7, 8, 9), tokens_per_id=4)
    assert len(made_up_prompt(arrival)) == 10


@pytest.mark.parametrize("form", ["perfetto", "chrome", "otlp", "jsonl", "mooncake", "openai-batch"])
def test_no_export_holds_contents_but_a_batch_of_a_recording_with_a_vault(form: str, tmp_path: Path) -> None:
    """The canaries are token ids in the order of a prompt."""
    load = mixed_load(12)
    path = record_run(tmp_path / "run", load, record_content=form != "openai-batch")
    assert main(["export", str(path), "--format", form, "-o", str(tmp_path / "out")]) == 0
    data = (tmp_path / "out").read_bytes()
    for _, message in load:
        if isinstance(message, Arrive):
            ids = message.contents.prompt_token_ids
            assert ", ".join(map(str, ids)).encode() not in data
            assert ",".join(map(str, ids)).encode() not in data
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_an_export_says_what_it_wrote_and_what_is_missing(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(recording), "--format", "jsonl", "-o", str(tmp_path / "out"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["entries"], values["is_whole"], values["notes"]) == (len(entries_of(recording)), True, [])
    assert main(["export", str(tmp_path / "nothing"), "--format", "jsonl"]) == 2
    assert not list(tmp_path.glob("*.part"))
    (segment,) = [path for path in recording.iterdir() if path.suffix in (".rpr", ".rps")]
    cut = tmp_path / segment.name
    cut.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    capsys.readouterr()
    assert main(["export", str(cut), "--format", "jsonl", "-o", str(tmp_path / "cut")]) == 0
    assert "note:" in capsys.readouterr().out
