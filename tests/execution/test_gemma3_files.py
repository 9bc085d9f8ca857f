"""What Gemma 3's files leave open or say in two ways: scales, windows, patterns, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.errors import ModelError
from engine.execution.gemma3 import attention_scale, embedding_scale, query_scalar_by_size
from engine.execution.weights.gguf import read_gguf
from engine.execution.weights.safetensors import read_folder
from kernels.decoder import DecoderShape
from tests.execution.model_files import random_model, save_folder, save_gguf, transformers_logits
from tests.execution.test_architectures import TOKENS, TOLERANCE, our_logits
from tests.execution.test_model_errors import write_header


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(random_model("gemma3"), tmp_path_factory.mktemp("gemma3"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    for path in sound.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def with_config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


def shape_of(folder: Path) -> DecoderShape:
    return read_folder(folder).parameters.shape


def test_the_embeddings_scale_is_rounded_to_the_type_it_was_trained_in() -> None:
    assert embedding_scale(640, "F32") == pytest.approx(25.298221, abs=1e-6)
    assert embedding_scale(640, "BF16") == embedding_scale(640, "Q8_0") == 25.25
    assert embedding_scale(640, "F16") == 25.296875
    assert [embedding_scale(size, "BF16") for size in (1152, 2560, 3840)] == [
        float(torch.tensor(size**0.5).bfloat16()) for size in (1152, 2560, 3840)
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_folder_of_half_precision_has_the_logits_of_transformers(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save_folder(random_model("gemma3", hidden_size=72).to(dtype), tmp_path)
    rounded = random_model("gemma3", hidden_size=72)
    for parameter in rounded.parameters():
        parameter.data = parameter.data.to(dtype).float()
    scale = rounded.model.embed_tokens.embed_scale
    scale.fill_(float(torch.tensor(72**0.5).to(dtype)))
    ours, theirs = our_logits(read_folder(folder)), transformers_logits(rounded, TOKENS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


def test_a_query_scale_and_a_stretched_rotary_embedding_are_followed(tmp_path: Path) -> None:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 5_000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    }
    theirs = random_model("gemma3", query_pre_attn_scalar=20, rope_parameters=rope)
    ours = our_logits(read_folder(save_folder(theirs, tmp_path)))
    torch.testing.assert_close(ours, transformers_logits(theirs, TOKENS), rtol=0, atol=TOLERANCE)


def test_a_window_of_another_width_would_be_missed(sound: Path) -> None:
    """The control: the comparisons with transformers see one key more or less."""
    theirs = transformers_logits(random_model("gemma3", sliding_window=91), TOKENS)
    assert (our_logits(read_folder(sound)) - theirs).abs().max() > 10 * TOLERANCE


def test_older_configs_say_the_same_otherwise(folder: Path) -> None:
    expected = read_folder(folder).parameters
    config = json.loads((folder / "config.json").read_text())
    for name in ("layer_types", "rope_parameters"):
        config.pop(name)
    config |= {"sliding_window_pattern": 6, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0}
    (folder / "config.json").write_text(json.dumps(config))
    older = read_folder(folder).parameters
    assert [layer.is_local for layer in older.layers] == [layer.is_local for layer in expected.layers]
    assert older.inverse_frequencies == expected.inverse_frequencies
    assert older.local_inverse_frequencies == expected.local_inverse_frequencies
    assert [layer.is_local for layer in older.layers] == [True] * 5 + [False, True]


def test_the_scale_of_queries_goes_by_the_size() -> None:
    assert attention_scale(256, 256) == 0.0  # 1 / sqrt(head_dim), which every other model has
    assert attention_scale(query_scalar_by_size(62, 5376, 32, 128), 128) == pytest.approx(168**-0.5)
    assert query_scalar_by_size(34, 2560, 8, 256) == 256


def test_a_gguf_file_has_the_numbers_of_its_folder(sound: Path, tmp_path: Path) -> None:
    from_file = read_gguf(save_gguf(random_model("gemma3"), tmp_path / "m.gguf", "gemma3")).parameters
    from_folder = read_folder(sound).parameters
    assert from_file.local_inverse_frequencies == from_folder.local_inverse_frequencies
    assert [layer.is_local for layer in from_file.layers] == [layer.is_local for layer in from_folder.layers]
    for ours, theirs in zip(from_file.layers, from_folder.layers, strict=True):
        assert ours.post_mlp_norm is not None
        assert theirs.post_mlp_norm is not None
        assert (ours.post_mlp_norm.float32() == theirs.post_mlp_norm.float32()).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gemma3"}, r"'gemma3', the one that reads images: .*gemma3_text"),
        ({"model_type": "gemma2"}, r"architecture 'gemma2' is not supported: .*qwen3, gemma3"),
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping is 30.0: only None"),
        ({"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping is 50.0: only None"),
        ({"hidden_activation": "gelu"}, r"hidden_activation is 'gelu': only 'gelu_pytorch_tanh'"),
        ({"use_bidirectional_attention": True}, r"use_bidirectional_attention is True"),
        ({"sliding_window": 0}, r"a sliding window of 0 keys"),
        ({"layer_types": ["sliding_attention"]}, r"an entry for each layer"),
        ({"query_pre_attn_scalar": 0}, r"query_pre_attn_scalar is 0"),
    ],
)
def test_a_config_that_means_something_else_is_refused(folder: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_folder(with_config(folder, **fields))


def test_a_file_with_soft_capping_is_refused(tmp_path: Path) -> None:
    path = write_header(tmp_path / "m.gguf", "gemma3", lambda writer: writer.add_final_logit_softcapping(30.0))
    with pytest.raises(ModelError, match=r"gemma3.final_logit_softcapping is 30.0: soft capping is not supported"):
        read_gguf(path)


def test_a_backend_for_llama_alone_can_name_what_it_lacks(sound: Path) -> None:
    lacks = shape_of(sound).beyond_llama
    assert "sliding windows of 90 keys" in lacks
    assert "gelu_tanh activation" in lacks
    assert shape_of(sound).activation == "gelu_tanh"
    assert DecoderShape(1, 8, 8, 1, 1, 8, 8, 1e-5).beyond_llama == ()
