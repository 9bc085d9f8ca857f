"""A request's token ids and text, where the vault can be read; each reading is told in an audit line.

Text is made only with model files that lie here already: nothing is fetched. It never keeps contents.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.core.errors import EngineError
from engine.text.embedded_models import EMBEDDED_MODELS
from engine.text.file_digests import cache_folder
from engine.text.model_source import ModelSource, resolve_model
from engine.text.text_model import TextModel, load_text_model
from recorder.errors import NoContents, RecordingError
from replay.lives import Life

MAX_TOKENS = 200_000
NOT_ASKED_FOR: tuple[dict[str, Any] | None, str] = (
    None,
    "not asked for: contents=1 reads them, and says so in the log",
)


def contents_of(lives: Sequence[Life], request: int) -> tuple[dict[str, Any] | None, str]:
    """(contents, "") or (None, why not)."""
    reason = "its contents were not kept"
    for life in reversed(lives):
        try:
            contents = life.contents()
        except NoContents:
            reason = "recorded without contents (--record-content)"
            continue
        except (RecordingError, EngineError) as error:
            reason = str(error)
            continue
        prompt = contents.prompts.get(request)
        if prompt is not None:
            return _values(life, prompt.prompt_token_ids, contents.outputs(request)), ""
        reason = contents.notices[-1] if contents.notices else reason
    return None, reason


def _values(life: Life, prompt: Sequence[int], output: Sequence[int]) -> dict[str, Any]:
    is_cut = len(prompt) > MAX_TOKENS or len(output) > MAX_TOKENS
    prompt, output = list(prompt[:MAX_TOKENS]), list(output[:MAX_TOKENS])
    header = life.header
    text = _text_model(str(header.environment.get("model") or header.config.get("model", "")))
    return {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "prompt_text": _text(text, prompt),
        "output_text": _text(text, output),
        "is_cut": is_cut,
    }


def _text(model: TextModel | None, tokens: Sequence[int]) -> str | None:
    if model is None:
        return None
    try:
        return model.decode(tokens, skip_special_tokens=False)
    except EngineError:  # tokens of another model
        return None


@lru_cache(maxsize=2)
def _text_model(name: str) -> TextModel | None:
    """None where its files are not here."""
    embedded = EMBEDDED_MODELS.get(name)
    try:
        if embedded is not None:
            path = cache_folder() / "models" / embedded.file_name
            source = ModelSource(name, path, "gguf", embedded.file_sha256)
            return load_text_model(source, encodes=False) if path.is_file() else None
        return load_text_model(resolve_model(name), encodes=False) if name and Path(name).exists() else None
    except (EngineError, OSError, ValueError):
        return None
