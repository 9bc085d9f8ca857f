"""A recording as Parquet tables, for whoever has questions in SQL: a folder of `requests`, `steps` and `records`.

`requests` holds what `show --requests --json` says and what was asked for, `steps` one row for each executed step, and
`records` everything as `jsonl.py` has it, the fields as JSON. Needs pyarrow, which nothing else of Reprise does.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recorder.spans.moments import Closed, Opened, StepRan
from replay.export.jsonl import records_of
from replay.export.telling import Telling
from replay.figures import request_values
from replay.lives import Run
from replay.refusal import CannotCompare

_ROWS_PER_GROUP = 8_192
_REQUESTS = {
    "request": "int64",
    "request_id": "string",
    "tenant": "string",
    "priority": "int64",
    "arrival_ns": "int64",
    "max_output_tokens": "int64",
    **{
        f"num_{name}": "int64"
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "swaps", "handovers")
    },
    "num_prefill_chunks": "int64",
    **{f"{name}_ms": "float64" for name in ("queue", "ttft", "tpot", "e2e")},
    "deferred_ms": "string",
    "outcome": "string",
}
_STEPS = {
    **{name: "int64" for name in StepRan._fields if name != "error"},
    "error": "string",
}
_RECORDS = {
    "engine": "int64",
    "sequence": "int64",
    "now_ns": "int64",
    "place": "int64",
    "record": "string",
    "request": "int64",
    "step": "int64",
    "fields": "string",
}


def write_parquet(run: Run, folder: Path) -> dict[str, int]:
    """Into a new folder. Returns what was written, in counts. Raises CannotCompare without pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise CannotCompare(
            "Parquet needs pyarrow, which is not installed", "pip install 'reprise[parquet]'"
        ) from error
    folder.mkdir(mode=0o700, parents=True)
    requests, steps = (
        _Table(pyarrow, folder / "requests.parquet", _REQUESTS),
        _Table(pyarrow, folder / "steps.parquet", _STEPS),
    )
    records = _Table(pyarrow, folder / "records.parquet", _RECORDS)
    try:
        arrivals: dict[int, dict[str, Any]] = {}
        for moment in Telling().of(run):
            if isinstance(moment, StepRan):
                steps.add(moment._asdict())
            elif isinstance(moment, Opened):
                arrivals[moment.request] = _asked(moment)
            elif isinstance(moment, Closed):
                values = request_values(moment.span)
                values["deferred_ms"] = json.dumps(values["deferred_ms"])
                requests.add(arrivals.pop(moment.request) | values)
        for row in _record_rows(run):
            records.add(row)
    finally:
        for table in (requests, steps, records):
            table.close()
    return {"requests": requests.num_rows, "steps": steps.num_rows, "records": records.num_rows}


def _asked(moment: Opened) -> dict[str, Any]:
    arrived = moment.arrived
    return {
        "tenant": arrived.tenant,
        "priority": arrived.priority,
        "arrival_ns": arrived.arrival_ns,
        "max_output_tokens": arrived.max_output_tokens,
    }


def _record_rows(run: Run) -> Iterator[dict[str, Any]]:
    for number, life in enumerate(run.lives):
        for entry in life.entries():
            for values in records_of(entry):
                row = {name: values.pop(name) for name in ("sequence", "now_ns", "place", "record")}
                request, step = values.get("request"), values.get("step")
                yield {"engine": number, **row, "request": request, "step": step, "fields": json.dumps(values)}


class _Table:
    """Rows into one file, a group at a time."""

    def __init__(self, pyarrow: Any, path: Path, columns: dict[str, str]) -> None:
        from pyarrow import parquet

        self._schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
        self._batch = pyarrow.RecordBatch
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        path.chmod(0o600)
        self._rows: list[dict[str, Any]] = []
        self.num_rows = 0

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self.num_rows += 1
        if len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(self._batch.from_pylist(self._rows, schema=self._schema))
            self._rows.clear()
