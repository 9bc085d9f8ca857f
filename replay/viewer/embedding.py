"""What of a recording goes into a single file: the overview whole, then inspectors as they fit, telling ones first.

No contents go in, whatever the vault holds. It must not know how the file is made.
"""

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.viewer.answers import answers
from replay.viewer.answers.asking import questions, tables
from replay.viewer.framing import framed
from replay.viewer.packing import Pack, Packing, in_base64
from replay.viewer.parameters import MAX_ROWS, Parameters
from replay.viewer.request_passes import request_answers
from replay.viewer.rows import GROUPS
from replay.viewer.step_passes import step_answers
from replay.viewer.viewed import Viewed

MAX_ANSWER_BYTES = 24 * 2**20  # so that a report can be attached to an issue
MAX_ROWS_KEPT = 2_048
MAX_STEPS_KEPT = 4_000  # each takes some 2 ms to bring about where others are near, else up to 200
MAX_STRETCHES = 48  # of a thousand steps each that the core goes through, half a second
MAX_REQUESTS_KEPT = 2_000
MAX_STEP_TIMES = 200_000  # of a life whose steps lead to times and back; 24 bytes each before compression
MAX_ENTRIES_PASSED = 60_000  # of a recording that is read once for all its requests, in some 5 s
MAX_REQUESTS_ASKED = 200  # of a longer one
LEFT_OUT = (
    "the SQL box, selected areas, histories of blocks, contents, and comparing: "
    "open the recording itself with `reprise view`"
)
_TILE_WIDTH, _STRIP_WIDTH = 4_096, 2_048
_REQUESTS = """
SELECT life, number FROM requests
ORDER BY preemptions > 0 DESC, reason IN ('stop', 'length'), ttft_ms DESC, life, number
"""
_STEPS = """
SELECT life, step, sequence FROM steps
ORDER BY (life, step) IN (SELECT life, step FROM preemptions UNION SELECT life, step FROM marks) DESC,
    completed_ns - planned_ns DESC, life, step LIMIT :limit
"""


@dataclass(slots=True)
class Embedded:
    """
    answers    path without its query → [{query, json or gzip}], gzip: of a binary answer, in base64
    packs      answers to paths that take no query, many together: see `packing.py`
    left_out   in words
    """

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    packs: list[Pack] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    num_bytes: int = 0

    def add(self, path: str, query: dict[str, Any], answer: Any) -> None:
        kept = {"gzip": in_base64(answer)} if isinstance(answer, bytes) else {"json": answer}
        self.num_bytes += len(kept["gzip"]) if "gzip" in kept else len(json.dumps(answer))
        self.answers.setdefault(f"api/{path}", []).append({"query": query, **kept})

    def add_packed(self, answers: Iterable[list[tuple[str, Any]]], max_bytes: int) -> int:
        """How many of these there was room for, until all takes `max_bytes`; those of one list go together."""
        num, packing = 0, Packing()
        for parts in answers:
            if self.num_bytes + packing.expected_bytes >= max_bytes:
                break
            num += 1
            for path, answer in parts:
                packing.add(f"api/{path}", answer)
            if packing.is_full:
                self._keep(packing)
                packing = Packing()
        self._keep(packing)
        return num

    def _keep(self, packing: Packing) -> None:
        if packing.paths:
            pack = packing.pack()
            self.packs.append(pack)
            self.num_bytes += len(pack["gzip"]) + sum(map(len, pack["paths"]))


def embed(viewed: Viewed, max_bytes: int = MAX_ANSWER_BYTES, folder: Path | None = None) -> Embedded:
    """The overview comes whole, whatever it takes; inspectors until `max_bytes` are reached.

    folder   where the index is kept
    """
    embedded = Embedded()
    recording = answers()["recording"](viewed, Parameters({}))
    contents = {"readable": False, "reason": "a single file holds no contents: open the recording itself"}
    recording |= {"contents": contents, "is_live": False}
    embedded.add("recording", {}, recording)
    embedded.add("questions", {}, questions())
    embedded.add("schema", {}, tables())
    for life in recording["lives"]:
        _overview(viewed, embedded, life["life"])
    with viewed.database() as database:
        requests = [tuple(row) for row in database.execute(_REQUESTS)]
        steps = _chosen(database)
        (num_all_steps,) = database.execute("SELECT count(*) FROM steps").fetchone()
        (num_entries,) = database.execute(
            "SELECT coalesce(sum(last_sequence - first_sequence), 0) FROM lives"
        ).fetchone()
    middle = embedded.num_bytes + max(0, max_bytes - embedded.num_bytes) // 2
    num_requests = embedded.add_packed(_requests(viewed, requests, num_entries), middle)
    num_steps = embedded.add_packed(_steps(viewed, folder, steps), max_bytes)
    left_out = [LEFT_OUT]
    if num_requests < len(requests):
        left_out.append(f"inspectors of {len(requests) - num_requests:,} of {len(requests):,} requests")
    if num_steps < num_all_steps:
        left_out.append(f"inspectors and block maps of {num_all_steps - num_steps:,} of {num_all_steps:,} steps")
    for life in recording["lives"]:
        if life["num_requests"] > MAX_ROWS_KEPT:
            left_out.append(f"rows of {life['num_requests'] - MAX_ROWS_KEPT:,} requests of life {life['life']}")
    embedded.left_out = tuple(left_out)
    return embedded


def _chosen(database: sqlite3.Connection) -> list[tuple[int, int]]:
    """(life, step), in order: those of greatest interest, out of not too many stretches between keyframes."""
    keyframes = [tuple(row) for row in database.execute("SELECT life, sequence FROM keyframes ORDER BY 1, 2")]
    stretches: set[int] = set()
    chosen = []
    for life, step, sequence in database.execute(_STEPS, {"limit": MAX_STEPS_KEPT}):
        stretch = bisect_right(keyframes, (life, sequence))
        if len(stretches) < MAX_STRETCHES or stretch in stretches:
            stretches.add(stretch)
            chosen.append((life, step))
    return sorted(chosen)


def _requests(viewed: Viewed, wanted: list[tuple[int, int]], num_entries: int) -> Iterator[list[tuple[str, Any]]]:
    """A long recording is not read for all of them: each by itself, those of greatest interest only."""
    if num_entries <= MAX_ENTRIES_PASSED:
        for life, number, answer in request_answers(viewed, wanted[:MAX_REQUESTS_KEPT]):
            yield [(f"request/{life}/{number}", answer)]
        return
    for life, number in wanted[:MAX_REQUESTS_ASKED]:
        values = Parameters({"life": str(life), "number": str(number)})
        yield [(f"request/{life}/{number}", answers()["request/{life}/{number}"](viewed, values))]


def _steps(viewed: Viewed, folder: Path | None, wanted: list[tuple[int, int]]) -> Iterator[list[tuple[str, Any]]]:
    for it in step_answers(viewed, folder, wanted):
        parts: list[tuple[str, Any]] = [(f"step/{it.life}/{it.number}", it.step)]
        if it.blocks is not None:
            parts.append((f"blocks/{it.life}/{it.number}", it.blocks))
        yield parts


def _overview(viewed: Viewed, embedded: Embedded, life: int) -> None:
    answer = answers()
    for name in ("marks", "arrows"):
        embedded.add(name, {"life": life}, answer[name](viewed, Parameters({"life": str(life)})))
    rows = f"0,{min(MAX_ROWS, MAX_ROWS_KEPT)}"
    for axis in ("time", "step"):
        wanted = {"life": str(life), "axis": axis}
        strips = answer["strips"](viewed, Parameters({**wanted, "width": str(_STRIP_WIDTH)}))
        embedded.add("strips", {"life": life, "axis": axis}, strips)
        for group in GROUPS:
            asked = Parameters({**wanted, "group": group, "rows": rows, "width": str(_TILE_WIDTH)})
            embedded.add("timeline", {"life": life, "axis": axis, "group": group}, answer["timeline"](viewed, asked))
    with viewed.columns(life) as columns:
        steps = columns.steps
        if len(steps.steps) <= MAX_STEP_TIMES:
            arrays = {"step": steps.steps, "planned": steps.planned_ns, "completed": steps.completed_ns}
            embedded.add("steps", {"life": life}, framed({"life": life}, arrays))
