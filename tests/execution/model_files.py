"""Tiny random models as transformers saves them, and the same weights as a GGUF file, rows permuted as llama.cpp does.

The GGUF side is written from llama.cpp's converter's rules, not from the reader under test.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType
from gguf.quants import quantize
from numpy.typing import NDArray

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# name → (config class, its own fields): every variant that is served
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("LlamaConfig", {"num_key_value_heads": 4}),
    "llama3": ("LlamaConfig", {"rope_parameters": LLAMA3_ROPE}),
    "linear-rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}},
    ),
    "smollm2": ("LlamaConfig", {"tie_word_embeddings": True, "hidden_size": 72, "num_attention_heads": 6}),
    "mistral": ("MistralConfig", {"sliding_window": None, "head_dim": 32}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "gemma3": (  # layer 5 sees everything, and the window begins in another split than the query's
        "Gemma3TextConfig",
        {"num_hidden_layers": 7, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 90},
    ),
}
_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA3_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def random_model(variant: str, **fields: Any) -> Any:
    """A transformers model in float32 with seeded weights; biases and norms are random too, so that none can hide."""
    config_class, own_fields = VARIANTS[variant]
    config = getattr(transformers, config_class)(**{**SIZES, **own_fields, **fields}, attn_implementation="eager")
    auto_model: Any = transformers.AutoModelForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = auto_model.from_config(config, dtype=torch.float32)
        for name, parameter in model.named_parameters():
            scale = 0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
            shift = 1.0 if "norm" in name and variant != "gemma3" else 0.0  # whose norms multiply by 1 + weight
            parameter.data = torch.randn(parameter.shape) * scale + shift
    return model.eval()


def save_folder(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    return folder


def save_gguf(model: Any, path: Path, architecture: str, formats: Mapping[str, str] | None = None) -> Path:
    """`formats` maps a GGUF tensor name to its format; F32 without."""
    writer = GGUFWriter(path, architecture)
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(head_dim)
    _add_rope(writer, config.rope_parameters.get("full_attention", config.rope_parameters), head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    for name, tensor in model.state_dict().items():
        values = tensor.numpy() + np.float32(architecture == "gemma3" and "norm" in name)
        _add_tensor(writer, gguf_name(name, architecture), values, config, architecture, formats or {})
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_rope(writer: GGUFWriter, rope: Mapping[str, Any], head_dim: int) -> None:
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, head_dim))


def _llama3_factors(rope: Mapping[str, Any], head_dim: int) -> NDArray[np.float32]:
    """As convert_hf_to_gguf.py computes them."""
    factors = []
    for frequency in 1.0 / rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim):
        wavelength = 2 * np.pi / frequency
        old_length, low, high = (
            rope[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        if wavelength < old_length / high:
            factors.append(1.0)
        elif wavelength > old_length / low:
            factors.append(rope["factor"])
        else:
            smooth = (old_length / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def gguf_name(name: str, architecture: str = "llama") -> str:
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top:
        return top[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    part, _, kind = rest.rpartition(".")
    names = _GGUF_NAMES | _GEMMA3_NAMES if architecture == "gemma3" else _GGUF_NAMES
    return f"blk.{layer}.{names[part]}.{kind}"


def _add_tensor(
    writer: GGUFWriter,
    name: str,
    values: NDArray[np.float32],
    config: Any,
    architecture: str,
    formats: Mapping[str, str],
) -> None:
    if name == "output.weight" and config.tie_word_embeddings:
        return
    if architecture == "llama":
        if ".attn_q." in name:
            values = interleaved(values, config.num_attention_heads)
        if ".attn_k." in name:
            values = interleaved(values, config.num_key_value_heads)
    format = GGMLQuantizationType[formats.get(name, "F32")]
    writer.add_tensor(name, quantize(np.ascontiguousarray(values), format), raw_dtype=format)


def interleaved(rows: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """LlamaModel.permute of convert_hf_to_gguf.py."""
    shape = rows.shape
    return rows.reshape(num_heads, 2, shape[0] // num_heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def transformers_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[num_tokens, vocab_size] float32."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits
