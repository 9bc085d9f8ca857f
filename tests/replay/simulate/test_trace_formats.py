"""Each public format is told by its content and read by the names of its fields."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from replay.simulate.arrivals import NS_PER_S, Arrival, Fitting, UnusableTrace, fitted
from replay.simulate.trace_files import read_trace

Told = tuple[float, int, int]  # at_s, prompt, output


def told(arrivals: list[Arrival]) -> list[Told]:
    return [(a.at_ns / NS_PER_S, a.num_prompt_tokens, a.num_output_tokens) for a in arrivals]


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


BURST_GPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,GPT-4,1087,0,1087,API log
"""
BURST_GPT_SESSIONS = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,a,1.5,ChatGPT,472,18,490,Conversation log
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01.017335+00:00,2399,6
"""
VIDUR_TIMES = """arrived_at,num_prefill_tokens,num_decode_tokens
0.5,100,7
2.0,200,8
"""
BAILIAN = [
    {"chat_id": 1, "parent_chat_id": -1, "timestamp": 60.5, "input_length": 40, "output_length": 9, "type": "text",
     "turn": 1, "hash_ids": [90, 91, 92]},
    {"chat_id": 2, "parent_chat_id": 1, "timestamp": 61.5, "input_length": 48, "output_length": 3, "type": "text",
     "turn": 2, "hash_ids": [90, 91, 99]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BURST_GPT, [(0, 472, 18), (40.5, 1087, 0)]),
        (BURST_GPT_SESSIONS, [(0, 472, 18)]),
        (AZURE_2024, [(0, 2162, 5), (1.007405, 2399, 6)]),
        (VIDUR_TIMES, [(0, 100, 7), (1.5, 200, 8)]),
        ("GeneratedTokens,TIMESTAMP,ContextTokens\n6,2023-11-16 18:17:03.9799600,4808\n", [(0, 4808, 6)]),
        (lines(*BAILIAN), [(0, 40, 9), (1, 48, 3)]),
        (lines({"timestamp": 7, "input_length": 3, "output_length": 2}), [(0, 3, 2)]),
        ("\ufeff\n\n" + lines({"input_length": 3, "output_length": 2, "timestamp": 1}), [(0, 3, 2)]),
    ],
)
def test_a_format_is_known_by_its_columns(tmp_path: Path, text: str, expected: list[Told]) -> None:
    assert told(read_trace(written(tmp_path, text))) == expected
    packed = tmp_path / "trace.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert told(read_trace(packed)) == expected


def test_bailian_blocks_are_of_16_tokens_and_shared(tmp_path: Path) -> None:
    first, second = read_trace(written(tmp_path, lines(*BAILIAN)))
    assert (first.tokens_per_id, first.prefix_ids, second.prefix_ids) == (16, (0, 1, 2), (0, 1, 3))


def test_a_batch_has_its_words_and_lengths(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "four" * 10}], "max_tokens": 20}
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "four" * 3}]}]}
    rows = [
        {"custom_id": "a", "url": "/v1/chat/completions", "body": chat, "timestamp": 1500},
        {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": [5, 6, 7], "max_tokens": 9}, "timestamp": 500,
         "output_length": 4},
        {"custom_id": "c", "url": "/v1/chat/completions", "body": parts, "timestamp": 2500},
    ]  # fmt: skip
    arrivals = read_trace(written(tmp_path, lines(*rows)))
    assert told(arrivals) == [(0, 3, 4), (1, 10, 20), (2, 3, 128)]
    assert [(a.name, a.max_output_tokens) for a in arrivals] == [("b", 9), ("a", 20), ("c", 0)]
    assert arrivals[1].body == {"messages": chat["messages"]}


SHARE_GPT = [
    {"id": "x1", "conversations": [
        {"from": "human", "value": "a question, 24 characters"}, {"from": "gpt", "value": "b" * 40}]},
    {"id": "x2", "conversations": []},
    {"id": "x3", "conversations": [{"from": "human", "value": "ünï"}]},
]  # fmt: skip


@pytest.mark.parametrize("text", [json.dumps(SHARE_GPT, indent=1), lines(*SHARE_GPT), json.dumps(SHARE_GPT)])
def test_sharegpt_is_an_array_or_lines_and_arrives_as_a_seed_says(tmp_path: Path, text: str) -> None:
    notes: list[str] = []
    path = written(tmp_path, text)
    arrivals = read_trace(path, notes=notes, rate=2, seed=3)
    assert [(a.num_prompt_tokens, a.num_output_tokens, a.name) for a in arrivals] == [(7, 10, "x1"), (2, 128, "x3")]
    assert arrivals[0].body == {"prompt": "a question, 24 characters"}
    assert notes == [
        "1 conversations hold no question and are left out",
        "it has no times: Poisson arrivals at 2 a second are drawn (seed 3)",
    ]
    assert arrivals == read_trace(path, rate=2, seed=3)
    assert arrivals != read_trace(path, rate=2, seed=4)


def test_an_array_longer_than_a_chunk_is_read_item_by_item(tmp_path: Path) -> None:
    conversation = {"conversations": [{"from": "human", "value": "ü" * 3_000}, {"from": "gpt", "value": "x" * 400}]}
    path = written(tmp_path, json.dumps([conversation] * 900, ensure_ascii=False))
    assert path.stat().st_size > 4 << 20
    arrivals = read_trace(path)
    assert len(arrivals) == 900
    assert {(a.num_prompt_tokens, a.num_output_tokens) for a in arrivals} == {(1_500, 100)}


def test_prompts_alone_are_a_trace(tmp_path: Path) -> None:
    rows = [
        {"prompt": "x" * 400, "output_tokens": 7},
        {"prompt": [1, 2]},
        {"messages": [{"content": "abcd"}], "max_tokens": 3},
    ]
    arrivals = read_trace(written(tmp_path, lines(*rows)), rate=100)
    assert [(a.num_prompt_tokens, a.num_output_tokens) for a in arrivals] == [(100, 7), (2, 128), (1, 3)]
    gaps = [b.at_ns - a.at_ns for a, b in pairwise(arrivals)]
    assert all(gap > 0 for gap in gaps)


def test_poisson_arrivals_have_their_rate(tmp_path: Path) -> None:
    arrivals = read_trace(written(tmp_path, lines(*[{"prompt": "x"}] * 2_000)), rate=50)
    assert arrivals[-1].at_ns / NS_PER_S == pytest.approx(40, rel=0.1)


def test_requests_of_which_only_some_have_a_time_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, lines({"prompt": "x", "timestamp": 3}, {"prompt": "y"}))
    with pytest.raises(UnusableTrace, match="1 of 2 requests have no time"):
        read_trace(path)


def test_lengths_are_scaled_and_pieces_with_them() -> None:
    arrival = Arrival(0, 1000, 100, prefix_ids=(1, 2), tokens_per_id=512, priority=4, max_output_tokens=300)
    (scaled,) = fitted([arrival], Fitting(scale_lengths=0.125))
    assert (scaled.num_prompt_tokens, scaled.num_output_tokens, scaled.tokens_per_id) == (125, 13, 64)
    assert (scaled.priority, scaled.max_output_tokens) == (4, 38)
    (longer,) = fitted([arrival], Fitting(scale_lengths=1.5))
    assert (longer.num_prompt_tokens, longer.tokens_per_id) == (1500, 768)
    with pytest.raises(UnusableTrace, match="cannot be divided"):
        fitted([arrival], Fitting(scale_lengths=0.1))


def test_what_is_no_trace_says_what_was_found_and_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(UnusableTrace) as refused:
        read_trace(written(tmp_path, lines({"question": 1, "answer": 2})))
    assert "has the fields answer, question" in str(refused.value)
    for name in ("Azure", "BurstGPT", "vidur", "ServeGen", "Mooncake", "Bailian", "OpenAI batches", "ShareGPT"):
        assert name in str(refused.value)
