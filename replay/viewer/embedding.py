"""What of a recording goes into a single file: the overview whole, then inspectors as they fit, telling ones first.

No contents go in, whatever the vault holds. It must not know how the file is made.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from replay.refusal import CannotCompare
from replay.viewer.answers import answers
from replay.viewer.answers.asking import questions, tables
from replay.viewer.errors import BadQuestion
from replay.viewer.parameters import MAX_ROWS, Parameters
from replay.viewer.rows import GROUPS
from replay.viewer.viewed import Viewed

MAX_ANSWER_BYTES = 24 * 2**20  # so that a report can be attached to an issue
MAX_ROWS_KEPT = 2_048
MAX_STEPS_KEPT = 1_000  # each takes up to 200 ms to bring about
_TILE_WIDTH, _STRIP_WIDTH = 4_096, 2_048
_REQUESTS = """
SELECT life, number FROM requests
ORDER BY preemptions > 0 DESC, reason IN ('stop', 'length'), ttft_ms DESC, life, number
"""
_STEPS = """
SELECT life, step FROM (
    SELECT life, step FROM steps
    ORDER BY (life, step) IN (SELECT life, step FROM preemptions UNION SELECT life, step FROM marks) DESC,
        completed_ns - planned_ns DESC, life, step LIMIT :limit
) ORDER BY life, step
"""


@dataclass(slots=True)
class Embedded:
    """
    answers    path without its query → [{query, json or base64}]
    left_out   in words
    """

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    num_bytes: int = 0

    def add(self, path: str, query: dict[str, Any], answer: Any) -> None:
        kept = {"base64": base64.b64encode(answer).decode()} if isinstance(answer, bytes) else {"json": answer}
        self.num_bytes += len(kept["base64"]) if "base64" in kept else len(json.dumps(answer))
        self.answers.setdefault(f"api/{path}", []).append({"query": query, **kept})


def embed(viewed: Viewed, max_bytes: int = MAX_ANSWER_BYTES) -> Embedded:
    """The overview comes whole, whatever it takes; inspectors until `max_bytes` are reached."""
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
        requests = database.execute(_REQUESTS).fetchall()
        steps = database.execute(_STEPS, {"limit": MAX_STEPS_KEPT}).fetchall()
        (num_all_steps,) = database.execute("SELECT count(*) FROM steps").fetchone()
    middle = embedded.num_bytes + max(0, max_bytes - embedded.num_bytes) // 2
    num_requests = _inspectors(viewed, embedded, _request_answers(requests), middle)
    num_steps = _inspectors(viewed, embedded, _step_answers(steps), max_bytes)
    left_out = ["the SQL box, searching, contents, and comparing: open the recording itself with `reprise view`"]
    if num_requests < len(requests):
        left_out.append(f"inspectors of {len(requests) - num_requests:,} of {len(requests):,} requests")
    if num_steps < num_all_steps:
        left_out.append(f"inspectors and block maps of {num_all_steps - num_steps:,} of {num_all_steps:,} steps")
    for life in recording["lives"]:
        if life["num_requests"] > MAX_ROWS_KEPT:
            left_out.append(f"rows of {life['num_requests'] - MAX_ROWS_KEPT:,} requests of life {life['life']}")
    embedded.left_out = tuple(left_out)
    return embedded


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
    embedded.add("area", {"life": life}, answer["area"](viewed, Parameters({"life": str(life)})))


def _request_answers(requests: Iterable[tuple[int, int]]) -> Iterator[list[tuple[str, str, dict[str, str]]]]:
    for life, number in requests:
        values = {"life": str(life), "number": str(number)}
        yield [(f"request/{life}/{number}", "request/{life}/{number}", values)]


def _step_answers(steps: Iterable[tuple[int, int]]) -> Iterator[list[tuple[str, str, dict[str, str]]]]:
    for life, number in steps:
        values = {"life": str(life), "step": str(number)}
        yield [(f"{name}/{life}/{number}", f"{name}/{{life}}/{{step}}", values) for name in ("step", "blocks")]


def _inspectors(
    viewed: Viewed, embedded: Embedded, wanted: Iterator[list[tuple[str, str, dict[str, str]]]], max_bytes: int
) -> int:
    """How many there was room for."""
    num = 0
    for parts in wanted:
        if embedded.num_bytes >= max_bytes:
            break
        num += 1
        for path, route, values in parts:
            try:
                embedded.add(path, {}, answers()[route](viewed, Parameters(values)))
            except (BadQuestion, CannotCompare):  # its state is not known: the step's own answer says why
                continue
    return num
