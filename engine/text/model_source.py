"""Where a model's files are: an embedded name, a Hugging Face folder or a GGUF file → path, kind and digest.

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

DEFAULT_MODEL = "smollm2-135m-instruct"

# What decides a folder's tokens and text, beside config.json and the weights (*.safetensors).
_TEXT_FILES = (
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

    An embedded name wins over a folder of the same name in the working directory: write ./NAME for the folder.
    Raises ModelError: nothing of that name, files that no model could be, a fetch that failed.
    """
    embedded = EMBEDDED_MODELS.get(name_or_path)
    if embedded is not None:
        return ModelSource(name_or_path, fetch_embedded_model(embedded), "gguf", embedded.file_sha256)
    path = Path(name_or_path).expanduser()
    try:
        if path.is_dir():
            return ModelSource(path.resolve().name, path, "folder", _folder_sha256(path))
        if path.is_file():
            _require_gguf(path)
            return ModelSource(path.stem, path, "gguf", file_sha256(path))
    except OSError as error:
        raise ModelError(f"the model {name_or_path!r} cannot be read: {error}") from error
    raise ModelError(
        f"no model {name_or_path!r}: it is no path that exists, and the embedded models are "
        f"{', '.join(EMBEDDED_MODELS)}. Give one of these names, a Hugging Face folder or a .gguf file"
    )


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
    names = {"config.json", *(name for name in _TEXT_FILES if (folder / name).is_file())}
    names |= {path.name for path in folder.glob("*.safetensors")}
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0{file_sha256(folder / name)}\n".encode())
    return digest.hexdigest()
