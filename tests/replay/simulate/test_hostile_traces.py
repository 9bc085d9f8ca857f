"""A stranger's trace is refused with file, line and field, in bounded time and memory; nothing in it is run."""

import gzip
import json
import pickle
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.simulate.arrivals import UnusableTrace
from replay.simulate.trace_files import read_trace
from replay.simulate.trace_lines import MAX_LINE_BYTES
from replay.simulate.trace_rows import MAX_SECONDS, MAX_TOKENS
from tests.replay.simulate import samples

ROW = {"timestamp": 0, "input_length": 20, "output_length": 3}
HUGE = "9" * 5_000


def refusal(path: Path) -> str:
    with pytest.raises(UnusableTrace) as refused:
        read_trace(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 2_000
    return str(refused.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "input_length": -1}, "line 2: input_length is -1: it must be a whole number from 0"),
        ({**ROW, "input_length": 1.5}, "line 2: input_length is 1.5"),
        ({**ROW, "input_length": True}, "line 2: input_length is True"),
        ({**ROW, "input_length": "many"}, "line 2: input_length is 'many'"),
        ({**ROW, "input_length": None}, "line 2: input_length is None: it is missing"),
        ({**ROW, "input_length": MAX_TOKENS + 1}, "line 2: input_length is 10000001"),
        ({**ROW, "output_length": 10**300}, "line 2: output_length is 1000"),
        ({**ROW, "timestamp": -3}, "line 2: timestamp is -3"),
        ({**ROW, "timestamp": 1e300}, "line 2: timestamp is 1e+300"),
        ({**ROW, "timestamp": []}, "line 2: timestamp is []"),
        ({**ROW, "hash_ids": "abc"}, "line 2: hash_ids is 'abc'"),
        ({**ROW, "hash_ids": [-1]}, "line 2: hash_ids is [-1]"),
        ({**ROW, "hash_ids": [1.5]}, "line 2: hash_ids is [1.5]"),
        ({**ROW, "hash_ids": [1], "input_length": 2_000}, "line 2: input_length is 2000: it needs 3 hash_ids"),
        ({**ROW, "block_size": 0}, "line 2: block_size is 0"),
        ({**ROW, "priority": 10}, "line 2: priority is 10"),
        ({**ROW, "tenant": 7}, "line 2: tenant is 7"),
        ({"timestamp": 0}, "line 2: input_length is missing"),
        ([], "line 2 is no JSON object"),
    ],
)
def test_a_wrong_field_is_named_with_its_line_and_value(tmp_path: Path, row: Any, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(row) + "\n")
    assert said in refusal(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}', "NaN is no number of JSON"),
        ('{"timestamp": -Infinity, "input_length": 1, "output_length": 1}', "-Infinity is no number"),
        ('{"timestamp": 1e999, "input_length": 1, "output_length": 1}', "too large for a number"),
        (f'{{"timestamp": {HUGE}, "input_length": 1, "output_length": 1}}', "is no JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"messages": [{"content": ' + "[" * 600 + "]" * 600 + "}]}", "input_length is missing"),
        ('{"a":' * 100_000, "nested too deep"),
        ('{"timestamp": 0, "input_', "is no JSON"),
        ("\x00\x01", "is no JSON"),
    ],
)
def test_what_no_number_or_no_json_is_ends_the_reading_there(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + line + "\n")
    text = refusal(path)
    assert "line 2" in text
    assert said in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("2023-11-16 18:17:03.9,-4,1", "contexttokens is '-4'"),
        ("2023-11-16 18:17:03.9,nan,1", "contexttokens is 'nan'"),
        ("2023-11-16 18:17:03.9,inf,1", "contexttokens is 'inf'"),
        ("2023-11-16 18:17:03.9,1." + "0" * 80 + "e3,1", "contexttokens is '1.000"),
        ("2023-11-16 18:17:03.9,1", "has 2 fields, the header has 3"),
        ("2023-11-16 18:17:03.-5,1,1", "timestamp is"),
        ("2023-99-16 18:17:03,1,1", "timestamp is"),
        ('"2023,1,1', "is no CSV"),
        ("2023-11-16 18:17:03.9," + "1" * 200_000 + ",1", "is no CSV"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,1,1\n{line}\n")
    text = refusal(path)
    assert "line 3" in text
    assert said in text


def test_messages_nested_too_deep_to_be_sent_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"messages": [{"content": ' + "[" * 600 + "]" * 600 + "}]}\n")
    assert "line 1: messages is" in refusal(path)


def test_a_time_beyond_all_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"Timestamp,Request tokens,Response tokens\n{MAX_SECONDS + 1},1,1\n")
    assert "timestamp is" in refusal(path)


@pytest.mark.parametrize("is_array", [False, True])
def test_a_line_or_item_without_end_is_not_read_to_its_end(tmp_path: Path, is_array: bool) -> None:
    path = tmp_path / "trace.gz"
    text = ('[{"conversations": "' if is_array else '{"prompt": "').encode()
    path.write_bytes(gzip.compress(text + b"x" * (MAX_LINE_BYTES + 100)))
    assert f"{MAX_LINE_BYTES} bytes" in refusal(path)


def test_a_pickle_is_no_trace_and_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "was-run",)

    path = tmp_path / "trace.pkl"
    path.write_bytes(pickle.dumps([Bomb()]))
    refusal(path)
    assert not (tmp_path / "was-run").exists()


def test_a_cut_gzip_and_a_cut_array_are_told(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps([{"prompt": "abc"}] * 10_000).encode())
    cut = tmp_path / "cut.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    refusal(cut)
    array = tmp_path / "array.json"
    array.write_text('[{"conversations": [{"from": "human", "value": "x"}]}')
    assert "the file was cut" in refusal(array)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("7,0,1,1,Gamma,nan,1", "param1 is 'nan'"),
        ("7,0,1,1,Gamma,1,0", "param2 is '0'"),
        ("7,0,1,1,Pareto,1,1", "arrivalpattern is 'Pareto'"),
        ("8,0,1,1,Gamma,1,1", "client is '8'"),
        ("7,-600,1,1,Gamma,1,1", "windowstarts is '-600'"),
    ],
)
def test_servegen_rows_are_checked_before_anything_is_drawn(tmp_path: Path, row: str, said: str) -> None:
    path = samples.servegen(tmp_path)
    path.write_text(samples.SERVEGEN.splitlines()[0] + "\n" + row + "\n")
    assert said in refusal(path)


@pytest.mark.parametrize("lengths", ["[]", "{", '{"7": {}}', '{"7": {"x": {}}}', '{"7": {"0": {"input_tokens": [1]}}}'])
def test_servegen_lengths_are_checked(tmp_path: Path, lengths: str) -> None:
    path = samples.servegen(tmp_path)
    (tmp_path / "clients-lengths.json").write_text(lengths)
    with pytest.raises(UnusableTrace, match=r"clients-lengths\.json"):
        read_trace(path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["timestamp", "input_length", "output_length", "hash_ids", "block_size", "chat_id", "prompt", "messages", "body",
     "custom_id", "conversations", "max_tokens", "from", "value", "content", "tenant", "priority", "name"]
)  # fmt: skip
objects = st.dictionaries(names, values | st.dictionaries(names, values, max_size=4) | st.integers(0, 50), max_size=6)
json_files = st.lists(objects, min_size=1, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows)))
arrays = st.lists(objects, min_size=1, max_size=4).map(json.dumps)
headers = st.sampled_from(
    ["TIMESTAMP,ContextTokens,GeneratedTokens", "Timestamp,Request tokens,Response tokens",
     "num_prefill_tokens,num_decode_tokens", "arrived_at,num_prefill_tokens,num_decode_tokens"]
)  # fmt: skip
cells = st.text(string.printable, max_size=12) | st.integers().map(str) | st.floats().map(str)
csv_files = st.tuples(headers, st.lists(st.lists(cells, min_size=2, max_size=3), max_size=4)).map(
    lambda parts: "\n".join([parts[0], *[",".join(row) for row in parts[1]]])
)


@settings(max_examples=120, deadline=None)
@given(content=(json_files | arrays | csv_files | st.text(max_size=60)).map(str.encode) | st.binary(max_size=60))
def test_whatever_a_file_holds_it_is_read_within_bounds_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-trace"
    path.write_bytes(content)
    try:
        arrivals = read_trace(path)
    except UnusableTrace:
        refusal(path)
        return
    assert arrivals == sorted(arrivals, key=lambda arrival: arrival.at_ns)
    for arrival in arrivals:
        assert 0 <= arrival.num_prompt_tokens <= MAX_TOKENS
        assert 0 <= arrival.num_output_tokens <= MAX_TOKENS
        assert arrival.at_ns >= 0
        if arrival.prefix_ids:
            assert len(arrival.prefix_ids) >= arrival.num_prompt_tokens // arrival.tokens_per_id
