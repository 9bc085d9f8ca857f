"""Models pulled from a hub: names, and where their files lie. It asks no network: `hub.py` does.

models/hub/ORG--REPO/             what was pulled as org/repo, and a manifest of it
models/hub/ORG--REPO--FILE/       what was pulled as org/repo:file.gguf
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from engine.core.errors import ModelError
from engine.text.model_cache import models_folder

MANIFEST = "reprise-manifest.json"

_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<file>[^:\\]+\.gguf))?")


@dataclass(frozen=True, slots=True)
class HubName:
    """`org/repo`, or `org/repo:file.gguf`."""

    repo: str
    file: str | None

    @classmethod
    def parse(cls, name: str) -> "HubName | None":
        """None where it is no such name."""
        match = _NAME.fullmatch(name)
        if match is None or ".." in PurePosixPath(match["file"] or "").parts or (match["file"] or "").startswith("/"):
            return None
        return cls(match["repo"], match["file"])

    def __str__(self) -> str:
        return self.repo if self.file is None else f"{self.repo}:{self.file}"

    @property
    def folder(self) -> Path:
        """Where it lies, pulled or not."""
        parts = [*self.repo.split("/"), *(self.file or "").removesuffix(".gguf").split("/")]
        return hub_folder() / "--".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class PulledModel:
    """
    revision   the commit that it was pulled at
    gguf       the one file that is the model; "": the whole folder is
    files      name → hex sha256, as they were when they came
    """

    name: str
    revision: str
    gguf: str
    files: Mapping[str, str]
    folder: Path

    @property
    def path(self) -> Path:
        """What is served."""
        return self.folder / self.gguf if self.gguf else self.folder


def hub_folder() -> Path:
    return models_folder() / "hub"


def find_pulled(name: str) -> PulledModel | None:
    """The model pulled under this name; None where it was not. Raises ModelError where its manifest is damaged."""
    hub_name = HubName.parse(name)
    return _read(hub_name.folder) if hub_name is not None and (hub_name.folder / MANIFEST).is_file() else None


def pulled_models() -> list[PulledModel]:
    """All, by name. Raises ModelError as `find_pulled`."""
    return sorted([_read(path.parent) for path in hub_folder().glob(f"*/{MANIFEST}")], key=lambda model: model.name)


def write_manifest(model: PulledModel, folder: Path) -> None:
    fields = {name: value for name, value in asdict(model).items() if name != "folder"}
    (folder / MANIFEST).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def _read(folder: Path) -> PulledModel:
    try:
        return PulledModel(folder=folder, **json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{folder / MANIFEST} cannot be read ({error}): remove the folder and pull the model again"
        ) from error
