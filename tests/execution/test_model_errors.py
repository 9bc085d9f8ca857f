"""Files that cannot be served are refused at once, with the field, the figure and what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.torch import load_file, save_file

from engine.core.errors import ModelError
from engine.execution.weights.gguf import read_gguf
from engine.execution.weights.safetensors import read_folder
from tests.execution.model_files import random_model, save_folder, save_gguf


@pytest.fixture(scope="module")
def sound_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(random_model("mistral"), tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound_folder: Path, tmp_path: Path) -> Path:
    for path in sound_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


def test_the_sound_folder_is_read(folder: Path) -> None:
    assert read_folder(folder).architecture == "mistral"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, r"architecture 'gpt2' is not supported: .* llama, mistral, qwen2, qwen3"),
        ({"sliding_window": 256}, r"sliding_window is 256, below max_position_embeddings 512: .*without it"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, r"layer_types holds sliding_attention: .*full"),
        ({"hidden_act": "gelu"}, r"hidden_act is 'gelu': only 'silu'"),
        ({"attention_bias": True}, r"attention_bias is True: only False"),
        ({"num_local_experts": 8}, r"num_local_experts is 8: only 0"),
        ({"quantization_config": {"bits": 4}}, r"quantization_config is \{'bits': 4\}: only None"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, r"rope_type is 'yarn': .*llama3 are supported"),
        ({"rope_parameters": {"rope_type": "llama3"}}, r"rope scaling's factor is None: a number above 0"),
        ({"hidden_size": None}, r"config.json's hidden_size is None: a number is needed"),
        ({"num_key_value_heads": 3}, r"4 attention heads cannot share 3 key-value heads"),
        ({"head_dim": 31}, r"head_dim is 31: .* even"),
        ({"num_hidden_layers": 0}, r"num_layers is 0: at least 1"),
        ({"rms_norm_eps": 0}, r"norm epsilon 0 "),
        ({"intermediate_size": 128}, r"ffn_gate.weight has shape \[160, 64\], expected \[128, 64\]"),
        ({"num_hidden_layers": 4}, r"tensor blk.3.attn_norm.weight \[64\] is missing"),
        ({"num_hidden_layers": 2}, r"9 tensors have no place in mistral: blk.2"),
    ],
)
def test_a_config_that_means_something_else_is_refused(folder: Path, fields: dict[str, Any], message: str) -> None:
    change_config(folder, **fields)
    with pytest.raises(ModelError, match=message):
        read_folder(folder)


@pytest.mark.parametrize("fields", [{"sliding_window": 512}, {"sliding_window": 8, "use_sliding_window": False}])
def test_a_sliding_window_that_never_slides_is_no_obstacle(folder: Path, fields: dict[str, Any]) -> None:
    change_config(folder, **fields)
    read_folder(folder)


def test_a_tensor_that_would_be_left_unused_is_refused(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.o_proj.bias": torch.zeros(64)}))
    with pytest.raises(ModelError, match=r"1 tensors have no place in mistral: blk.0.attn_output.bias"):
        read_folder(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ModelError, match=r"tensor output.weight \[300, 64\] is missing"):
        read_folder(folder)


def test_a_number_type_without_meaning_here_is_refused(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)}))
    with pytest.raises(ModelError, match=r"model.norm.weight is stored as I8: F32, F16, BF16"):
        read_folder(folder)


def test_a_cut_safetensors_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cannot be read as safetensors"):
        read_folder(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"has no model-00001-of-00002.safetensors"):
        read_folder(folder)


def test_an_index_cannot_name_files_elsewhere(folder: Path) -> None:
    index = {"weight_map": {"a": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"has no \.\./elsewhere"):
        read_folder(folder)


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_a_config_that_is_no_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config.json"):
        read_folder(folder)


# ── GGUF ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sound_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gguf(random_model("llama3"), tmp_path_factory.mktemp("gguf") / "sound.gguf", "llama")


def write_header(path: Path, architecture: str, add: Callable[[GGUFWriter], object]) -> Path:
    """A GGUF file with little but a context length and what `add` adds."""
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(512)
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "add", "message"),
    [
        ("gemma", lambda writer: None, r"architecture 'gemma' is not supported"),
        (
            "llama",
            lambda writer: writer.add_sliding_window(128),
            r"llama.attention.sliding_window is 128, below .* 512",
        ),
        ("llama", lambda writer: writer.add_expert_count(8), r"llama.expert_count is 8: .*dense model"),
        ("llama", lambda writer: None, r"llama.embedding_length is None: one number is needed"),
        (
            "llama",
            lambda writer: writer.add_array("llama.embedding_length", [1, 2]),
            r"llama.embedding_length is \[1, 2\]",
        ),
    ],
)
def test_metadata_that_means_something_else_is_refused(
    tmp_path: Path, architecture: str, add: Callable[[GGUFWriter], object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        read_gguf(write_header(tmp_path / "model.gguf", architecture, add))


def test_a_quantisation_without_meaning_here_is_refused(tmp_path: Path) -> None:
    def add(writer: GGUFWriter) -> None:
        rows = np.zeros((2, 66), dtype=np.uint8)
        writer.add_tensor("token_embd.weight", rows, raw_dtype=GGMLQuantizationType.IQ2_XXS)

    with pytest.raises(ModelError, match=r"token_embd.weight is stored as IQ2_XXS: F32, F16, .*take a file"):
        read_gguf(write_header(tmp_path / "model.gguf", "llama", add))


@pytest.mark.parametrize("kept", [0, 3, 20, 100, 400, 1000, 5000, -40])
def test_a_cut_file_is_refused(sound_gguf: Path, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(sound_gguf.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"cut\.gguf.*: .*fetch"):
        read_gguf(cut)


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32"])
def test_a_file_quantised_row_by_row_keeps_its_row_order(sound_gguf: Path, tmp_path: Path, format: str) -> None:
    """q rows are put back in order whatever the format: each is near the unquantised one's."""
    model = random_model("llama3")
    path = save_gguf(model, tmp_path / "model.gguf", "llama", {"blk.0.attn_q.weight": format})
    quantised = read_gguf(path).parameters.layers[0].q
    assert quantised.format == format
    expected = model.model.layers[0].self_attn.q_proj.weight
    torch.testing.assert_close(
        torch.from_numpy(quantised.float32()), expected.detach(), rtol=0, atol=0.06
    )  # 4 bits over ±0.4
