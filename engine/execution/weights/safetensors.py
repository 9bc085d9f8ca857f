"""A Hugging Face folder → a model: its tensors' names are known here only.

Source: the safetensors format as its package documents it (the package checks a file, and the bytes are taken from the
file here, for numpy has no bfloat16).
"""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from engine.core.errors import ModelError
from engine.execution import gemma3
from engine.execution.architectures import Hyperparameters
from engine.execution.model import Model, assemble
from engine.execution.weights.file_map import FileMap
from engine.execution.weights.folder_config import folder_hyperparameters, read_json
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
_GEMMA3_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LAYER_TENSOR = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_COMPUTED_TENSOR = re.compile(r".*\.rotary_emb\.inv_freq")  # old files hold what follows from the config


def read_folder(folder: Path) -> Model:
    """The model in the folder, its tensors memory-mapped. Raises ModelError."""
    hyper = folder_hyperparameters(read_json(folder / "config.json"))
    tensors: dict[str, StoredTensor] = {}
    files = tuple([FileMap(path) for path in _weight_files(folder)])
    for file in files:
        for name, tensor in _tensors_of(file):
            if not (hyper.has_tied_head and name == _HEAD) and not _COMPUTED_TENSOR.fullmatch(name):
                tensors[_gguf_name(name, hyper.architecture)] = _stored(file, name, tensor)
    if hyper.architecture == "gemma3":
        hyper = _as_gemma3(hyper, tensors)
    return assemble(hyper, tensors, files)


def _as_gemma3(hyper: Hyperparameters, tensors: dict[str, StoredTensor]) -> Hyperparameters:
    """Norms as they are applied, and the embedding's scale, which its type decides."""
    for name, tensor in tensors.items():
        if name.endswith("norm.weight"):
            tensors[name] = gemma3.plus_one(tensor)
    embedding = tensors.get("token_embd.weight")
    stored_format = "BF16" if embedding is None else embedding.format
    return replace(hyper, embedding_scale=gemma3.embedding_scale(hyper.hidden_size, stored_format))


def _weight_files(folder: Path) -> list[Path]:
    """One file, or the shards that the index names. Raises ModelError on a missing one."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
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


def _gguf_name(name: str, architecture: str) -> str:
    """GGUF's name of a tensor; a name without one is kept, for assembling to refuse."""
    names = _LAYER_NAMES | _GEMMA3_NAMES if architecture == "gemma3" else _LAYER_NAMES
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None:
        return _TOP_NAMES.get(name, name)
    layer, part, kind = match.groups()
    return f"blk.{layer}.{names[part]}.{kind}" if part in names else name
