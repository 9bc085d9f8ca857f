"""A Hugging Face folder → a model: config.json's fields and tensor names are known here only.

Source: config.json as transformers 4 and 5 write it; the safetensors format as its package documents it (the package
checks a file, and the bytes are taken from the file here, for numpy has no bfloat16).
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from engine.core.errors import ModelError
from engine.execution.model import Hyperparameters, Model, assemble, require_architecture
from engine.execution.rotary import inverse_frequencies, scaled_frequencies
from engine.execution.weights.file_map import FileMap
from kernels.stored_tensor import StoredTensor

_FORMATS = ("F32", "F16", "BF16")
_HEADER_LENGTH = struct.Struct("<Q")
_HEAD = "lm_head.weight"
_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    _HEAD: "output.weight",
}
_LAYER_NAMES = {
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
_LAYER_TENSOR = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_COMPUTED_TENSOR = re.compile(r".*\.rotary_emb\.inv_freq")  # old files hold what follows from the config


def read_folder(folder: Path) -> Model:
    """The model in the folder, its tensors memory-mapped. Raises ModelError."""
    config = _Config(_read_json(folder / "config.json"))
    hyper = _hyperparameters(config)
    tensors: dict[str, StoredTensor] = {}
    files = tuple([FileMap(path) for path in _weight_files(folder)])
    for file in files:
        for name, tensor in _tensors_of(file):
            if not (hyper.has_tied_head and name == _HEAD) and not _COMPUTED_TENSOR.fullmatch(name):
                tensors[_gguf_name(name)] = _stored(file, name, tensor)
    return assemble(hyper, tensors, files)


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


def _hyperparameters(config: _Config) -> Hyperparameters:
    architecture = str(config.get("model_type"))
    require_architecture(architecture)
    _refuse_unsupported(config)
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
        inverse_frequencies=_frequencies(config, head_dim),
        context_length=config.figure("max_position_embeddings"),
        has_tied_head=bool(config.get("tie_word_embeddings")),
    )


def _refuse_unsupported(config: _Config) -> None:
    """Raises ModelError on a field that would change the answers and that nothing here follows."""
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
    expected = {
        "hidden_act": ("silu", None),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "partial_rotary_factor": (1, None),
        "num_local_experts": (0, None),
        "num_experts": (0, None),
        "quantization_config": (None,),
    }
    for name, allowed in expected.items():
        if config.get(name) not in allowed:
            raise ModelError(
                f"config.json's {name} is {config.get(name)!r}: only {allowed[0]!r} is supported, "
                "serve a model or a conversion without it"
            )


def _frequencies(config: _Config, head_dim: int) -> tuple[float, ...]:
    """transformers 5 writes rope_parameters, with theta in it; before, rope_scaling and rope_theta."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or config.number("rope_theta", 10_000.0)
    return scaled_frequencies(inverse_frequencies(float(theta), head_dim), scaling)


def _weight_files(folder: Path) -> list[Path]:
    """One file, or the shards that the index names. Raises ModelError on a missing one."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(_read_json(index).get("weight_map", {}).values()))
    else:
        names = ["model.safetensors"]
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}: fetch the model again, with its safetensors files")
    return [folder / name for name in names]


class _Tensor(NamedTuple):
    """dtype as the format names it: F32, BF16, I64 …; the bytes start … end-1 of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def _tensors_of(file: FileMap) -> Iterator[tuple[str, _Tensor]]:
    """The header's entries: its length (u64), a JSON object name → dtype, shape, data_offsets, then the data."""
    try:
        with safe_open(file.path, framework="np"):  # checks lengths, shapes and offsets against each other
            pass
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file.path} cannot be read as safetensors ({error}): fetch it again") from error
    (length,) = _HEADER_LENGTH.unpack_from(file.map)
    data_start = _HEADER_LENGTH.size + length
    for name, fields in json.loads(file.map[_HEADER_LENGTH.size : data_start]).items():
        if name != "__metadata__":
            start, end = fields["data_offsets"]
            yield name, _Tensor(fields["dtype"], tuple(fields["shape"]), data_start + start, data_start + end)


def _stored(file: FileMap, name: str, tensor: _Tensor) -> StoredTensor:
    if tensor.dtype not in _FORMATS:
        raise ModelError(
            f"tensor {name} is stored as {tensor.dtype}: {', '.join(_FORMATS)} are supported, "
            "take the model in one of them"
        )
    if len(tensor.shape) not in (1, 2) or 0 in tensor.shape:
        raise ModelError(f"tensor {name} has shape {list(tensor.shape)}: one or two dimensions are supported")
    num_rows = tensor.shape[0] if len(tensor.shape) == 2 else 1
    rows = file.rows(name, tensor.start, num_rows, (tensor.end - tensor.start) // num_rows)
    return StoredTensor(tensor.dtype, tensor.shape, rows)


def _gguf_name(name: str) -> str:
    """GGUF's name of a tensor; a name without one is kept, for assembling to refuse."""
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None:
        return _TOP_NAMES.get(name, name)
    layer, part, kind = match.groups()
    return f"blk.{layer}.{_LAYER_NAMES[part]}.{kind}" if part in _LAYER_NAMES else name


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON ({error}): fetch the model again") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds no JSON object: fetch the model again")
    return values
