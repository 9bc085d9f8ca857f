"""`reprise load` as it is typed: a trace's requests reach a server at their times, and share the prefixes it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.__main__ import main as reprise
from daemon.bench.prompts import IdRange
from daemon.load.prompts import trace_prompts
from replay.simulate.arrivals import Arrival
from tests.daemon.bench_server import BenchServer

ROWS = [
    {"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [1, 2, 3], "block_size": 8},
    {"timestamp": 40, "input_length": 16, "output_length": 5, "hash_ids": [1, 2], "block_size": 8},
    {"timestamp": 80, "input_length": 17, "output_length": 2, "hash_ids": [1, 4, 5], "block_size": 8},
]


def load(*arguments: str | float | Path) -> int:
    return reprise(["load", *map(str, arguments)])


def trace(folder: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_trace_is_a_table_and_a_json_like_those_of_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, result, answers = trace(tmp_path), tmp_path / "result.json", tmp_path / "answers.jsonl"
    with BenchServer() as server:
        assert load(path, "--against", f"{server.url}/v1", "--json", result, "--save", answers) == 0
    assert sorted(body["max_tokens"] for body in server.bodies) == [2, 3, 5]
    table = capsys.readouterr().out
    assert "trace.jsonl: open loop, the trace's own times, 3 requests in 0.1 s" in table
    values = json.loads(result.read_text())
    assert values["rounds"][0]["figures"]["num_output_tokens"] == 10
    dues = [json.loads(line)["due_ns"] for line in answers.read_text().splitlines()]
    assert dues == [0, 40_000_000, 80_000_000]


def test_times_lengths_and_number_are_scaled(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    arguments = ("--time-scale", 0.5, "--length-scale", 2, "--max-requests", 2, "--prompt", "ids", "--save", answers)
    with BenchServer() as server:
        assert load(trace(tmp_path), "--against", server.url, *arguments) == 0
    assert sorted((body["max_tokens"], len(body["prompt"])) for body in server.bodies) == [(6, 40), (10, 32)]
    assert [json.loads(line)["due_ns"] for line in answers.read_text().splitlines()] == [0, 20_000_000]


def test_the_traces_own_words_are_sent_as_they_are(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Name three rivers."}]
    rows = [
        {"custom_id": "a", "body": {"messages": messages, "max_tokens": 4}, "timestamp": 0},
        {"custom_id": "b", "body": {"prompt": [5, 6, 7], "max_tokens": 3}, "timestamp": 50},
    ]
    with BenchServer() as server:
        assert load(trace(tmp_path, rows), "--against", server.url) == 0
    sent = {body["max_tokens"]: body.get("messages") or body["prompt"] for body in server.bodies}
    assert sent == {4: messages, 3: [5, 6, 7]}


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load(trace(tmp_path), "--against", "nowhere") == 2
    assert "reprise load: 'nowhere' is no address" in capsys.readouterr().err
    assert load(tmp_path / "missing", "--against", "http://localhost:1") == 2
    assert "reprise load:" in capsys.readouterr().err
    assert load(trace(tmp_path), "--against", "http://localhost:1") == 1
    assert "no server answers" in capsys.readouterr().err
    long = [{"timestamp": 0, "input_length": 9_000_000, "output_length": 1}] * 6
    assert load(trace(tmp_path, long), "--against", "http://localhost:1") == 2
    assert "--max-requests" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "ids", "chat"])
def test_equal_pieces_are_equal_words_and_the_rest_is_nobody_elses(form: str) -> None:
    arrivals = [
        Arrival(0, 20, 1, prefix_ids=(1, 2, 3), tokens_per_id=8),
        Arrival(0, 17, 1, prefix_ids=(1, 2), tokens_per_id=8),
    ]
    first, second = [_tokens(prompt.fields) for prompt in trace_prompts(arrivals, form, "1", IdRange())]
    assert (len(first), len(second)) == (20, 17)
    assert first[:16] == second[:16]
    assert first[16] != second[16]
    assert _tokens(trace_prompts(arrivals, form, "2", IdRange())[0].fields) != first


def _tokens(fields: dict[str, Any]) -> list[Any]:
    prompt = fields["prompt"] if "prompt" in fields else fields["messages"][0]["content"]
    return prompt if isinstance(prompt, list) else prompt.replace(".", " .").split()
