"""`reprise keys`: what keys a record directory's vaults have; rotate, erase, rewrap. It never shows a key."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine.clock import SystemClock
from recorder.errors import RecordingError
from recorder.keys import KeyRing, open_ring, read_key_file


@dataclass(frozen=True, slots=True)
class Task:
    """One of them, or none: then the keys are listed. An empty tenant is one that clients gave no name for."""

    rotate: str | None = None
    erase: str | None = None
    rewrap: Path | None = None
    key_file: str = ""


def tend_keys(directory: Path, task: Task, as_json: bool) -> int:
    """`directory` holds the runs and their `keys`. Returns the exit code. Raises RecordingError."""
    folder = directory / "keys" if (directory / "keys").is_dir() else directory
    if not any(folder.glob("*.key")):
        raise RecordingError(f"{folder} holds no keys: give the record directory, or its folder of keys")
    ring = open_ring(folder, SystemClock(), os.environ, task.key_file)
    values = _done(ring, task)
    if as_json:
        print(json.dumps(values, indent=2))
    else:
        print(*_lines(values), sep="\n")
    return 0


def _done(ring: KeyRing, task: Task) -> dict[str, object]:
    if task.rotate is not None:
        return {"tenant": task.rotate, "new_key": ring.rotate(task.rotate).key_id.hex()}
    if task.erase is not None:
        return {"tenant": task.erase, "num_erased": ring.erase(task.erase)}
    if task.rewrap is not None:
        return {"num_rewrapped": ring.rewrap(read_key_file(task.rewrap))}
    return {"keys": [(key.key_id.hex(), key.tenant, _utc(key.created_wall_ns)) for key in ring.all()]}


def _lines(values: dict[str, object]) -> list[str]:
    keys = values.get("keys")
    if isinstance(keys, list):
        return [f"{key_id}  {created}  {tenant or '(no name)'}" for key_id, tenant, created in keys]
    return [f"{name.replace('_', ' ')}: {value}" for name, value in values.items()]


def _utc(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
