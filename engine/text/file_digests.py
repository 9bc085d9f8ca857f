"""The sha256 of large files, computed once: a stamp in the cache folder stands for the bytes until the file changes.

A stamp holds size, inode, mtime and ctime; where one of them differs the file is read again. A cache folder that
cannot be written costs the reading each time, nothing else.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """$REPRISE_CACHE, else $XDG_CACHE_HOME/reprise, else ~/.cache/reprise."""
    if own := os.environ.get("REPRISE_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "reprise"


def file_sha256(path: Path) -> str:
    """Hex sha256 of the file at `path`. Raises OSError where it cannot be read."""
    path = path.resolve()
    stamp_path = cache_folder() / "digests" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
    with path.open("rb") as file:
        identity = _identity(file.fileno())
        known = _read_stamp(stamp_path)
        if known.get("identity") == identity and isinstance(known.get("sha256"), str):
            return str(known["sha256"])
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if _identity(file.fileno()) == identity:  # unchanged while it was read
            _write_stamp(stamp_path, {"path": str(path), "identity": identity, "sha256": digest})
    return digest


def _identity(descriptor: int) -> list[int]:
    status = os.fstat(descriptor)
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _read_stamp(stamp_path: Path) -> dict[str, object]:
    try:
        stamp = json.loads(stamp_path.read_bytes())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(stamp_path: Path, stamp: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        stamp_path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=stamp_path.parent, prefix=".stamp-")
        with os.fdopen(descriptor, "w") as file:
            json.dump(stamp, file)
        Path(temporary).replace(stamp_path)
