"""`reprise show`: what is in a recording, for people and as JSON. It compares nothing and loads no model.

Four views: the recording at large, a table of its requests, one request's story, and the transcript of all records.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from engine.core.vocabulary import Entry
from replay.figures import REQUEST_HEADING, figures, read_timeline, request_line, request_values
from replay.lives import Life, Run
from replay.rendering import cut, record_as_values
from replay.request_story import Line, find_request, story
from replay.summary import Provenance, provenance
from replay.transcript import HEADING, lines

NUM_ENTRIES_AROUND = 10  # shown before and after the one asked for


@dataclass(frozen=True, slots=True)
class View:
    """What is to be shown; the recording at large when nothing else is asked for."""

    requests: bool = False
    request: str | None = None
    transcript: bool = False
    around: int | None = None
    as_json: bool = False


def show(path: Path, view: View) -> Iterator[str]:
    """The lines to print. Raises RecordingError, or CannotCompare when no such request is in it."""
    run = Run.open(path)
    if view.transcript or view.around is not None:
        yield from _transcript(run, view)
    elif view.request is not None:
        yield from _request(run, view.request, view.as_json)
    elif view.requests:
        yield from _requests(run, view.as_json)
    else:
        yield from _at_large(provenance(run), figures(read_timeline(run)), view.as_json)


def _transcript(run: Run, view: View) -> Iterator[str]:
    """With --json one entry a line, so that a long recording need not be held in memory."""
    if not view.as_json:
        yield HEADING
    for life in run.lives:
        if not view.as_json and len(run.lives) > 1:
            yield f"── engine process, segment {life.header.segment_number} ──"
        for entry in _entries(life, view.around):
            yield from _entry(entry, life, view.as_json)
    if not view.as_json:
        yield from (f"note: {note}" for note in run.notes())


def _entries(life: Life, around: int | None) -> Iterator[Entry]:
    if around is None:
        return life.entries()
    last = around + NUM_ENTRIES_AROUND
    return takewhile(lambda entry: entry.sequence <= last, life.entries(max(0, around - NUM_ENTRIES_AROUND)))


def _entry(entry: Entry, life: Life, as_json: bool) -> Iterator[str]:
    if not as_json:
        yield from lines(entry, life.opened_ns)
        return
    values = {
        "sequence": entry.sequence,
        "time_ns": entry.now_ns - life.opened_ns,
        "event": record_as_values(entry.event),
        "decisions": [record_as_values(decision) for decision in entry.decisions],
    }
    yield json.dumps(values)


def _requests(run: Run, as_json: bool) -> Iterator[str]:
    spans = read_timeline(run).spans.values()
    if as_json:
        yield json.dumps([request_values(span) for span in spans], indent=2)
        return
    yield REQUEST_HEADING
    yield from (request_line(span) for span in spans)


def _request(run: Run, name: str, as_json: bool) -> Iterator[str]:
    arrived = find_request(run, name)
    told = list(story(run, arrived.request))
    if as_json:
        values = {"request": record_as_values(arrived), "story": [line._asdict() for line in told]}
        yield json.dumps(values, indent=2)
        return
    yield f"request {arrived.request} ({arrived.request_id}), {len(told)} records"
    yield f"{'sequence':>8} {'time ms':>12}   {'record':<17} what it says"
    yield from (_story_line(line) for line in told)


def _story_line(line: Line) -> str:
    mark = ">" if line.decided else " "
    return cut(f"{line.sequence:>8} {line.time_ns / 1e6:>12.3f} {mark} {line.record:<17} {line.text}")


def _at_large(recording: Provenance, traffic: dict[str, Any], as_json: bool) -> Iterator[str]:
    if as_json:
        yield json.dumps({**recording.as_values(), "traffic": traffic}, indent=2, default=str)
        return
    yield from _whole(recording)
    yield from _traffic(traffic)
    yield f"check        {recording.can_check}"
    yield f"execute      {recording.can_execute}"
    yield from (cut(f"  differs    {line}") for line in recording.differences_here)


def _whole(recording: Provenance) -> Iterator[str]:
    whole = "closed in order" if recording.closed else "not closed: killed, or still running"
    yield f"run          {recording.run}: {recording.num_entries:,} entries in {recording.num_segments} segments, " + (
        f"{recording.num_bytes:,} bytes, {recording.num_lives} engine process"
        + ("es" if recording.num_lives > 1 else "")
    )
    yield f"time         {recording.began} to {recording.ended}, {recording.span_seconds:,.3f} s of traffic"
    yield f"state        {whole}" + (f" ({recording.closed})" if recording.closed else "")
    if recording.origin:
        yield f"  origin     {recording.origin}: a copy, no engine wrote it so"
    yield from (cut(f"  pinned     {reason}") for reason in recording.pins)
    yield from (cut(f"  notice     {notice}") for notice in recording.notices)
    yield f"model        {recording.model or '(not named)'}, numerics class {recording.numerics_class or '(none)'}"
    yield from _wrapped("limits", recording.limits)


def _traffic(traffic: dict[str, Any]) -> Iterator[str]:
    yield f"requests     {traffic['arrived']:,} arrived; finished: {_counts(traffic['finished'])}"
    for name in ("rejected", "cancels"):
        if traffic[name]:
            yield f"  {name:<11}{_counts(traffic[name])}"
    if traffic["live_at_the_end"]:
        yield f"  live       {traffic['live_at_the_end']} when the recording ends"
    failed = f", {traffic['failed_steps']} failed" if traffic["failed_steps"] else ""
    parts = traffic["ms_per_step"]
    each = ""
    if parts:
        each = (
            f"; each {parts['execute']:.2f} ms in the model, {parts['sample']:.2f} sampling, {parts['rest']:.2f} beside"
        )
    yield f"steps        {traffic['steps']:,}{failed}{each}"
    share = traffic["prefix_cache_hit_share"]
    hits = "" if share is None else f", {share:.1%} of the prompts' found in the prefix cache"
    yield f"tokens       {traffic['prompt_tokens']:,} prompt, {traffic['generation_tokens']:,} output{hits}"
    yield (
        f"preemptions  {traffic['preemptions']:,}, {traffic['tokens_lost_to_preemption']:,} computed tokens lost; "
        f"{traffic['evicted_blocks']:,} cached blocks evicted"
    )
    if traffic["swaps"]:
        yield (
            f"  swaps      {traffic['swaps']:,}; {traffic['swapped_out_blocks']:,} blocks copied out, "
            f"{traffic['swapped_in_blocks']:,} in, {traffic['swap_ms']:,.2f} ms"
        )
    if traffic["cascades"] or traffic["thrashings"]:
        yield (
            f"  pressure   {traffic['cascades']:,} cascades, the longest of {traffic['longest_cascade']}; "
            f"thrashing began {traffic['thrashings']:,} times"
        )
    if traffic["kv_mismatches"]:
        yield f"  WRONG      {traffic['kv_mismatches']:,} KV blocks did not hold what was written to them"
    if traffic["audits"]:
        num_audits = sum(traffic["audits"].values())
        yield f"audits       {num_audits:,} audited, {traffic['audited_tokens']:,} tokens: {_counts(traffic['audits'])}"
    for name in ("ttft", "itl", "e2e"):
        found = traffic[f"{name}_ms"]
        yield f"{name:<12} " + (f"p50 {found['p50']:,.2f} ms, p99 {found['p99']:,.2f} ms" if found else "-")
    yield f"waited for   {_counts(traffic['deferrals'])}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _wrapped(label: str, values: dict[str, Any]) -> Iterator[str]:
    """`name=value` pairs, as many a line as fit."""
    line = f"{label:<12}"
    for name, value in values.items():
        item = f" {name}={value}"
        if len(line) + len(item) > 118:
            yield line
            line = " " * 12
        line += item
    yield line
