"""What must hold after every case, whatever it was: the daemon is idle, alive, and its recording is true.

`check_daemon` while it runs (I1, I2), `check_recording` after it stopped (I3, I4, I5).
"""

import json
import time
from pathlib import Path

import httpx

from engine.core.decisions import RequestFinished, RequestRejected
from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry
from recorder.reader import Recording
from tests.integration.client import completion
from tests.integration.daemon_process import DaemonProcess, reprise


def wait_idle(daemon: DaemonProcess, seconds: float = 30.0) -> dict[str, float]:
    """The metrics once nothing runs or waits. Raises when that takes longer."""
    deadline = time.monotonic() + seconds
    while True:
        metrics = daemon.metrics()
        if metrics["vllm:num_requests_running"] == 0 and metrics["vllm:num_requests_waiting"] == 0:
            return metrics
        assert time.monotonic() < deadline, "requests still run or wait"
        time.sleep(0.05)


def num_finished(metrics: dict[str, float], reason: str) -> float:
    """The counter of requests that ended for the engine's `reason`."""
    name, label = "reprise:requests_finished_total", f'reason="{reason}"'
    return sum(value for key, value in metrics.items() if key.startswith(f"{name}{{") and label in key)


def check_daemon(daemon: DaemonProcess) -> None:
    """Idle within five seconds without a new request, no block held, healthy, and a ten-token request finishes."""
    metrics = wait_idle(daemon)
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    assert daemon.get("/health").status_code == 200
    answer = httpx.post(f"{daemon.base_url}/v1/completions", json=completion(10, 77, output=10), timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 10


def entries_of(path: Path) -> list[Entry]:
    return list(Recording.open(path).entries())


def ends_of(entries: list[Entry]) -> dict[str, list[RequestFinished | RequestRejected]]:
    """request_id → its end records."""
    ids: dict[int, str] = {}
    ends: dict[str, list[RequestFinished | RequestRejected]] = {}
    for entry in entries:
        if isinstance(entry.event, RequestArrived):
            ids[entry.event.request] = entry.event.request_id
            ends[entry.event.request_id] = []
        for decision in entry.decisions:
            if isinstance(decision, RequestFinished | RequestRejected):
                ends[ids[decision.request]].append(decision)
    return ends


def check_recording(path: Path, *, execute: bool = False) -> list[Entry]:
    """One end for each request that arrived; the core decides the same again; with `execute`, the model too."""
    entries = entries_of(path)
    for request_id, ends in ends_of(entries).items():
        assert len(ends) == 1, f"{request_id} has {len(ends)} end records"
    checked = reprise("check", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    if execute:
        executed = reprise("execute", path, "--json")
        assert executed.returncode == 0, executed.stdout + executed.stderr
        assert json.loads(executed.stdout), executed.stdout
    return entries
