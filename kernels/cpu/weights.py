"""A model's weights → the native library, which repacks each into tiles of its own.

A format that the library has no tiles for (Q5_1, Q5_K) is handed over as float32: exact, and four to six times the
memory. It must not know steps or KV memory.
"""

import ctypes as c
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kernels.backend import DecoderParameters, LayerParameters
from kernels.cpu.library import FORMAT_NUMBERS, MATRICES, OUTSIDE_LAYERS, VECTORS, StoredRows, raise_if_failed
from kernels.stored_tensor import StoredTensor


def hand_over(library: c.CDLL, decoder: int, parameters: DecoderParameters, num_threads: int) -> list[object]:
    """Give all weights to the decoder; returns what must stay alive as long as it does (the embedding's rows).

    num_threads   that pack: the library's calls hold no lock, and each writes a matrix of its own
    Raises MemoryError.
    """
    with ThreadPoolExecutor(num_threads) as pool:
        head = pool.submit(_set_matrix, library, decoder, OUTSIDE_LAYERS, 0, parameters.head)  # the largest goes first
        layers = pool.map(partial(_hand_over_layer, library, decoder), range(len(parameters.layers)), parameters.layers)
        head.result()
        for _ in layers:
            pass  # raises what went wrong with a layer
    _set_vector(library, decoder, OUTSIDE_LAYERS, 0, parameters.final_norm)
    embedding, kept = stored_rows(parameters.embedding)
    library.reprise_set_embedding(decoder, c.byref(embedding))
    return kept


def _hand_over_layer(library: c.CDLL, decoder: int, index: int, layer: LayerParameters) -> None:
    for which, name in enumerate(MATRICES):
        _set_matrix(library, decoder, index, which, getattr(layer, name))
    for which, name in enumerate(VECTORS):
        vector = getattr(layer, name)
        if vector is not None:
            _set_vector(library, decoder, index, which, vector)
    if layer.is_local:
        library.reprise_set_local(decoder, index)


def _set_matrix(library: c.CDLL, decoder: int, layer: int, which: int, tensor: StoredTensor) -> None:
    rows, _kept = stored_rows(tensor)
    raise_if_failed(library, library.reprise_set_matrix(decoder, layer, which, c.byref(rows)))


def _set_vector(library: c.CDLL, decoder: int, layer: int, which: int, tensor: StoredTensor) -> None:
    values = tensor.float32()
    result = library.reprise_set_vector(decoder, layer, which, values.ctypes.data, values.size)
    raise_if_failed(library, result)


def stored_rows(tensor: StoredTensor) -> tuple[StoredRows, list[object]]:
    """The library's view of a matrix, and the objects whose memory it points into."""
    num_rows, num_columns = tensor.shape
    if tensor.format not in FORMAT_NUMBERS:
        rows: NDArray[np.uint8] = tensor.float32().view(np.uint8)
        return _rows("F32", num_rows, num_columns, rows, None), [rows]
    order = None if tensor.row_order is None else np.ascontiguousarray(tensor.row_order, dtype=np.int64)
    return _rows(tensor.format, num_rows, num_columns, tensor.rows, order), [tensor.rows, order]


def _rows(
    format: str, num_rows: int, num_columns: int, rows: NDArray[np.uint8], order: NDArray[np.int64] | None
) -> StoredRows:
    return StoredRows(
        FORMAT_NUMBERS[format],
        num_rows,
        num_columns,
        rows.ctypes.data,
        rows.strides[0],
        None if order is None else order.ctypes.data,
    )
