"""The key-value metadata at the head of a GGUF file, read quickly and with every length checked before it is believed.

The `gguf` package makes an array view of every string: 4.0 s for the 98 thousand strings of a 49,152-token vocabulary,
against 0.1 s here. Tensors are not looked at: `engine/execution/weights/` reads those.
Source: the GGUF specification, versions 2 and 3, little-endian (docs/gguf.md of the ggml project).
"""

import mmap
import struct
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engine.core.errors import ModelError

MAX_METADATA_KEYS = 65_536
MAX_STRING_BYTES = 16 * 1024 * 1024
MAX_ARRAY_ITEMS = 4 * 1024 * 1024  # sixteen times the largest vocabulary in use

T = TypeVar("T")

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_DTYPES: dict[int, np.dtype[Any]] = {  # value type → little-endian numpy type
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


class GGUFMetadata:
    """Metadata values by key.

    Every getter raises ModelError where the value is of another type, or absent and without a default.
    """

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self._values = values

    def string(self, key: str, default: str | None = None) -> str:
        return self._value(key, str, default)

    def integer(self, key: str, default: int | None = None) -> int:
        return self._value(key, int, default)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._value(key, bool, default)

    def strings(self, key: str) -> list[str]:
        return self._items(key, str)

    def integers(self, key: str) -> list[int]:
        return self._items(key, int)

    def floats(self, key: str) -> list[float]:
        return self._items(key, float)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _value(self, key: str, kind: type[T], default: T | None) -> T:
        value = self._values.get(key, default)
        if value is None:
            raise ModelError(f"{self.path} has no metadata key {key!r}: convert the model again, with its tokenizer")
        if type(value) is not kind:
            raise ModelError(f"{self.path}: metadata key {key!r} holds {type(value).__name__}, not {kind.__name__}")
        return value

    def _items(self, key: str, kind: type[T]) -> list[T]:
        items: list[T] = self._value(key, list, None)
        if items and type(items[0]) is not kind:  # one type per array, says the format
            raise ModelError(
                f"{self.path}: metadata array {key!r} holds {type(items[0]).__name__}, not {kind.__name__}"
            )
        return items


def read_gguf_metadata(path: Path) -> GGUFMetadata:
    """All metadata of the file. Raises ModelError for a file that is cut short, damaged or of an unknown version."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return GGUFMetadata(path, _Reader(path, data).read())
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ModelError(f"the model file {path} cannot be read: {error}") from error


class _Reader:
    """A position in the mapped file; nothing is taken beyond its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._position = 0

    def read(self) -> dict[str, Any]:
        if self._take(4) != b"GGUF":
            raise self._malformed("it does not begin with GGUF")
        version = self._u32()
        if version not in (2, 3):
            raise self._malformed(f"its version is {version}; 2 and 3 in little-endian order can be read")
        self._u64()  # number of tensors
        num_keys = self._u64()
        if num_keys > MAX_METADATA_KEYS:
            raise self._malformed(f"it claims {num_keys} metadata keys, at most {MAX_METADATA_KEYS} are read")
        values: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._strings(1)[0]
            values[key] = self._value(key, self._u32())
        return values

    def _value(self, key: str, value_type: int) -> Any:
        if value_type != _ARRAY:
            return self._array(key, value_type, 1)[0]
        item_type = self._u32()
        count = self._u64()
        if count > MAX_ARRAY_ITEMS:
            raise self._malformed(f"array {key!r} claims {count} items, at most {MAX_ARRAY_ITEMS} are read")
        return self._array(key, item_type, count)

    def _array(self, key: str, item_type: int, count: int) -> list[Any]:
        if item_type == _STRING:
            return self._strings(count)
        dtype = _DTYPES.get(item_type)
        if dtype is None:
            raise self._malformed(f"key {key!r} has the unknown or nested value type {item_type}")
        items: list[Any] = np.frombuffer(self._take(count * dtype.itemsize), dtype).tolist()
        return items

    def _strings(self, count: int) -> list[str]:
        """`count` strings, in one loop with few look-ups: a vocabulary has a hundred thousand."""
        data, size, position, length_at = self._data, self._size, self._position, _U64.unpack_from
        strings = []
        try:
            for _ in range(count):
                start = position + 8
                (length,) = length_at(data, position)
                position = start + length
                if length > MAX_STRING_BYTES or position > size:
                    raise self._malformed(f"a string at byte {start} claims {length} bytes, {size - start} are left")
                strings.append(data[start:position].decode())
        except struct.error as error:
            raise self._malformed(f"it ends inside a string length, at byte {position}") from error
        except UnicodeDecodeError as error:
            raise self._malformed(f"the string at byte {start} is not UTF-8") from error
        self._position = position
        return strings

    def _take(self, num_bytes: int) -> bytes:
        end = self._position + num_bytes
        if end > self._size:
            raise self._malformed(f"it ends at byte {self._size}, inside a value of {num_bytes} bytes")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def _u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def _malformed(self, what: str) -> ModelError:
        return ModelError(f"the GGUF file {self._path} is damaged or cut short: {what}; fetch or convert it again")
