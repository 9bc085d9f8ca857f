"""The default model's file against transformers, on a folder that this test converts from it, and on real text."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file

from engine.execution.weights.safetensors import read_folder
from engine.text.model_source import ModelSource
from engine.text.text_model import load_text_model
from kernels.reference import ReferenceBackend
from tests.execution.model_files import gguf_name, transformers_logits
from tests.execution.steps import Memory, Story, logits_in_chunks

NUM_TOKENS = 200
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 9, 3, 64
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}


@pytest.fixture(scope="module")
def folder(default_source: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file dequantised, its q and k rows back in half-split order, under Hugging Face's names."""
    folder = tmp_path_factory.mktemp("converted")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(default_source.path).tensors}
    layers = [f"model.layers.{layer}.{name}" for layer in range(30) for name in layer_tensors()]
    tensors = {}
    for name in ["model.embed_tokens.weight", "model.norm.weight", *layers]:
        tensor = stored.pop(gguf_name(name))
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if "q_proj" in name or "k_proj" in name:
            heads = NUM_HEADS if "q_proj" in name else NUM_KV_HEADS
            values = values.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        tensors[name] = np.ascontiguousarray(values)
    assert not stored
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def layer_tensors() -> list[str]:
    attention = [f"self_attn.{name}_proj.weight" for name in "qkvo"]
    mlp = [f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")]
    return ["input_layernorm.weight", "post_attention_layernorm.weight", *attention, *mlp]


@pytest.fixture(scope="module")
def our_logits(default_backend: ReferenceBackend, text_tokens: list[int]) -> torch.Tensor:
    story = Story(text_tokens[:NUM_TOKENS], range(13))
    return torch.from_numpy(logits_in_chunks(Memory(default_backend, 13), story, [NUM_TOKENS], 0))


def test_transformers_agrees_on_real_text(folder: Path, our_logits: torch.Tensor, text_tokens: list[int]) -> None:
    """Same weights, both float32: every argmax is the same and the distributions differ by rounding alone.

    Measured: 200 of 200 argmaxes, mean KL 1.2e-11, largest logit difference 1e-4 (of logits up to 42).
    """
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    theirs = transformers_logits(model, text_tokens[:NUM_TOKENS])
    log_p, log_q = our_logits.double().log_softmax(-1), theirs.double().log_softmax(-1)
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    agreement = (our_logits.argmax(-1) == theirs.argmax(-1)).double().mean()
    assert agreement >= 0.99  # two nearly equal logits may change places
    assert divergence.mean() < 1e-8
    assert divergence.max() < 1e-6


def test_the_folder_gives_the_bits_of_the_file(folder: Path, our_logits: torch.Tensor, text_tokens: list[int]) -> None:
    backend = ReferenceBackend(num_threads=2)
    backend.load(read_folder(folder).parameters, NUM_TOKENS)
    story = Story(text_tokens[:NUM_TOKENS], range(13))
    assert np.array_equal(our_logits, logits_in_chunks(Memory(backend, 13), story, [NUM_TOKENS], 0))


def test_the_default_model_speaks_english(default_source: ModelSource, default_backend: ReferenceBackend) -> None:
    text_model = load_text_model(default_source)
    prompt = text_model.encode(text_model.render_chat([{"role": "user", "content": "What is the capital of France?"}]))
    tokens, memory = list(prompt), Memory(default_backend, 8)
    start = 0
    while len(tokens) < len(prompt) + 16 and not set(tokens[len(prompt) :]) & set(text_model.eos_token_ids):
        logits = memory.step(Story(tokens, range(8)).rows(start, len(tokens), 1)).logits[0]
        start = len(tokens)
        tokens.append(int(logits.argmax()))
    assert "The capital of France is Paris" in text_model.decode(tokens[len(prompt) :])
