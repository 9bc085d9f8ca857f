"""Where recordings lie: one folder per run, made before the engine starts, readable by its owner alone."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from daemon.config import DaemonConfig
from engine.clock import Clock
from engine.core.errors import EngineError


class NoRunDirectory(EngineError):
    """The folder for this run's recording cannot be made."""


def make_run_directory(config: DaemonConfig, environment: Mapping[str, str], clock: Clock) -> Path | None:
    """A new, empty folder such as 20261130T104500Z-3fa9c1; None when nothing is to be recorded.

    Raises NoRunDirectory, which says what to do.
    """
    if not config.is_recording:
        return None
    parent = Path(config.record_dir).expanduser() if config.record_dir else default_record_directory(environment)
    started = datetime.fromtimestamp(clock.wall_ns() // 1_000_000_000, UTC)
    run = parent / f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        run.mkdir(mode=0o700)
    except OSError as error:
        raise NoRunDirectory(
            f"the recording's folder {run} cannot be made: {error.strerror}; "
            "give another with --record-dir, or --record-dir none to record nothing"
        ) from error
    return run.resolve()


def resume_directory(config: DaemonConfig, environment: Mapping[str, str]) -> Path:
    """Where resumable streams are kept for the next daemon at this address, beside the runs; it need not exist."""
    is_given = config.is_recording and bool(config.record_dir)
    parent = Path(config.record_dir).expanduser() if is_given else default_record_directory(environment)
    return parent / "resume" / f"{config.host.replace('/', '_')}-{config.port}"


def default_record_directory(environment: Mapping[str, str]) -> Path:
    """The service's state directory under systemd, else the user's."""
    under_systemd = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if under_systemd:
        return Path(under_systemd) / "recordings"
    state_home = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state_home).expanduser() / "reprise" / "recordings"
