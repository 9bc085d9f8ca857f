"""A GGUF file's metadata → the model's figures: its keys are known here only.

Source: the GGUF specification (ggml/docs/gguf.md).
"""

from collections.abc import Callable, Mapping
from typing import Any

from engine.core.errors import ModelError
from engine.execution import gemma3
from engine.execution.architectures import ARCHITECTURES, Hyperparameters, require_architecture
from engine.execution.rotary import divided_frequencies, inverse_frequencies, scaled_frequencies
from engine.text.gguf_metadata import GGUFMetadata
from kernels.stored_tensor import StoredTensor

ROPE_FACTORS = "rope_freqs.weight"  # a tensor that divides the frequencies


def gguf_hyperparameters(head: GGUFMetadata, tensors: Mapping[str, StoredTensor]) -> Hyperparameters:
    """The figures of the metadata, and of the tensors where these say more. Raises ModelError with key and remedy."""
    metadata = _Metadata(head)
    architecture = metadata.text("general.architecture")
    require_architecture(architecture)
    _refuse_unsupported(metadata, architecture)

    def figure(name: str, default: float | None = None) -> int:
        return int(metadata.number(f"{architecture}.{name}", default))

    hidden_size, num_heads = figure("embedding_length"), figure("attention.head_count")
    head_dim = figure("attention.key_length", hidden_size // max(num_heads, 1))
    _require_whole_heads(figure("attention.value_length", head_dim), head_dim, f"{architecture}.attention.value_length")
    _require_whole_heads(figure("rope.dimension_count", head_dim), head_dim, f"{architecture}.rope.dimension_count")
    embedding = tensors.get("token_embd.weight")
    return Hyperparameters(
        architecture=architecture,
        num_layers=figure("block_count"),
        hidden_size=hidden_size,
        intermediate_size=figure("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=figure("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=embedding.shape[0] if embedding is not None else 0,
        norm_epsilon=metadata.number(f"{architecture}.attention.layer_norm_rms_epsilon"),
        inverse_frequencies=_frequencies(metadata, architecture, head_dim, tensors.get(ROPE_FACTORS)),
        context_length=figure("context_length"),
        has_tied_head="output.weight" not in tensors,
        **(_local_fields(metadata, figure) if ARCHITECTURES[architecture].has_local_layers else {}),
    )


class _Metadata:
    """Typed look-ups in the file's key-value pairs, with errors that name the key."""

    def __init__(self, head: GGUFMetadata) -> None:
        self.get = head.get

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise ModelError(f"GGUF metadata {key} is {value!r}: a text is needed, convert the model again")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"GGUF metadata {key} is {value!r}: one number is needed, convert the model again")
        return value


def _local_fields(metadata: _Metadata, figure: Callable[..., int]) -> dict[str, Any]:
    """Gemma 3's own figures; what files of before 2026 leave out is the same in all its sizes."""
    num_layers, hidden_size, num_heads = (
        figure("block_count"),
        figure("embedding_length"),
        figure("attention.head_count"),
    )
    head_dim = figure("attention.key_length", hidden_size // max(num_heads, 1))
    local_base = metadata.number("gemma3.rope.freq_base_swa", gemma3.LOCAL_ROPE_BASE)
    scalar = gemma3.query_scalar_by_size(num_layers, hidden_size, num_heads, head_dim)
    return {
        "window": figure("attention.sliding_window"),
        "local_layers": _local_layers(metadata.get("gemma3.attention.sliding_window_pattern"), num_layers),
        "local_inverse_frequencies": tuple(inverse_frequencies(local_base, head_dim)),
        "embedding_scale": gemma3.embedding_scale(hidden_size, "BF16"),
        "attention_scale": gemma3.attention_scale(scalar, head_dim),
    }


def _local_layers(pattern: Any, num_layers: int) -> tuple[bool, ...]:
    """`pattern` is whether each layer is local, or of how many the last is not."""
    if isinstance(pattern, list):
        return tuple([bool(is_local) for is_local in pattern])
    return gemma3.local_layers(
        num_layers, pattern if isinstance(pattern, int) and pattern > 0 else gemma3.LAYERS_PER_GLOBAL
    )


def _refuse_unsupported(metadata: _Metadata, architecture: str) -> None:
    """Raises ModelError on a key that would change the answers and that nothing here follows."""
    context_length = metadata.number(f"{architecture}.context_length")
    window = metadata.number(f"{architecture}.attention.sliding_window", 0)
    if 0 < window < context_length and not ARCHITECTURES[architecture].has_local_layers:
        raise ModelError(
            f"{architecture}.attention.sliding_window is {window}, below the context length {context_length}: "
            "sliding-window attention is not supported, serve a model without it"
        )
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if metadata.get(f"{architecture}.{name}"):
            raise ModelError(
                f"{architecture}.{name} is {metadata.get(f'{architecture}.{name}')}: soft capping is "
                "not supported, serve a model without it"
            )
    num_experts = metadata.number(f"{architecture}.expert_count", 0)
    if num_experts > 0:
        raise ModelError(
            f"{architecture}.expert_count is {num_experts}: mixtures of experts are not supported, serve a dense model"
        )


def _require_whole_heads(figure: int, head_dim: int, key: str) -> None:
    if figure != head_dim:
        raise ModelError(
            f"{key} is {figure}, but a head has {head_dim} dimensions: only whole, equal heads are supported"
        )


def _frequencies(
    metadata: _Metadata, architecture: str, head_dim: int, factors: StoredTensor | None
) -> tuple[float, ...]:
    frequencies = inverse_frequencies(metadata.number(f"{architecture}.rope.freq_base", 10_000.0), head_dim)
    kind = metadata.get(f"{architecture}.rope.scaling.type") or "none"
    if kind not in ("none", "linear"):
        raise ModelError(
            f"{architecture}.rope.scaling.type is {kind!r}: none, linear and rope_freqs.weight are supported, "
            "serve a model with one of them"
        )
    if kind == "linear":
        factor = metadata.number(f"{architecture}.rope.scaling.factor", 1.0)
        frequencies = list(scaled_frequencies(frequencies, {"rope_type": "linear", "factor": factor}))
    if factors is not None:
        return divided_frequencies(frequencies, factors.float32().tolist())
    return tuple(frequencies)
