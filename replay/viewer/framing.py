"""The binary answer of the viewer: a JSON header and typed arrays back to back, which the page maps without decoding.

    bytes 0 … 3    length of the header, u32, little-endian
    then           the header, UTF-8 JSON; its `columns` names each array: [name, dtype, length]
    then           the arrays in that order, each on a multiple of 8 bytes, little-endian

It must not know what the arrays mean.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_ALIGNMENT = 8
_DTYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype("u1"),
    "u16": np.dtype("<u2"),
    "u32": np.dtype("<u4"),
    "i32": np.dtype("<i4"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Array = np.ndarray[Any, np.dtype[Any]]


def framed(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """One body. Raises KeyError for a dtype that has no typed array in a browser that the page reads."""
    columns = [[name, _NAMES[array.dtype.newbyteorder("<")], len(array)] for name, array in arrays.items()]
    head = json.dumps({**header, "columns": columns}, separators=(",", ":")).encode()
    parts = [len(head).to_bytes(4, "little"), head]
    size = 4 + len(head)
    for array in arrays.values():
        gap = -size % _ALIGNMENT
        body = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        parts += [b"\0" * gap, body]
        size += gap + len(body)
    return b"".join(parts)


def unframed(body: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `framed` was given, with `columns` in the header; for tests and for other readers."""
    length = int.from_bytes(body[:4], "little")
    header: dict[str, Any] = json.loads(body[4 : 4 + length])
    offset = 4 + length
    arrays: dict[str, Array] = {}
    for name, kind, num in header["columns"]:
        offset += -offset % _ALIGNMENT
        arrays[name] = np.frombuffer(body, _DTYPES[kind], num, offset)
        offset += arrays[name].nbytes
    return header, arrays
