"""What is looked at: whose recording, which lives, how far the index has come, and what colours mean."""

import json
import sqlite3
from typing import Any

from recorder.format import VAULT_SUFFIX
from replay.viewer.columns import KINDS, STRIPS
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed


def recording(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """Answers while the index is being built too, with what there is."""
    run = viewed.run
    header = run.recording.header
    viewed.refresh()
    state = viewed.state
    return {
        "name": viewed.path.resolve().name,
        "path": str(viewed.shown_path),
        "beside": viewed.beside,
        "model": str(header.environment.get("model") or header.config.get("model", "")),
        "numerics_class": str(header.environment.get("numerics_class", "")),
        "reprise_version": header.reprise_version,
        "origin": header.origin,
        "lives": _lives(viewed),
        "index": {
            "state": state.state,
            "num_entries": state.num_entries,
            "fraction": 1.0 if state.state == "ready" else state.fraction,
            "error": state.error,
        },
        "is_live": viewed.is_live,
        "generation": viewed.generation,
        "contents": _contents(viewed),
        "legend": [{"kind": number, "name": name} for number, name in enumerate(KINDS)],
        "strips": list(STRIPS),
        "notes": list(dict.fromkeys([*map(str, run.recording.notices), *viewed.end_notes()])),
    }


def _lives(viewed: Viewed) -> list[dict[str, Any]]:
    with viewed.database() as database:
        try:
            found = database.execute("SELECT * FROM lives ORDER BY life").fetchall()
        except sqlite3.OperationalError:  # nothing is indexed yet
            return []
        return [_life(viewed, database, dict(row)) for row in found]


def _life(viewed: Viewed, database: sqlite3.Connection, row: dict[str, Any]) -> dict[str, Any]:
    life, opened_ns = row["life"], row["opened_ns"]
    with viewed.columns(life) as columns:
        steps = columns.steps.steps
        num_steps, last_ns = len(steps), columns.last_ns
        ends = (int(steps[0]), int(steps[-1])) if num_steps else (0, 0)
        begins = [float(columns.steps.planned_ns[0])] if num_steps else []
    num_requests, first_ns, last_end_ns = database.execute(
        "SELECT count(*), min(arrival_ns), max(max(arrival_ns, coalesce(end_ns, 0))) FROM requests WHERE life = ?",
        (life,),
    ).fetchone()
    return {
        "life": life,
        "opened_ns": str(opened_ns),
        "opened_wall_ns": str(row["opened_wall_ns"]),
        "from_ns": max(0, min([*begins, *([first_ns - opened_ns] if first_ns else [])], default=0)),
        "to_ns": max(last_ns, (last_end_ns or opened_ns) - opened_ns),
        "first_step": ends[0],
        "last_step": ends[1],
        "num_steps": num_steps,
        "num_requests": num_requests,
        "policy": row["policy"],
        "limits": json.loads(row["limits_json"]),
    }


def _contents(viewed: Viewed) -> dict[str, Any]:
    """Whether there are any; only reading them tells whether the keys are here."""
    has_vault = any(segment.path.with_suffix(VAULT_SUFFIX).exists() for segment in viewed.run.recording.segments)
    reason = "" if has_vault else "recorded without contents (--record-content)"
    return {"readable": has_vault, "reason": reason}
