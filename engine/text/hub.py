"""Pulls a model from a Hugging Face hub into the cache: what a model needs of a repository, each file checked.

The hub is $HF_ENDPOINT, or huggingface.co; $HF_TOKEN opens what is private or gated. Every file is compared with the
digest that the hub gives for it. A pull that was broken off goes on where it stopped; a model takes its place whole.
Source: huggingface_hub 2's functions of these names.
"""

import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from engine.core.errors import ModelError
from engine.text.model_cache import Progress, locked
from engine.text.model_source import TEXT_FILES
from engine.text.pulled_models import HubName, PulledModel, hub_folder, write_manifest

DEFAULT_ENDPOINT = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class _File:
    """
    digest   sha256 of a large file (git LFS), else git's own sha1 of a blob
    """

    name: str
    num_bytes: int
    digest: str
    is_large: bool


def pull(name: HubName, progress: Progress, *, shows_bars: bool = False) -> PulledModel:
    """Fetch the newest revision, even where one is here already.

    progress     told after each file
    shows_bars   huggingface_hub draws its own progress of each file on standard error
    Raises ModelError: no such repository or file, no model in it, no network, another digest.
    """
    import huggingface_hub as hub
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    (enable_progress_bars if shows_bars else disable_progress_bars)()
    with _explained(name):
        info = hub.HfApi(endpoint=_endpoint()).model_info(name.repo, files_metadata=True)
        chosen = _chosen(name, [_file(sibling) for sibling in info.siblings or ()])
        gguf = chosen[0].name if chosen[0].name.endswith(".gguf") else ""
        hub_folder().mkdir(parents=True, exist_ok=True)
        with locked(hub_folder() / f".{name.folder.name}.lock"):
            partial = hub_folder() / f".pull-{name.folder.name}"
            digests = _download(name, str(info.sha), chosen, partial, progress)
            model = PulledModel(str(name), str(info.sha), gguf, digests, name.folder)
            _keep_only(partial, digests)
            write_manifest(model, partial)
            shutil.rmtree(name.folder, ignore_errors=True)
            partial.rename(name.folder)
    return model


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT


def _file(sibling: Any) -> _File:
    if sibling.lfs is not None:
        return _File(sibling.rfilename, sibling.lfs.size, sibling.lfs.sha256, True)
    return _File(sibling.rfilename, sibling.size or 0, sibling.blob_id or "", False)


def _chosen(name: HubName, files: Sequence[_File]) -> list[_File]:
    """What of a repository is the model: the file that was named, else a folder's files, else its only GGUF file."""
    by_name = {file.name: file for file in files if ".." not in PurePosixPath(file.name).parts}
    ggufs = sorted(file for file in by_name if file.endswith(".gguf"))
    choices = f"the GGUF files in it are {', '.join(ggufs)}" if ggufs else "there is no GGUF file in it"
    if name.file is not None:
        if name.file not in by_name:
            raise ModelError(f"{name.repo} has no file {name.file}: {choices}")
        return [by_name[name.file]]
    weights = sorted(
        file for file in by_name if "/" not in file and file.startswith("model") and file.endswith(".safetensors")
    )
    if "config.json" in by_name and weights:
        texts = [file for file in ("config.json", "model.safetensors.index.json", *TEXT_FILES) if file in by_name]
        return [by_name[file] for file in (*texts, *weights)]
    if len(ggufs) == 1:
        return [by_name[ggufs[0]]]
    raise ModelError(
        f"{name.repo} is no folder with a config.json and model*.safetensors, and {choices}: "
        f"name the file, as in {name.repo}:{ggufs[0] if ggufs else 'FILE.gguf'}"
    )


def _download(name: HubName, revision: str, files: Sequence[_File], folder: Path, progress: Progress) -> dict[str, str]:
    """Each file's sha256."""
    import huggingface_hub as hub

    digests, done, total = {}, 0, sum(file.num_bytes for file in files)
    for file in files:
        path = hub.hf_hub_download(
            name.repo, file.name, revision=revision, local_dir=folder, endpoint=_endpoint(), etag_timeout=30
        )
        digests[file.name] = _checked(Path(path), file)
        done += file.num_bytes
        progress(done, total)
    return digests


def _keep_only(folder: Path, names: Collection[str]) -> None:
    """Without the client's notes, and what a pull of another revision has left."""
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in names:
            path.unlink()


def _checked(path: Path, file: _File) -> str:
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    found = sha256 if file.is_large else _git_blob(path)
    if found != file.digest:
        path.unlink()
        raise ModelError(f"{file.name} has the digest {found}, the hub says {file.digest}: pull it again")
    return sha256


def _git_blob(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@contextmanager
def _explained(name: HubName) -> Iterator[None]:
    """What the hub's client raises, as a ModelError with what to do."""
    from huggingface_hub import errors

    where = f"{name.repo} at {_endpoint()}"
    try:
        yield
    except ModelError:
        raise
    except errors.GatedRepoError as error:
        raise ModelError(f"{where} is gated: accept its terms there, then set HF_TOKEN to your token") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"{where} does not exist or is private: check the name, or set HF_TOKEN") from error
    except errors.OfflineModeIsEnabled as error:
        raise ModelError(f"{where} was not asked, because HF_HUB_OFFLINE is set: unset it") from error
    except Exception as error:  # its HTTP client raises classes of its own
        raise ModelError(
            f"{where} cannot be reached: {str(error) or type(error).__name__}. Check the network and HF_ENDPOINT, or "
            "copy the model here and serve its path"
        ) from error
