"""Long sequences of small things as bytes: block numbers, reference counts, digests. It must not know classes."""

from array import array
from collections.abc import Sequence
from typing import Any

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.layout import DIGESTS

MIN_PACKED = 8  # fewer are written one by one
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # bytes each → array's type code
_IS_BIG_ENDIAN = array("H", [1]).tobytes() == b"\0\1"


def packed(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The column of these values, or None when they are not all of one kind that can be packed."""
    if len(values) < MIN_PACKED:
        return None
    if type(values[0]) is int:
        return _packed_ints(values)
    if type(values[0]) is bytes:
        return _packed_digests(values)
    return None


def unpacked(kind: int, rest: tuple[Any, ...]) -> list[Any] | None:
    """What `packed` was given; None when it is no packed column. Takes no more than 8 bytes for one in the file."""
    if kind in _CODES:
        return _unpacked_ints(kind, *rest)
    if kind == DIGESTS:
        return _unpacked_digests(*rest)
    return None


def _packed_ints(values: Sequence[int]) -> tuple[Any, ...] | None:
    for size, code in _CODES.items():
        try:
            column = array(code, values)
        except OverflowError:  # one is larger, or negative
            continue
        except TypeError:  # not all are ints
            return None
        return (size, _little_endian(column).tobytes())
    return None


def _unpacked_ints(size: int, data: bytes) -> list[int]:
    if len(data) % size:
        raise KeyframeError(f"a column of {size}-byte ints is {len(data)} bytes long")
    column = array(_CODES[size])
    column.frombytes(data)
    return _little_endian(column).tolist()


def _little_endian(column: "array[int]") -> "array[int]":
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column


def _packed_digests(values: Sequence[bytes]) -> tuple[Any, ...] | None:
    size = len(values[0])
    try:
        data = b"".join(values)
    except TypeError:  # not all are byte strings
        return None
    if not size or len(data) != size * len(values) or {*map(len, values)} != {size}:
        return None
    return (DIGESTS, size, data)


def _unpacked_digests(size: int, data: bytes) -> list[bytes]:
    if size < 1 or len(data) % size:
        raise KeyframeError(f"a column of byte strings of {size} each is {len(data)} bytes long")
    return [data[offset : offset + size] for offset in range(0, len(data), size)]
