"""`reprise reload`: the daemon reads its options again; what came of it is printed.

Exit codes: 0 in force, 1 refused or not answered, 2 no daemon to be told.
"""

import argparse
import os
import signal
import sys
import time
from typing import Any

from daemon.running import running_daemons
from engine.clock import SystemClock

WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.02


def add_reload(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "reload",
        help="let a running daemon read its options again",
        description="Send SIGHUP to the daemon of this user, or of the service, and say what has changed. Policy, its "
        "parameters, queue bounds, keys, timeouts and the log's level change at once; the rest is named and waits.",
    )
    parser.add_argument("--pid", type=int, help="which daemon, where several run")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    daemons = running_daemons(os.environ)
    chosen = [daemon for daemon in daemons if parsed.pid in (None, daemon["pid"])]
    if len(chosen) != 1:
        print(f"reprise reload: {_which(daemons, parsed.pid)}", file=sys.stderr)
        return 2
    pid, num_before = chosen[0]["pid"], chosen[0]["reloads"]
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        print(f"reprise reload: {pid} cannot be told: {error.strerror}", file=sys.stderr)
        return 2
    outcome = _wait(pid, num_before)
    if outcome is None:
        print(f"reprise reload: {pid} has not answered within {WAIT_SECONDS:g} s: see its log", file=sys.stderr)
        return 1
    return _tell(outcome)


def _which(daemons: list[dict[str, Any]], pid: int | None) -> str:
    listed = ", ".join(f"{daemon['pid']} at {daemon['address']}" for daemon in daemons)
    if not daemons:
        return "no daemon runs that this user can see: run it as the daemon's user or root"
    return f"there are {listed}: name one with --pid" if pid is None else f"{pid} is no daemon: there are {listed}"


def _wait(pid: int, num_before: int) -> dict[str, Any] | None:
    clock = SystemClock()
    until_ns = clock.now_ns() + round(WAIT_SECONDS * 1e9)
    while clock.now_ns() < until_ns:
        for daemon in running_daemons(os.environ):
            if daemon["pid"] == pid and daemon["reloads"] > num_before:
                outcome: dict[str, Any] = daemon["last_reload"]
                return outcome
        time.sleep(_POLL_SECONDS)
    return None


def _tell(outcome: dict[str, Any]) -> int:
    if outcome["reason"]:
        print(f"refused, all stays as it was: {outcome['reason']}", file=sys.stderr)
        return 1
    print(f"in force now: {', '.join(outcome['changed']) or 'nothing else than before'}")
    if outcome["waiting"]:
        print(f"waits for the next start: {', '.join(outcome['waiting'])}")
    return 0
