"""Prometheus' own tool judges the alert rules, the configuration, and what /metrics says after real requests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.served import Served
from tests.daemon.telemetry.pages import scrape
from tests.daemon.test_server import tell_alone

PROVISIONING = Path(__file__).parents[3] / "daemon" / "telemetry" / "provisioning"
COLON = "metric names should not contain ':'"  # vLLM's all do, and ours beside them
TOTAL = 'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix'


@pytest.fixture(scope="module")
def promtool() -> str:
    beside = Path(sys.executable).parent / "promtool"
    found = str(beside) if beside.exists() else shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here: `make promtool` takes it from Debian's package")
    return found


def run(*command: str, page: str = "") -> tuple[int, str]:
    done = subprocess.run([*command], input=page, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_rules_and_configuration_are_sound(promtool: str) -> None:
    code, told = run(promtool, "check", "rules", str(PROVISIONING / "alerts.yaml"))
    assert (code, "FAILED" in told) == (0, False), told
    code, told = run(promtool, "check", "config", str(PROVISIONING / "prometheus.yaml"))
    assert (code, "FAILED" in told) == (0, False), told


def test_the_page_is_one_that_prometheus_reads_and_its_only_faults_are_names_that_others_gave(promtool: str) -> None:
    pages: list[str] = []

    async def story(served: Served) -> None:
        status, _ = await served.complete(max_tokens=4)
        assert status == 200
        await served.complete(temperature=-1)
        pages.append(await scrape(served))

    tell_alone(story)
    code, told = run(promtool, "check", "metrics", page=pages[0])
    assert code in (0, 3), told  # 3: advice only
    assert {line for line in told.splitlines() if line and not line.endswith(COLON)} <= {TOTAL}, told
