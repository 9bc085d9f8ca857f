"""The default model's text side, loaded once."""

import pytest

from engine.text.model_source import DEFAULT_MODEL, ModelSource, resolve_model
from engine.text.text_model import TextModel, load_text_model


@pytest.fixture(scope="session")
def default_source() -> ModelSource:
    return resolve_model(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def smollm(default_source: ModelSource) -> TextModel:
    return load_text_model(default_source)
