"""A GGUF file → a model: its types of numbers and the order of its rows are known here only.

Source: the GGUF specification (ggml/docs/gguf.md).
"""

import math
from pathlib import Path

import numpy as np

from engine.core.errors import ModelError
from engine.execution.architectures import Hyperparameters, require_architecture
from engine.execution.model import Model, assemble
from engine.execution.weights.file_map import FileMap
from engine.execution.weights.gguf_hyperparameters import ROPE_FACTORS, gguf_hyperparameters
from engine.text.gguf_metadata import TensorPlace, read_gguf_head
from kernels.stored_tensor import FORMATS, StoredTensor, row_bytes

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
    require_architecture(head.string("general.architecture"))
    tensors = {place.name: _stored(file, place) for place in places}
    hyper = gguf_hyperparameters(head, tensors)
    tensors.pop(ROPE_FACTORS, None)
    if hyper.traits.gguf_interleaves:
        _undo_interleaving(tensors, hyper)
    return assemble(hyper, tensors, (file,))


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
