"""Where a model's files are: a name, a Hugging Face folder or a GGUF file → path, kind and digest.

It knows names and files, never what is in them. Fetching an embedded model is `model_cache.py`'s.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.core.errors import ModelError
from engine.text.embedded_models import EMBEDDED_MODELS
from engine.text.file_digests import file_sha256
from engine.text.model_cache import fetch_embedded_model
from engine.text.pulled_models import HubName, find_pulled

DEFAULT_MODEL = "smollm2-135m-instruct"

# What decides a folder's tokens and text, beside config.json and the weights (*.safetensors).
TOOL_TEMPLATE = "additional_chat_templates/tool_use.jinja"
TEXT_FILES = (
    TOOL_TEMPLATE,
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model's files.

    name     what the model is served as when no other name is given
    path     the GGUF file, or the folder
    sha256   hex digest of the file; of a folder, over the sorted (name, sha256) of the files that decide its answers
    """

    name: str
    path: Path
    kind: Literal["gguf", "folder"]
    sha256: str


def resolve_model(name_or_path: str) -> ModelSource:
    """The files of `name_or_path`; an embedded model that is not in the cache yet is fetched.

    An embedded name wins over a folder of the same name in the working directory: write ./NAME for the folder. A path
    wins over a name on the hub, which is known once it was pulled.
    Raises ModelError: nothing of that name, files that no model could be, a fetch that failed.
    """
    embedded = EMBEDDED_MODELS.get(name_or_path)
    if embedded is not None:
        return ModelSource(name_or_path, fetch_embedded_model(embedded), "gguf", embedded.file_sha256)
    path = Path(name_or_path).expanduser()
    try:
        if path.exists():
            return _of_path(path.resolve().name if path.is_dir() else path.stem, path)
        if (pulled := find_pulled(name_or_path)) is not None:
            return _of_path(name_or_path, pulled.path)
    except OSError as error:
        raise ModelError(f"the model {name_or_path!r} cannot be read: {error}") from error
    on_hub = HubName.parse(name_or_path)
    pulling = "" if on_hub is None else f", or fetch it from the hub: `reprise models pull {on_hub}`"
    raise ModelError(
        f"no model {name_or_path!r}: it is no path that exists, and the embedded models are "
        f"{', '.join(EMBEDDED_MODELS)}. Give one of these names, a Hugging Face folder or a .gguf file{pulling}"
    )


def _of_path(name: str, path: Path) -> ModelSource:
    """A folder or a file that is there. Raises ModelError, OSError."""
    if path.is_dir():
        return ModelSource(name, path, "folder", _folder_sha256(path))
    _require_gguf(path)
    return ModelSource(name, path, "gguf", file_sha256(path))


def _require_gguf(path: Path) -> None:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelError(
            f"{path} is no GGUF file: it begins with {magic!r}; give a .gguf file or a Hugging Face folder"
        )


def _folder_sha256(folder: Path) -> str:
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"the folder {folder} has no config.json, so it is no Hugging Face model: give the folder of one"
        )
    names = {"config.json", *(name for name in TEXT_FILES if (folder / name).is_file())}
    names |= {path.name for path in folder.glob("*.safetensors")}
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0{file_sha256(folder / name)}\n".encode())
    return digest.hexdigest()
