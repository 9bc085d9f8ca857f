"""RUNBOOK.md under a real systemd: the unit as `reprise install-unit` writes it, with the real model.

A test each for what an operator does; they share one booted machine, so each leaves the service running.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.systemd.install import SYSTEM_FOLDER
from engine.text.model_cache import models_folder
from tests.systemd.machine import Machine

pytestmark = pytest.mark.slow
FOLDER = os.environ.get("REPRISE_DEBIAN", "")
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
OPERATOR, TENANT = "operators-key", "tenants-key"
OPTIONS = f'model = "/srv/models/{MODEL}"\nmax-num-seqs = 2\nstall-timeout = 2\naudit-rate = 0\n'
URL = "http://127.0.0.1:8000"
WAIT_SECONDS = 90.0


def keys(**sha256_of: str) -> str:
    tables = []
    for tenant, key in sha256_of.items():
        digest = hashlib.sha256(key.encode()).hexdigest()
        tables.append(f'[tenants.{tenant}]\nsha256 = ["{digest}"]\nadmin = {str(tenant == "ops").lower()}\n')
    return "".join(tables)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    for tool in ("systemd-nspawn", "debootstrap", "nsenter"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here: `make systemd-boot` brings it where this may install packages")
    if os.geteuid() != 0 or not FOLDER:
        pytest.skip("a system can be booted by root alone, with the folder that `make systemd-boot` makes")
    if not (models_folder() / MODEL).exists():
        pytest.skip("the embedded model is not in the cache yet")
    with Machine(Path(FOLDER), models_folder(), tmp_path_factory.mktemp("nspawn") / "log") as booted:
        booted.write("/etc/reprise/reprise.toml", OPTIONS)
        booted.write("/etc/credstore/reprise-api-keys", keys(ops=OPERATOR, chat=TENANT))
        booted.run("reprise", "install-unit")
        booted.write(
            f"{SYSTEM_FOLDER}/reprise.service.d/test.conf",
            "[Service]\nWatchdogSec=4\n[Unit]\nStartLimitIntervalSec=0\n",
        )
        booted.run("systemctl", "daemon-reload")
        booted.run("systemctl", "enable", "--now", "reprise.service")
        yield booted


def ask(machine: Machine, path: str, body: dict[str, object] | None = None, key: str = OPERATOR) -> tuple[int, str]:
    """Status and answer."""
    command = ["curl", "-s", "-w", "\n%{http_code}", "-H", f"Authorization: Bearer {key}", f"{URL}{path}"]
    if body is not None:
        command += ["-d", json.dumps(body)]
    text, _, status = machine.run(*command).rpartition("\n")
    return int(status), text


def until(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not happens():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_the_unit_is_sound_and_closed(machine: Machine) -> None:
    unit = f"{SYSTEM_FOLDER}/reprise.service"
    told = machine.try_run("systemd-analyze", "verify", unit)
    assert {
        line for line in told.stderr.splitlines() if "man systemd.exec" not in line
    } == set()  # no man in so small a Debian
    exposure = machine.run("systemd-analyze", "security", "--offline=true", unit).splitlines()[-1]
    assert float(exposure.partition("reprise.service: ")[2].split()[0]) <= 1.2


def test_a_start_ends_when_the_model_answers_and_not_before(machine: Machine) -> None:
    """`systemctl enable --now` has come back in the fixture: systemd had READY=1 by then."""
    assert ask(machine, "/ready")[0] == 200
    shown = machine.properties("reprise", "ActiveState", "StatusText", "NRestarts", "User", "DynamicUser")
    assert (shown["ActiveState"], shown["NRestarts"], shown["DynamicUser"]) == ("active", "0", "yes")
    assert shown["StatusText"].startswith("serving SmolLM2")
    status, answer = ask(machine, "/v1/completions", {"prompt": "Once", "max_tokens": 4}, TENANT)
    assert (status, json.loads(answer)["usage"]["completion_tokens"]) == (200, 4)
    assert ask(machine, "/v1/completions", {"prompt": "Once"}, "wrong")[0] == 401
    owner = machine.run("stat", "-c", "%U %a", "/var/lib/private/reprise/recordings").split()
    assert owner == ["reprise", "700"] or owner[0] not in ("root", "nobody")


def test_the_journal_has_the_fields_of_each_line(machine: Machine) -> None:
    body: dict[str, object] = {"prompt": "Once", "max_tokens": 2, "request_id": "find-me"}
    assert ask(machine, "/v1/completions", body, TENANT)[0] == 200
    until(lambda: "request ended" in machine.run("journalctl", "REQUEST_ID=find-me", "-o", "cat"), "it is there")
    lines = [json.loads(line) for line in machine.run("journalctl", "REQUEST_ID=find-me", "-o", "json").splitlines()]
    (line,) = [line for line in lines if line["MESSAGE"].startswith("request ended")]
    assert (line["_SYSTEMD_UNIT"], line["NUM_OUTPUT_TOKENS"], line["PRIORITY"]) == ("reprise.service", "2", "6")
    assert OPERATOR not in machine.run("journalctl", "-u", "reprise", "-o", "export")


def test_a_reload_takes_policy_and_keys_while_it_serves(machine: Machine) -> None:
    pid = machine.properties("reprise", "MainPID")["MainPID"]
    machine.write("/etc/reprise/reprise.toml", OPTIONS + 'scheduling-policy = "shortest"\nswap-space = "64MiB"\n')
    machine.run("systemctl", "reload", "reprise")
    until(lambda: '"scheduling-policy": {"value": "shortest"' in ask(machine, "/config")[1], "the policy is in force")
    told = machine.run("reprise", "reload")
    assert told == "in force now: nothing else than before\nwaits for the next start: swap-space\n"
    assert machine.properties("reprise", "MainPID", "ActiveState") == {"MainPID": pid, "ActiveState": "active"}
    run = machine.run("sh", "-c", "ls -d /var/lib/reprise/recordings/2*").split()[-1]
    assert "policy=shortest" in machine.run("sh", "-c", f"reprise show {run} --transcript | grep PolicyChanged")
    machine.write("/etc/reprise/reprise.toml", OPTIONS + 'scheduling-policy2 = "shortest"\n')
    refused = machine.try_run("reprise", "reload")
    assert (refused.returncode, "scheduling-policy2 is not an option" in refused.stderr) == (1, True)
    machine.write("/etc/reprise/reprise.toml", OPTIONS)
    machine.run("systemctl", "reload", "reprise")


def test_an_engine_that_stands_still_starves_the_watchdog_and_is_started_anew(machine: Machine) -> None:
    before = machine.properties("reprise", "MainPID", "NRestarts")
    engine = machine.run("pgrep", "-f", "engine.process").split()[0]
    machine.run("kill", "-STOP", engine)
    stuck = machine.start(
        "curl", "-s", "-H", f"Authorization: Bearer {TENANT}", f"{URL}/v1/completions", "-d", '{"prompt": "a"}'
    )
    restarts = int(before["NRestarts"]) + 1
    until(lambda: int(machine.properties("reprise", "NRestarts")["NRestarts"]) == restarts, "it is started anew")
    stuck.communicate(timeout=WAIT_SECONDS)
    until(lambda: machine.properties("reprise", "ActiveState")["ActiveState"] == "active", "it serves again")
    assert machine.properties("reprise", "MainPID")["MainPID"] != before["MainPID"]
    assert "Watchdog timeout (limit 4s)!" in machine.run("journalctl", "--no-pager", "-u", "reprise")
    assert engine not in machine.try_run("pgrep", "-f", "engine.process").stdout.split()
    assert ask(machine, "/v1/completions", {"prompt": "Once", "max_tokens": 2}, TENANT)[0] == 200


def test_a_stop_lets_what_runs_end_and_refuses_what_is_new(machine: Machine) -> None:
    body = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True})
    running = machine.start("curl", "-sN", "-H", f"Authorization: Bearer {TENANT}", f"{URL}/v1/completions", "-d", body)
    until(lambda: json.loads(ask(machine, "/health")[1])["num_live_requests"] == 1, "it runs")
    stopping = machine.start("systemctl", "stop", "reprise.service")
    answer, _ = running.communicate(timeout=WAIT_SECONDS)
    assert answer.endswith("data: [DONE]\n\n")
    assert answer.count('"choices"') >= 100, "tokens are told, some of them together"
    stopping.communicate(timeout=WAIT_SECONDS)
    shown = machine.properties("reprise", "ActiveState", "Result", "ExecMainStatus")
    assert shown == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}, "no timeout, no kill"
    run = machine.run("sh", "-c", "ls -d /var/lib/private/reprise/recordings/2*").split()[-1]
    assert machine.run("reprise", "check", run).startswith("check: equal")
    machine.run("systemctl", "start", "reprise.service")


def test_connections_wait_at_the_socket_while_the_daemon_starts(machine: Machine) -> None:
    machine.run("systemctl", "stop", "reprise.service")
    machine.run("systemctl", "enable", "--now", "reprise.socket")
    assert machine.properties("reprise.service", "ActiveState")["ActiveState"] == "inactive"
    assert ask(machine, "/health")[0] == 200, "this connection starts it"
    until(lambda: ask(machine, "/ready")[0] == 200, "it is ready")
    restarting = machine.start("systemctl", "restart", "reprise.service")
    statuses = set()
    while restarting.poll() is None:
        statuses.add(ask(machine, "/health")[0])
    restarting.communicate(timeout=WAIT_SECONDS)
    assert statuses == {200}, "no connection is refused meanwhile"
    assert machine.properties("reprise.socket", "ActiveState", "SubState") == {
        "ActiveState": "active",
        "SubState": "running",
    }
    machine.run("systemctl", "disable", "--now", "reprise.socket")
    machine.run("systemctl", "restart", "reprise.service")


def test_an_option_that_cannot_be_used_ends_it_for_good_and_the_journal_says_why(machine: Machine) -> None:
    machine.write("/etc/reprise/reprise.toml", OPTIONS + "max-num-seq = 3\n")
    assert machine.try_run("systemctl", "restart", "reprise.service").returncode != 0
    shown = machine.properties("reprise", "ActiveState", "ExecMainStatus", "NRestarts")
    assert (shown["ActiveState"], shown["ExecMainStatus"]) == ("failed", "2")
    assert "did you mean max-num-seqs?" in machine.run("journalctl", "--no-pager", "-u", "reprise", "-n", "20")
    machine.write("/etc/reprise/reprise.toml", OPTIONS)
    machine.run("systemctl", "restart", "reprise.service")
    assert ask(machine, "/ready")[0] == 200
