"""A Hugging Face folder's config.json → the model's figures: its fields are known here only.

Source: config.json as transformers 4 and 5 write it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.core.errors import ModelError
from engine.execution import gemma3
from engine.execution.architectures import Hyperparameters, require_architecture
from engine.execution.rotary import inverse_frequencies, scaled_frequencies

_COMMON_FIELDS: dict[str, tuple[Any, ...]] = {  # what the answers would depend on → what is followed, None for absent
    "attention_bias": (False, None),
    "partial_rotary_factor": (1, None),
    "num_local_experts": (0, None),
    "num_experts": (0, None),
    "quantization_config": (None,),
}
_GEMMA3_FIELDS: dict[str, tuple[Any, ...]] = {
    "hidden_activation": ("gelu_pytorch_tanh", None),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "use_bidirectional_attention": (False, None),
    **_COMMON_FIELDS,
}


def folder_hyperparameters(values: Mapping[str, Any]) -> Hyperparameters:
    """The figures of config.json. Raises ModelError with the field and the remedy."""
    config = _Config(values)
    architecture = _architecture(config)
    _refuse_unsupported(config, architecture)
    hidden_size, num_heads = config.figure("hidden_size"), config.figure("num_attention_heads")
    head_dim = config.figure("head_dim", hidden_size // max(num_heads, 1))
    return Hyperparameters(
        architecture=architecture,
        num_layers=config.figure("num_hidden_layers"),
        hidden_size=hidden_size,
        intermediate_size=config.figure("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=config.figure("num_key_value_heads", num_heads),
        head_dim=head_dim,
        vocab_size=config.figure("vocab_size"),
        norm_epsilon=config.number("rms_norm_eps"),
        inverse_frequencies=_frequencies(config, head_dim, 1_000_000.0 if architecture == "gemma3" else 10_000.0),
        context_length=config.figure("max_position_embeddings"),
        has_tied_head=bool(config.values.get("tie_word_embeddings", architecture == "gemma3")),
        **(_local_fields(config, head_dim) if architecture == "gemma3" else {}),
    )


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON ({error}): fetch the model again") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds no JSON object: fetch the model again")
    return values


class _Config:
    """Typed look-ups in config.json, with errors that name the field."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"config.json's {name} is {value!r}: a number is needed, fetch the model again")
        return value

    def figure(self, name: str, default: int | None = None) -> int:
        return int(self.number(name, default))


def _architecture(config: _Config) -> str:
    """The model_type, by the name that GGUF files have for it. Raises ModelError unless it is served."""
    model_type = str(config.get("model_type"))
    if model_type == "gemma3":
        raise ModelError(
            "config.json's model_type is 'gemma3', the one that reads images: serve a folder of its text model "
            "(Gemma3ForCausalLM, model_type 'gemma3_text') or a GGUF file"
        )
    architecture = "gemma3" if model_type == "gemma3_text" else model_type
    require_architecture(architecture)
    return architecture


def _local_fields(config: _Config, head_dim: int) -> dict[str, Any]:
    """Gemma 3's own figures. The embedding's scale waits for its tensor."""
    num_layers = config.figure("num_hidden_layers")
    kinds = config.get("layer_types")
    local = gemma3.local_layers(num_layers, config.figure("sliding_window_pattern", gemma3.LAYERS_PER_GLOBAL))
    rope = config.get("rope_parameters") or {}
    base = (rope.get("sliding_attention") or {}).get("rope_theta")
    base = base or config.number("rope_local_base_freq", gemma3.LOCAL_ROPE_BASE)
    return {
        "window": config.figure("sliding_window"),
        "local_layers": tuple([kind == "sliding_attention" for kind in kinds]) if kinds else local,
        "local_inverse_frequencies": tuple(inverse_frequencies(float(base), head_dim)),
        "attention_scale": gemma3.attention_scale(config.number("query_pre_attn_scalar", 256), head_dim),
    }


def _refuse_unsupported(config: _Config, architecture: str) -> None:
    """Raises ModelError on a field that would change the answers and that nothing here follows."""
    if architecture == "gemma3":
        _require(config, _GEMMA3_FIELDS)
        return
    context_length = config.figure("max_position_embeddings")
    window = config.get("sliding_window")
    slides = config.get("use_sliding_window")
    if window is not None and slides is not False and 0 < window < context_length:
        raise ModelError(
            f"config.json's sliding_window is {window}, below max_position_embeddings {context_length}: "
            "sliding-window attention is not supported, serve a model without it"
        )
    other_layers = sorted(set(config.get("layer_types") or ()) - {"full_attention"})
    if other_layers:
        raise ModelError(
            f"config.json's layer_types holds {', '.join(other_layers)}: only full_attention is supported, "
            "serve a model without them"
        )
    _require(config, {"hidden_act": ("silu", None), "mlp_bias": (False, None), **_COMMON_FIELDS})


def _require(config: _Config, expected: Mapping[str, tuple[Any, ...]]) -> None:
    for name, allowed in expected.items():
        if config.get(name) not in allowed:
            raise ModelError(
                f"config.json's {name} is {config.get(name)!r}: only {allowed[0]!r} is supported, "
                "serve a model or a conversion without it"
            )


def _frequencies(config: _Config, head_dim: int, default_theta: float) -> tuple[float, ...]:
    """transformers 5 writes rope_parameters, with theta in it; before, rope_scaling and rope_theta."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = scaling.get("full_attention", scaling)  # where kinds of layers have their own
    theta = scaling.get("rope_theta") or config.number("rope_theta", default_theta)
    return scaled_frequencies(inverse_frequencies(float(theta), head_dim), scaling)
