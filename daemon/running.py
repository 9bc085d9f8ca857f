"""A running daemon as other commands find it: one small file in the runtime directory, locked while the daemon lives.

    daemon-4711.json   {"pid": 4711, "address": "127.0.0.1:8000", "reloads": 2, "last_reload": {"reason": "", …}}

The lock tells a daemon from what one has left behind, whatever process has the number now. The file holds no secret.
It must not know what a reload does.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

_PATTERN = "daemon-*.json"

log = structlog.get_logger(__name__)


class RunningDaemon:
    """This process's own file: made with `announce`, gone with `close`. Without effect where it cannot be made."""

    def __init__(self, path: Path, descriptor: int, content: dict[str, Any]) -> None:
        self._path, self._descriptor, self._content = path, descriptor, content
        self._write()

    @classmethod
    def announce(cls, environment: Mapping[str, str], address: str) -> "RunningDaemon | None":
        """None, with a warning, where there is no folder for it: then `reprise reload` needs the daemon's pid."""
        folder = runtime_folders(environment)[0]
        path = folder / f"daemon-{os.getpid()}.json"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(path, descriptor, {"pid": os.getpid(), "address": address, "reloads": 0, "last_reload": {}})
        except OSError as error:
            log.warning("other commands will not find this daemon", directory=str(folder), reason=error.strerror)
            return None

    def note_reload(self, outcome: Mapping[str, Any]) -> None:
        self._content = {**self._content, "reloads": self._content["reloads"] + 1, "last_reload": dict(outcome)}
        self._write()

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _write(self) -> None:
        """In place, for the lock is on this file: a reader that meets half of it reads again."""
        text = json.dumps(self._content).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))


def running_daemons(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """What the daemons that live now say of themselves, of every folder that this user may read."""
    found = []
    for folder in runtime_folders(environment):
        for path in sorted(folder.glob(_PATTERN)):
            said = _read_locked(path)
            if said is not None:
                found.append(said)
    return found


def runtime_folders(environment: Mapping[str, str]) -> list[Path]:
    """Where daemons announce themselves: the first is where one with this environment does."""
    under_systemd = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    of_user = environment.get("XDG_RUNTIME_DIR", "")
    home = Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    own = Path(under_systemd or Path(of_user or home) / "reprise")
    service = Path("/run/reprise")
    return [own] if own == service else [own, service]


def _read_locked(path: Path) -> dict[str, Any] | None:
    """None of a daemon that is gone."""
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                said: dict[str, Any] = json.loads(file.read())
                return said
    except (OSError, ValueError):
        return None
    return None
