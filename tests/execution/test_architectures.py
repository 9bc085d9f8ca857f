"""Each served architecture against Hugging Face transformers on the same random weights, from both kinds of files."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.execution.model import Model
from engine.execution.weights.gguf import read_gguf
from engine.execution.weights.safetensors import read_folder
from kernels.reference import ReferenceBackend
from tests.execution.model_files import VARIANTS, random_model, save_folder, save_gguf, transformers_logits
from tests.execution.steps import Memory, Story, logits_in_chunks

TOKENS = [(7 * index * index + 3) % 300 for index in range(300)]  # two splits of attention
# Logits here have a standard deviation near 1. Both sides compute in float32, in different orders (about 1e-6), and
# transformers rounds the rotary angles to float32: 1e-5 radians at position 300.
TOLERANCE = 1e-4
GGUF_ARCHITECTURES = {"qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3"}  # all others are "llama" there


def our_logits(model: Model) -> torch.Tensor:
    backend = ReferenceBackend(num_threads=2)
    backend.load(model.parameters, len(TOKENS))
    story = Story(TOKENS, range(20))
    return torch.from_numpy(logits_in_chunks(Memory(backend, 20), story, [200, len(TOKENS)], 0))


@pytest.fixture(scope="module", params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def theirs(variant: str) -> Any:
    return random_model(variant)


def test_a_folder_gives_the_logits_of_transformers(theirs: Any, tmp_path: Path) -> None:
    ours = our_logits(read_folder(save_folder(theirs, tmp_path)))
    torch.testing.assert_close(ours, transformers_logits(theirs, TOKENS), rtol=0, atol=TOLERANCE)


def test_a_gguf_file_gives_the_logits_of_transformers(theirs: Any, variant: str, tmp_path: Path) -> None:
    path = save_gguf(theirs, tmp_path / "model.gguf", GGUF_ARCHITECTURES.get(variant, "llama"))
    ours = our_logits(read_gguf(path))
    torch.testing.assert_close(ours, transformers_logits(theirs, TOKENS), rtol=0, atol=TOLERANCE)


def test_a_folder_in_shards_gives_the_same_bits(tmp_path: Path) -> None:
    model = random_model("qwen2")
    whole = save_folder(model, tmp_path / "whole")
    sharded = save_folder(model, tmp_path / "sharded", max_shard_size="100KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert torch.equal(our_logits(read_folder(whole)), our_logits(read_folder(sharded)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_mean_the_numbers_they_hold(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save_folder(random_model("llama3").to(dtype), tmp_path)
    rounded = random_model("llama3")
    for parameter in rounded.parameters():
        parameter.data = parameter.data.to(dtype).float()
    ours, theirs = our_logits(read_folder(folder)), transformers_logits(rounded, TOKENS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


def test_the_rotary_embedding_would_be_missed(tmp_path: Path) -> None:
    """The control: with another theta the same comparison fails."""
    theirs = random_model("llama2")
    ours = our_logits(read_folder(save_folder(theirs, tmp_path)))
    theirs = random_model("llama2", rope_parameters={"rope_type": "default", "rope_theta": 12_000.0})
    assert (ours - transformers_logits(theirs, TOKENS)).abs().max() > 100 * TOLERANCE
