"""A GGUF file → a model: metadata keys and tensor names are known here only.

Source: the GGUF specification (ggml/docs/gguf.md).
"""

import math
from pathlib import Path

import numpy as np

from engine.core.errors import ModelError
from engine.execution.model import ARCHITECTURES, Hyperparameters, Model, assemble, require_architecture
from engine.execution.rotary import divided_frequencies, inverse_frequencies, scaled_frequencies
from engine.execution.weights.file_map import FileMap
from engine.text.gguf_metadata import GGUFMetadata, TensorPlace, read_gguf_head
from kernels.stored_tensor import FORMATS, StoredTensor, row_bytes

_ROPE_FACTORS = "rope_freqs.weight"
_FORMAT_OF_NUMBER = {  # as ggml numbers its types
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    30: "BF16",
}


def read_gguf(path: Path) -> Model:
    """The model in the file, its tensors memory-mapped. Raises ModelError."""
    file = FileMap(path)
    head, places = read_gguf_head(path, file.map, leave_out=("tokenizer.",))
    metadata = _Metadata(head)
    architecture = metadata.text("general.architecture")
    require_architecture(architecture)
    tensors = {place.name: _stored(file, place) for place in places}
    hyper = _hyperparameters(metadata, architecture, tensors)
    tensors.pop(_ROPE_FACTORS, None)
    if ARCHITECTURES[architecture].gguf_interleaves:
        _undo_interleaving(tensors, hyper)
    return assemble(hyper, tensors, (file,))


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


def _hyperparameters(metadata: _Metadata, architecture: str, tensors: dict[str, StoredTensor]) -> Hyperparameters:
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
        inverse_frequencies=_frequencies(metadata, architecture, head_dim, tensors.get(_ROPE_FACTORS)),
        context_length=figure("context_length"),
        has_tied_head="output.weight" not in tensors,
    )


def _refuse_unsupported(metadata: _Metadata, architecture: str) -> None:
    """Raises ModelError on a key that would change the answers and that nothing here follows."""
    context_length = metadata.number(f"{architecture}.context_length")
    window = metadata.number(f"{architecture}.attention.sliding_window", 0)
    if 0 < window < context_length:
        raise ModelError(
            f"{architecture}.attention.sliding_window is {window}, below the context length {context_length}: "
            "sliding-window attention is not supported, serve a model without it"
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


def _stored(file: FileMap, place: TensorPlace) -> StoredTensor:
    """The tensor where it lies."""
    format = _FORMAT_OF_NUMBER.get(place.type_number)
    if format is None or format not in FORMATS:
        raise ModelError(
            f"tensor {place.name} is stored as {_type_name(place.type_number)}: {', '.join(FORMATS)} are supported, "
            "take a file quantised in one of them"
        )
    num_rows, num_columns = math.prod(place.shape[:-1]), place.shape[-1] if place.shape else 0
    length = row_bytes(format, num_columns)
    if length is None or num_rows * num_columns == 0:
        raise ModelError(
            f"tensor {place.name} has shape {list(place.shape)}, which is no whole number of {format} blocks: "
            f"{file.path} is damaged, fetch or convert it again"
        )
    return StoredTensor(format, place.shape, file.rows(place.name, place.start, num_rows, length))


def _type_name(number: int) -> str:
    from gguf.constants import GGMLQuantizationType  # names them all, and is asked only here

    try:
        return GGMLQuantizationType(number).name
    except ValueError:
        return f"type {number}"


def _undo_interleaving(tensors: dict[str, StoredTensor], hyper: Hyperparameters) -> None:
    """Put q and k rows back into the half-split order of the rotary embedding.

    llama.cpp's converter stores a head's rows as 0, d/2, 1, d/2+1, … so that pairs are neighbours.
    """
    for name, tensor in tensors.items():
        heads = {"attn_q.weight": hyper.num_heads, "attn_k.weight": hyper.num_kv_heads}.get(name.split(".", 2)[-1])
        if heads is None or tensor.rows.shape[0] != heads * hyper.head_dim:
            continue  # another tensor, or one of a wrong shape, which assembling will name
        order = np.arange(heads * hyper.head_dim).reshape(heads, hyper.head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
        tensors[name] = StoredTensor(tensor.format, tensor.shape, tensor.rows, order)
