"""The daemon under a service manager: what it says while it loads, serves, hangs, reloads and stops, in this order.

All on a socket that it was handed, and under the unit's system call filter and W^X.
"""

import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from tests.integration.manager import Manager, denied_calls

KEYS = ("CaNaRy-first", "CaNaRy-second")


def key_file(path: Path, key: str) -> None:
    path.write_text(f'[tenants.a]\nsha256 = ["{hashlib.sha256(key.encode()).hexdigest()}"]\nadmin = true\n')


def test_a_service_tells_its_whole_life_on_a_socket_that_it_was_handed(tmp_path: Path) -> None:
    (tmp_path / "reprise.toml").write_text("max-num-seqs = 2\n")
    slow = {"inject": "step-slow@step=3:ms=4000", "stall_timeout": 1, "num_kv_blocks": 64}
    with Manager(tmp_path, watchdog_seconds=0.6, **slow) as manager:
        key_file(tmp_path / "credentials" / "reprise-api-keys", KEYS[0])
        waiting = threading.Thread(target=lambda: httpx.get(f"{manager.base_url}/health", timeout=60))
        waiting.start()  # nobody accepts yet: it waits in the socket's queue
        check_start(manager)
        waiting.join()
        check_watchdog(manager)
        check_reload(manager)
        check_stop(manager)


def check_start(manager: Manager) -> None:
    ready = manager.wait_for(READY="1")
    before = manager.messages[:-1]
    assert not any("WATCHDOG" in message for message in before)
    assert any("EXTEND_TIMEOUT_USEC" in message for message in before)
    assert any("engine starting" in message.get("STATUS", "") for message in before)
    assert ready["STATUS"].startswith("serving smollm2-135m-instruct at 127.0.0.1:")
    assert (manager.directory / "state" / "recordings").is_dir()
    status = Path(f"/proc/{manager.process.pid}/status").read_text()
    assert ("Seccomp:\t2" in status) == bool(denied_calls())


def check_watchdog(manager: Manager) -> None:
    """A step that takes longer than --stall-timeout starves the watchdog, though the daemon's own loop turns."""
    manager.wait_for(WATCHDOG="1")
    headers = {"Authorization": f"Bearer {KEYS[0]}"}
    body = {"prompt": "a", "max_tokens": 8, "ignore_eos": True}
    asking = threading.Thread(
        target=lambda: httpx.post(f"{manager.base_url}/v1/completions", json=body, headers=headers, timeout=60)
    )
    asking.start()
    while "no step has ended" not in (manager.hear(10.0) or {}).get("STATUS", ""):
        assert asking.is_alive(), "the step ended, and its length was never said"
    assert httpx.get(f"{manager.base_url}/health", timeout=60).status_code == 503
    stalled_at = len(manager.messages)
    while not manager.messages[-1].get("STATUS", "").startswith("serving"):
        assert manager.hear(10.0) is not None
    assert not any("WATCHDOG" in message for message in manager.messages[stalled_at:-1])
    manager.wait_for(WATCHDOG="1")
    asking.join()


def check_reload(manager: Manager) -> None:
    key_file(manager.directory / "credentials" / "reprise-api-keys", KEYS[1])
    (manager.directory / "reprise.toml").write_text("max-num-seqs = 3\nscheduling-policy = 'shortest'\n")
    heard_before, asked_ns = len(manager.messages), time.monotonic_ns()
    told = subprocess.run(
        [sys.executable, "-m", "daemon", "reload", "--pid", str(manager.process.pid)],
        capture_output=True,
        text=True,
        timeout=60,
        env=manager.environment,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == "in force now: api-key-file, scheduling-policy\nwaits for the next start: max-num-seqs\n"
    reloading = manager.wait_for(RELOADING="1")
    assert asked_ns // 1000 <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    manager.wait_for(READY="1")
    said = [message for message in manager.messages[heard_before:] if {"RELOADING", "READY"} & message.keys()]
    assert [next(iter(message)) for message in said] == ["RELOADING", "READY"]
    statuses = []
    for key in KEYS:
        headers = {"Authorization": f"Bearer {key}"}
        statuses.append(httpx.get(f"{manager.base_url}/config", headers=headers, timeout=60).status_code)
    assert statuses == [401, 200]


def check_stop(manager: Manager) -> None:
    heard_before = len(manager.messages)
    assert manager.stop() == 0
    while manager.hear(0.2) is not None:
        pass
    said = manager.messages[heard_before:]
    assert sum("STOPPING" in message for message in said) == 1
    stopping = next(index for index, message in enumerate(said) if "STOPPING" in message)
    assert not any("READY" in message or "RELOADING" in message for message in said[stopping:])
    assert "CaNaRy" not in manager.log
    recorded = (manager.directory / "state" / "recordings").rglob("*")
    assert not any(b"CaNaRy" in path.read_bytes() for path in recorded if path.is_file())
    assert list((manager.directory / "runtime").glob("daemon-*.json")) == []
