"""The decoder's parameters, put together and checked.

A reader (`weights/`) fills in `Hyperparameters` and hands tensors over by name; what they add up to is decided here.
Tensors bear GGUF's names, whatever file they come from: "token_embd.weight", "blk.3.attn_q.weight".
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

from engine.core.errors import ModelError
from engine.execution.architectures import Hyperparameters
from kernels.decoder import DecoderParameters, DecoderShape, LayerParameters
from kernels.stored_tensor import StoredTensor


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to be loaded by a backend, its tensors still lying in `files`."""

    architecture: str
    parameters: DecoderParameters
    context_length: int
    files: tuple["MappedFile", ...] = ()

    def release_pages(self) -> None:
        """For a backend that has loaded it: what it still reads comes back from the file by itself."""
        for file in self.files:
            file.release_pages()


class MappedFile(Protocol):
    """A file that tensors lie in."""

    def release_pages(self) -> None: ...


_LAYER_TENSORS = {
    "attention_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "post_attention_norm": "post_attention_norm.weight",
    "post_mlp_norm": "post_ffw_norm.weight",
}


def assemble(hyper: Hyperparameters, tensors: Mapping[str, StoredTensor], files: tuple[MappedFile, ...] = ()) -> Model:
    """The model made of `tensors`, which lie in `files`, each checked against its shape.

    Raises ModelError: a figure that cannot be, a tensor missing, of another shape, or left over (it would change the
    answers and nothing here uses it).
    """
    _check_figures(hyper)
    collector = _Collector(hyper, dict(tensors))
    embedding = collector.take("token_embd.weight", (hyper.vocab_size, hyper.hidden_size))
    head = embedding
    if not hyper.has_tied_head:
        head = collector.take("output.weight", (hyper.vocab_size, hyper.hidden_size))
    layers = tuple([collector.take_layer(index) for index in range(hyper.num_layers)])
    final_norm = collector.take("output_norm.weight", (hyper.hidden_size,))
    collector.require_nothing_left()
    shape = DecoderShape(**{field.name: getattr(hyper, field.name) for field in fields(DecoderShape)})
    frequencies = hyper.inverse_frequencies, hyper.local_inverse_frequencies
    parameters = DecoderParameters(shape, embedding, layers, final_norm, head, *frequencies)
    return Model(hyper.architecture, parameters, hyper.context_length, files)


class _Collector:
    """Takes tensors out of a file by name, checking shapes."""

    def __init__(self, hyper: Hyperparameters, tensors: dict[str, StoredTensor]) -> None:
        self._hyper = hyper
        self._tensors = tensors
        self._shapes = _layer_shapes(hyper)

    def take(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelError(
                f"tensor {name} {list(shape)} is missing, which {self._hyper.architecture} needs: "
                "the file is incomplete or its metadata is wrong; fetch or convert the model again"
            )
        if tensor.shape != shape:
            raise ModelError(
                f"tensor {name} has shape {list(tensor.shape)}, expected {list(shape)} by the model's metadata: "
                "convert the model again"
            )
        return tensor

    def take_layer(self, index: int) -> LayerParameters:
        return LayerParameters(
            **{field: self.take(layer_tensor(index, name), self._shapes[field]) for field, name in self._names()},
            is_local=self._hyper.is_local(index),
        )

    def _names(self) -> list[tuple[str, str]]:
        return [(field, name) for field, name in _LAYER_TENSORS.items() if field in self._shapes]

    def require_nothing_left(self) -> None:
        if self._tensors:
            names = ", ".join(list(self._tensors)[:3])
            raise ModelError(
                f"{len(self._tensors)} tensors have no place in {self._hyper.architecture}: {names}; this variant is "
                "not supported, serve a plain Llama, SmolLM2, Mistral, Qwen2, Qwen3 or Gemma 3 model"
            )


def layer_tensor(index: int, name: str) -> str:
    return f"blk.{index}.{name}"


def _layer_shapes(hyper: Hyperparameters) -> dict[str, tuple[int, ...]]:
    """Shape of each of a layer's tensors that this architecture has."""
    hidden, middle = hyper.hidden_size, hyper.intermediate_size
    q_size, kv_size = hyper.num_heads * hyper.head_dim, hyper.num_kv_heads * hyper.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attention_norm": (hidden,),
        "q": (q_size, hidden),
        "k": (kv_size, hidden),
        "v": (kv_size, hidden),
        "o": (hidden, q_size),
        "mlp_norm": (hidden,),
        "gate": (middle, hidden),
        "up": (middle, hidden),
        "down": (hidden, middle),
    }
    if hyper.traits.has_qkv_bias:
        shapes |= {"q_bias": (q_size,), "k_bias": (kv_size,), "v_bias": (kv_size,)}
    if hyper.traits.has_qk_norm:
        shapes |= {"q_norm": (hyper.head_dim,), "k_norm": (hyper.head_dim,)}
    if hyper.traits.has_post_norms:
        shapes |= {"post_attention_norm": (hidden,), "post_mlp_norm": (hidden,)}
    return shapes


def _check_figures(hyper: Hyperparameters) -> None:
    """Raises ModelError naming the first figure that no decoder can have."""
    for name in ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim"):
        if getattr(hyper, name) < 1:
            raise ModelError(f"{name} is {getattr(hyper, name)}: at least 1 is needed, the metadata is wrong")
    if hyper.num_heads % hyper.num_kv_heads:
        raise ModelError(
            f"{hyper.num_heads} attention heads cannot share {hyper.num_kv_heads} key-value heads evenly: "
            "the metadata is wrong"
        )
    if hyper.local_layers and (len(hyper.local_layers) != hyper.num_layers or hyper.window < 1):
        raise ModelError(
            f"a sliding window of {hyper.window} keys in layers {list(hyper.local_layers)} of {hyper.num_layers}: "
            "a window of at least 1 and an entry for each layer are needed, the metadata is wrong"
        )
    if hyper.head_dim % 2:
        raise ModelError(f"head_dim is {hyper.head_dim}: the rotary embedding needs an even one")
    if hyper.norm_epsilon <= 0 or hyper.context_length < 1:
        raise ModelError(
            f"norm epsilon {hyper.norm_epsilon} and context length {hyper.context_length} must be above 0: "
            "the metadata is wrong"
        )
