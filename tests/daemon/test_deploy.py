"""The container file and the Kubernetes example: judged by linters, and held against what the daemon really has."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemon.config_sources import read_config

DEPLOY = Path(__file__).parents[2] / "daemon" / "deploy"
LINTERS = Path(sys.executable).parent
CLOSING_SECONDS = 4.5  # drain.py


def linter(name: str) -> str:
    path = LINTERS / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: it comes with the extra 'test'")
    return str(path)


def run(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in documents}


def test_the_container_file_has_no_finding() -> None:
    told = run(linter("hadolint"), "--no-color", DEPLOY / "Containerfile")
    assert (told.returncode, told.stdout) == (0, "")


def test_what_runs_is_not_root_and_has_no_compiler() -> None:
    *_, final = (DEPLOY / "Containerfile").read_text().split("\nFROM ")
    assert "\nUSER 10001\n" in final
    assert "g++" not in final
    assert "useradd" in final.partition("\nUSER ")[0]


def test_the_image_can_fetch_the_embedded_models() -> None:
    """By the pip of its own environment."""
    build, _ = (DEPLOY / "Containerfile").read_text().rsplit("\nFROM ", 1)
    removed = build.partition("/opt/reprise/bin/pip uninstall --yes ")[2].split("\n")[0].split()
    assert removed == ["setuptools"]


def test_every_object_is_one_that_kubernetes_knows() -> None:
    told = run(linter("kubernetes-validate"), "--strict", DEPLOY / "kubernetes.yaml")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "ERROR" not in told.stdout + told.stderr


def test_probes_and_the_drain_are_those_of_the_daemon(objects: dict[str, Any], tmp_path: Path) -> None:
    pod = objects["Deployment/reprise"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert paths == ["/ready", "/health", "/ready"]
    file = tmp_path / "reprise.toml"
    file.write_text(objects["ConfigMap/reprise"]["data"]["reprise.toml"])
    config = read_config({}, {}, str(file))
    pause = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause + config.drain_timeout + CLOSING_SECONDS <= pod["terminationGracePeriodSeconds"]
    claimed = objects["PersistentVolumeClaim/reprise-recordings"]["spec"]["resources"]["requests"]["storage"]
    assert config.record_max_bytes + config.record_pin_bytes + config.record_min_free < int(claimed[:-2]) * 2**30
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
