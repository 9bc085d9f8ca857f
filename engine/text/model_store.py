"""The models on this machine: what there is, whether it is still what it was, and taking it away.

The embedded ones and those pulled from a hub; a file or folder of one's own is served by its path and not kept track
of. It asks no network.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.core.errors import ModelError
from engine.text.embedded_models import EMBEDDED_MODELS
from engine.text.gguf_metadata import read_gguf_metadata
from engine.text.model_cache import models_folder
from engine.text.model_source import DEFAULT_MODEL
from engine.text.pulled_models import PulledModel, find_pulled, pulled_models

State = Literal["ok", "damaged", "missing"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """
    path           of the GGUF file or the folder; None: it is embedded and not on this machine
    num_bytes      of its files; of those to be fetched where it is not here
    format         a GGUF file's quantisation as its metadata name it, else "safetensors"
    architecture   as the files name it
    sha256         of the file; of a folder, of its manifest's digests; of an embedded one, as pinned
    """

    name: str
    path: Path | None
    num_bytes: int
    format: str
    architecture: str
    sha256: str
    source: str

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT_MODEL


def stored_models() -> list[StoredModel]:
    """The embedded ones, here or not, then those pulled. Raises ModelError where what is here cannot be read."""
    embedded = [_embedded(name) for name in EMBEDDED_MODELS]
    return embedded + [_pulled(model) for model in pulled_models()]


def verify_model(name: str) -> dict[Path, State]:
    """Every file of the model, read anew and compared with its digest. Raises ModelError: there is no such model."""
    model = _require(name)
    if isinstance(model, PulledModel):
        return {model.folder / file: _state(model.folder / file, sha256) for file, sha256 in model.files.items()}
    embedded = EMBEDDED_MODELS[name]
    path = models_folder() / embedded.file_name
    return {path: _state(path, embedded.file_sha256)}


def remove_model(name: str) -> int:
    """Delete the model's files; how many bytes that freed. A daemon that serves it goes on. Raises ModelError."""
    model = _require(name)
    path = model.folder if isinstance(model, PulledModel) else model
    num_bytes = _num_bytes(path)
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        raise ModelError(f"{path} cannot be removed: {error}") from error
    return num_bytes


def _require(name: str) -> PulledModel | Path:
    """Of an embedded model its file. Raises ModelError."""
    if name in EMBEDDED_MODELS:
        path = models_folder() / EMBEDDED_MODELS[name].file_name
        if path.is_file():
            return path
    elif (pulled := find_pulled(name)) is not None:
        return pulled
    raise ModelError(f"{name} is not on this machine: `reprise models list` shows what is, `pull` fetches it")


def _embedded(name: str) -> StoredModel:
    model = EMBEDDED_MODELS[name]
    path = models_folder() / model.file_name
    source = "+".join(wheel.requirement for wheel in model.wheels)
    if not path.is_file():
        return StoredModel(name, None, model.num_bytes, "", model.architecture, model.file_sha256, source)
    architecture, format = _gguf_kind(path)
    return StoredModel(name, path, path.stat().st_size, format, architecture, model.file_sha256, source)


def _pulled(model: PulledModel) -> StoredModel:
    source = f"{model.name}@{model.revision}"
    if model.gguf:
        architecture, format = _gguf_kind(model.path) if model.path.is_file() else ("", "")
        sha256 = model.files[model.gguf]
    else:
        architecture, format = _folder_architecture(model.folder), "safetensors"
        text = "".join(f"{file}\0{digest}\n" for file, digest in sorted(model.files.items()))
        sha256 = hashlib.sha256(text.encode()).hexdigest()
    return StoredModel(model.name, model.path, _num_bytes(model.folder), format, architecture, sha256, source)


def _gguf_kind(path: Path) -> tuple[str, str]:
    """Architecture, and the name of the quantisation; "" where the file does not say."""
    from gguf.constants import LlamaFileType  # numbers as llama.cpp has them

    metadata = read_gguf_metadata(path, leave_out=("tokenizer.",))
    number = metadata.get("general.file_type")
    names = {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    return metadata.string("general.architecture", ""), names.get(number, "gguf") if isinstance(number, int) else "gguf"


def _folder_architecture(folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_bytes()).get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _state(path: Path, sha256: str) -> State:
    try:
        with path.open("rb") as file:
            return "ok" if hashlib.file_digest(file, "sha256").hexdigest() == sha256 else "damaged"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _num_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
