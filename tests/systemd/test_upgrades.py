"""RUNBOOK.md under a real systemd: streams outlive a restart, and a service brings its certificate by credentials."""

import json
from collections.abc import Iterator

import pytest

from tests.systemd.machine import Machine
from tests.systemd.test_service import OPTIONS, TENANT, URL, WAIT_SECONDS, ask, machine, until

pytestmark = pytest.mark.slow
__all__ = ["machine"]
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=localhost"
    " -addext subjectAltName=IP:127.0.0.1 -keyout /etc/credstore/reprise-tls-key -out /etc/credstore/reprise-tls-cert"
)


@pytest.fixture(autouse=True)
def _as_it_was(machine: Machine) -> Iterator[None]:
    yield
    machine.write("/etc/reprise/reprise.toml", OPTIONS)


def test_a_stream_goes_on_in_the_next_daemon(machine: Machine) -> None:
    machine.write("/etc/reprise/reprise.toml", OPTIONS + "drain-timeout = 1\n")
    machine.run("systemctl", "reload", "reprise")
    body = json.dumps({"prompt": "Once", "max_tokens": 600, "ignore_eos": True, "stream": True})
    headers = ["-H", f"Authorization: Bearer {TENANT}"]
    asking = ["-H", "X-Request-Id: live-1", "-H", "X-Reprise-Resume-Seconds: 120", "-d", body]
    cut = machine.start("curl", "-sN", *headers, *asking, f"{URL}/v1/completions")
    until(lambda: json.loads(ask(machine, "/health")[1])["num_live_requests"] == 1, "it runs")
    machine.run("systemctl", "restart", "reprise.service")
    first, _ = cut.communicate(timeout=WAIT_SECONDS)
    assert '"code": "draining"' in first.replace('":"', '": "')
    last = ids(first)[-1]
    rest = machine.run("curl", "-sN", *headers, "-H", f"Last-Event-ID: {last}", f"{URL}/v1/streams/live-1")
    assert rest.endswith("data: [DONE]\n\n")
    told = [int(each.partition(".")[0]) for each in ids(first) + ids(rest)]
    assert told == sorted(told)
    assert told[-1] == 600


def ids(stream: str) -> list[str]:
    return [line.removeprefix("id: ") for line in stream.splitlines() if line.startswith("id: ")]


def test_a_certificate_among_the_credentials_makes_it_https(machine: Machine) -> None:
    machine.run("sh", "-c", CERTIFICATE)
    machine.run("systemctl", "restart", "reprise.service")
    trusted = ["curl", "-s", "--cacert", "/etc/credstore/reprise-tls-cert"]
    assert machine.run(*trusted, "-o", "/dev/null", "-w", "%{http_code}", "https://127.0.0.1:8000/ready") == "200"
    assert machine.try_run("curl", "-s", f"{URL}/ready").returncode != 0
    machine.run("sh", "-c", "rm /etc/credstore/reprise-tls-key")
    assert machine.try_run("systemctl", "restart", "reprise.service").returncode != 0
    assert "--tls-cert is given and --tls-key is not" in machine.run(
        "journalctl", "--no-pager", "-u", "reprise", "-n", "30"
    )
    machine.run(
        "sh", "-c", "rm /etc/credstore/reprise-tls-cert; systemctl reset-failed reprise; systemctl restart reprise"
    )
    assert ask(machine, "/ready")[0] == 200
