"""Chrome JSON, OTLP, JSON lines and Parquet hold the recording's own figures."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import KINDS, Entry
from replay.export.chrome import write_chrome
from replay.export.jsonl import write_jsonl
from replay.export.otlp import write_otlp
from replay.export.parquet import write_parquet
from replay.figures import figures, read_timeline
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.show import View, show
from tests.replay.recorded_runs import entries_of


def shown_requests(recording: Path) -> dict[int, dict[str, Any]]:
    """What `show --requests --json` prints, by request."""
    (text,) = show(recording, View(requests=True, as_json=True))
    return {values["request"]: values for values in json.loads(text)}


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: _plain(item["value"]) for item in span["attributes"]}


def _plain(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "intValue":
            return int(inner)
        case "arrayValue":
            return [_plain(item) for item in inner["values"]]
        case _:
            return inner


def otlp_spans(recording: Path, *, vllm_names: bool = False) -> list[dict[str, Any]]:
    out = io.BytesIO()
    write_otlp(Run.open(recording), out, vllm_names=vllm_names)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return [
        span
        for line in lines
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_each_request_is_a_trace_that_says_what_show_says(recording: Path) -> None:
    roots = [span for span in otlp_spans(recording) if "parentSpanId" not in span]
    shown = shown_requests(recording)
    assert len(roots) == len(shown) == len({span["traceId"] for span in roots})
    for span in roots:
        values = attributes(span)
        expected = shown[values["reprise.request"]]
        for name, figure in expected.items():
            if name == "deferred_ms":
                assert {key: values[f"reprise.deferred_ms.{key}"] for key in figure} == figure
            else:
                assert values.get(f"reprise.{name}") == figure, name
        assert values["gen_ai.usage.input_tokens"] == expected["num_prompt_tokens"]
        assert values["gen_ai.usage.output_tokens"] == expected["num_output_tokens"]
        assert values["gen_ai.usage.cache_read.input_tokens"] == expected["num_cached_tokens"]
        if expected["outcome"] in ("stop", "length"):
            assert values["gen_ai.response.finish_reasons"] == [expected["outcome"]]
            assert "status" not in span
        else:
            assert (values["error.type"], span["status"]["code"]) == (expected["outcome"], 2)


def test_children_lie_within_their_request_and_follow_one_another(recording: Path) -> None:
    spans = otlp_spans(recording)
    roots = {span["spanId"]: span for span in spans if "parentSpanId" not in span}
    ends: dict[str, int] = {}
    names = set()
    for span in spans:
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        if "parentSpanId" in span:
            root = roots[span["parentSpanId"]]
            assert span["traceId"] == root["traceId"]
            begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            assert max(ends.get(root["spanId"], 0), int(root["startTimeUnixNano"])) <= begin <= end
            assert end <= int(root["endTimeUnixNano"])
            ends[root["spanId"]] = end
            names.add(span["name"])
    assert names == {"queued", "prefill chunk", "decode", "preempted"}


def test_the_names_of_vllms_spans_are_there_when_asked_for(recording: Path) -> None:
    roots = [attributes(span) for span in otlp_spans(recording, vllm_names=True) if "parentSpanId" not in span]
    shown = shown_requests(recording)
    for values in roots:
        expected = shown[values["reprise.request"]]
        assert values["gen_ai.usage.completion_tokens"] == expected["num_output_tokens"]
        assert values["gen_ai.latency.e2e"] * 1e3 == pytest.approx(expected["e2e_ms"])
        assert ("gen_ai.latency.time_to_first_token" in values) == (expected["ttft_ms"] is not None)
    assert not any("gen_ai.latency" in key for span in otlp_spans(recording) for key in attributes(span))


def test_spans_are_the_same_when_exported_again(recording: Path) -> None:
    assert otlp_spans(recording) == otlp_spans(recording)


def read_back(lines: list[dict[str, Any]]) -> list[Entry]:
    """Entries from JSON lines, by the vocabulary's own names."""
    kinds = {record_type.__name__: record_type for record_type in KINDS.values()}
    entries: list[Entry] = []
    for line in lines:
        if line["record"] == "Header":
            continue
        record_type = kinds[line["record"]]
        record = record_type(*[_field(name, line[name]) for name in record_type._fields])
        if line["place"] == 0:
            entries.append(Entry(line["sequence"], line["now_ns"], record, ()))
        else:
            entries[-1] = entries[-1]._replace(decisions=(*entries[-1].decisions, record))
    return entries


def _field(name: str, value: Any) -> Any:
    if name == "prompt_digests":
        return tuple(bytes.fromhex(item) for item in value)
    if name == "filled":
        return tuple((request, bytes.fromhex(digest)) for request, digest in value)
    if name == "grammar_digest":
        return bytes.fromhex(value)
    if name == "sampling":
        return SamplingParams(**{key: item for key, item in value.items() if key != "record"})
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def test_json_lines_lose_nothing_of_any_record(recording: Path) -> None:
    out = io.BytesIO()
    counts = write_jsonl(Run.open(recording), out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert counts["records"] == len(lines) - 1
    assert read_back(lines) == entries_of(recording)
    assert "salt" not in lines[0], "the digests' key stays in the recording"


def test_chrome_events_are_balanced_and_as_many_as_the_figures_say(recording: Path) -> None:
    out = io.BytesIO()
    write_chrome(Run.open(recording), out)
    events = json.loads(out.getvalue())["traceEvents"]
    depths: dict[tuple[int, int], int] = {}
    for event in sorted((event for event in events if event["ph"] in "BE"), key=lambda event: event["ts"]):
        place = event["pid"], event["tid"]
        depths[place] = depths.get(place, 0) + (1 if event["ph"] == "B" else -1)
        assert depths[place] >= 0
    assert not any(depths.values())
    traffic = figures(read_timeline(Run.open(recording)))
    names = [event.get("name") for event in events]
    assert names.count("request") == traffic["arrived"]
    assert names.count("preempted") == traffic["preemptions"]
    assert sum(event["ph"] == "X" for event in events) == traffic["steps"]
    starts, ends = ({event["id"] for event in events if event["ph"] == phase} for phase in "sf")
    assert ends
    assert ends <= starts


def test_parquet_tables_hold_requests_steps_and_records(recording: Path, tmp_path: Path) -> None:
    counts = write_parquet(Run.open(recording), tmp_path / "tables")
    requests = pyarrow.parquet.read_table(tmp_path / "tables" / "requests.parquet").to_pylist()
    shown = shown_requests(recording)
    for row in requests:
        expected = shown[row["request"]]
        assert json.loads(row["deferred_ms"]) == expected["deferred_ms"]
        assert {name: row[name] for name in expected if name != "deferred_ms"} == {
            name: value for name, value in expected.items() if name != "deferred_ms"
        }
    records = pyarrow.parquet.read_table(tmp_path / "tables" / "records.parquet")
    assert records.num_rows == counts["records"] == sum(1 + len(entry.decisions) for entry in entries_of(recording))
    steps = pyarrow.parquet.read_table(tmp_path / "tables" / "steps.parquet").to_pylist()
    totals = read_timeline(Run.open(recording)).totals
    assert sum(step["execute_ns"] for step in steps) == totals.execute_ns


def test_without_pyarrow_the_extra_is_named(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(CannotCompare, match="pyarrow") as refused:
        write_parquet(Run.open(recording), tmp_path / "tables")
    assert "reprise[parquet]" in refused.value.remedy
