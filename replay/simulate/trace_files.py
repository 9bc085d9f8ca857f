"""A trace's file → its arrivals, whatever the format: content tells which it is, fields are found by name.

Gzip is unpacked. Nothing in a file is run, and nothing of it is believed: a pickle is no trace.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from recorder.format import SEALED_SUFFIX, SEGMENT_SUFFIX
from replay.lives import Run
from replay.simulate import servegen
from replay.simulate.arrivals import Arrival, UnusableTrace
from replay.simulate.csv_traces import CSV_FORMATS, column_names, csv_rows, read_csv
from replay.simulate.mooncake import read_mooncake
from replay.simulate.poisson import DEFAULT_RATE, at_rate
from replay.simulate.prompt_traces import read_batch, read_prompts, read_sharegpt
from replay.simulate.recorded_trace import recorded_arrivals
from replay.simulate.servegen import read_servegen
from replay.simulate.trace_lines import TraceText, parse_json
from replay.simulate.trace_rows import Row

MAX_ARRIVALS = 5_000_000
_SHOWN_CHARACTERS = 100
ACCEPTED = (
    "a recording; CSV of Azure (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT (Timestamp, Request tokens, "
    "Response tokens), vidur (num_prefill_tokens, num_decode_tokens, arrived_at) or ServeGen's clients (client, "
    "window_start_s, …); JSON lines of Mooncake or Bailian (timestamp, input_length, output_length, hash_ids), OpenAI "
    "batches (custom_id, body) or prompts (prompt or messages); ShareGPT's JSON (conversations)"
)


def read_trace(
    path: Path,
    lengths: Path | None = None,
    from_s: float = 0,
    to_s: float = float("inf"),
    divide_rate: float = 1,
    *,
    rate: float = DEFAULT_RATE,
    seed: int = 1,
    notes: list[str] | None = None,
) -> list[Arrival]:
    """In order of time, from the trace's first arrival on.

    lengths       ServeGen's second file; where none is given, NAME-lengths.json beside NAME.csv
    from_s, to_s  which part of the day ServeGen's are drawn for; the other formats give all
    divide_rate   ServeGen's rates become so much lower, their proportions stay
    rate, seed    of the Poisson arrivals of a trace without times
    notes         is given what was left out, and what was drawn
    Raises UnusableTrace, and RecordingError for a recording that cannot be read.
    """
    notes = [] if notes is None else notes
    if (heading := _heading(path)) is not None and set(column_names(heading)) >= servegen.COLUMNS:
        length_rows = TraceText(lengths or _beside(path))
        return read_servegen(csv_rows(TraceText(path)), length_rows, from_s, to_s, divide_rate)
    arrivals = list(islice(_arrivals(path, heading, notes), MAX_ARRIVALS + 1))
    if len(arrivals) > MAX_ARRIVALS:
        raise UnusableTrace(f"{path} holds more than {MAX_ARRIVALS} requests: cut it")
    if not arrivals:
        raise UnusableTrace(f"{path} holds no request")
    return _in_time(path, arrivals, rate, seed, notes)


def _in_time(path: Path, arrivals: list[Arrival], rate: float, seed: int, notes: list[str]) -> list[Arrival]:
    num_without = sum(arrival.at_ns < 0 for arrival in arrivals)
    if num_without == len(arrivals):
        notes.append(f"it has no times: Poisson arrivals at {rate:g} a second are drawn (seed {seed})")
        return list(at_rate(arrivals, rate, seed))
    if num_without:
        raise UnusableTrace(
            f"{path}: {num_without} of {len(arrivals)} requests have no time: give all of them one, or none"
        )
    arrivals.sort(key=lambda arrival: arrival.at_ns)  # stable: who came at one time stays in order
    first_ns = arrivals[0].at_ns
    return [replace(arrival, at_ns=arrival.at_ns - first_ns) for arrival in arrivals] if first_ns else arrivals


def _heading(path: Path) -> str | None:
    """The file's first line; None for a recording."""
    if path.is_dir() or path.suffix in (SEGMENT_SUFFIX, SEALED_SUFFIX):
        return None
    return TraceText(path).first_line()


def _arrivals(path: Path, heading: str | None, notes: list[str]) -> Iterator[Arrival]:
    if heading is None:
        return recorded_arrivals(Run.open(path), notes)
    text = TraceText(path)
    if heading.startswith(("{", "[")):
        return _of_json(text, heading, notes)
    columns = frozenset(column_names(heading))
    for form in CSV_FORMATS:
        if form.columns <= columns:
            return read_csv(text, form)
    raise UnusableTrace(f"{path} begins with {heading[:60]!r}, which is no trace: give {ACCEPTED}")


def _of_json(text: TraceText, heading: str, notes: list[str]) -> Iterator[Arrival]:
    is_array = heading.startswith("[")
    first = next(_json_rows(text, is_array), None)
    fields = set(first.values) if first else set()
    rows = _json_rows(text, is_array)
    if "conversations" in fields:
        return read_sharegpt(rows, notes)
    if "body" in fields:
        return read_batch(rows)
    if {"input_length", "output_length"} & fields:
        return read_mooncake(rows)
    if {"prompt", "messages"} & fields:
        return read_prompts(rows)
    found = ", ".join(sorted(fields))[:_SHOWN_CHARACTERS] or "nothing"
    raise UnusableTrace(f"{text.path} has the fields {found}, which is no trace: give {ACCEPTED}")


def _json_rows(text: TraceText, is_array: bool) -> Iterator[Row]:
    if is_array:
        for number, value in text.items():
            yield _row(text, f"item {number}", value)
        return
    for number, line in text.lines():
        try:
            value = parse_json(line)
        except ValueError as error:
            text.fail(f"line {number}", f"is no JSON: {error}")
        yield _row(text, f"line {number}", value)


def _row(text: TraceText, place: str, value: Any) -> Row:
    if not isinstance(value, dict):
        text.fail(place, "is no JSON object")
    return Row(text.path, place, value)


def _beside(path: Path) -> Path:
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    return path.with_name(f"{name}-lengths.json")
