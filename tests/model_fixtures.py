"""The default model, loaded once per test session, and real text as its tokens.

REPRISE_TEST_MODEL names another one where that cannot be had: a folder of a tokenizer will do for most tests.
"""

import os
from pathlib import Path

import pytest

from engine.execution.model import Model
from engine.execution.weights.load import load_model
from engine.text.model_source import DEFAULT_MODEL, ModelSource, resolve_model
from engine.text.text_model import load_text_model
from kernels.reference import ReferenceBackend

TEST_MODEL = "REPRISE_TEST_MODEL"
NUM_THREADS = 2
MAX_POSITIONS = 1024
TEXT = Path(__file__).parent.parent / "LICENSE"


@pytest.fixture(scope="session")
def default_source() -> ModelSource:
    return resolve_model(os.environ.get(TEST_MODEL) or DEFAULT_MODEL)


@pytest.fixture(scope="session")
def default_model(default_source: ModelSource) -> Model:
    return load_model(default_source)


@pytest.fixture(scope="session")
def default_backend(default_model: Model) -> ReferenceBackend:
    backend = ReferenceBackend(NUM_THREADS)
    backend.load(default_model.parameters, MAX_POSITIONS)
    return backend


@pytest.fixture(scope="session")
def text_tokens(default_source: ModelSource) -> list[int]:
    """More than a thousand tokens of English prose."""
    return load_text_model(default_source).encode(" ".join(TEXT.read_text(encoding="utf-8").split()))
