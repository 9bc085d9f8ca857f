"""The head of a GGUF file, its metadata and where tensors lie, with every length checked before it is believed.

The `gguf` package makes an array view of every string: 4.0 s for the 98 thousand strings of a 49,152-token vocabulary,
against 0.1 s here. What tensors hold is not looked at: `engine/execution/weights/` reads that.
Source: the GGUF specification, versions 2 and 3, little-endian (docs/gguf.md of the ggml project).
"""

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engine.core.errors import ModelError

MAX_METADATA_KEYS = 65_536
MAX_TENSORS = 1_048_576
MAX_DIMENSIONS = 8
MAX_STRING_BYTES = 16 * 1024 * 1024
MAX_ARRAY_ITEMS = 4 * 1024 * 1024  # sixteen times the largest vocabulary in use

DEFAULT_ALIGNMENT = 32  # bytes, of tensors

T = TypeVar("T")

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_CODES = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}  # struct's, by type


class GGUFMetadata:
    """Metadata values by key.

    Every getter raises ModelError where the value is of another type, or absent and without a default.
    """

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self._values = values

    def get(self, key: str) -> Any:
        """Whatever stands there; None where nothing does."""
        return self._values.get(key)

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


class TensorPlace(NamedTuple):
    """
    shape         outermost dimension first; the file has it the other way round
    type_number   as ggml numbers its types
    start         of its bytes in the file
    """

    name: str
    shape: tuple[int, ...]
    type_number: int
    start: int


def read_gguf_metadata(path: Path, leave_out: tuple[str, ...] = ()) -> GGUFMetadata:
    """The file's metadata, but for arrays whose key begins with one of `leave_out`.

    Raises ModelError for a file that is cut short, damaged or of an unknown version.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return GGUFMetadata(path, _Reader(path, data, leave_out).read_metadata())
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ModelError(f"the model file {path} cannot be read: {error}") from error


def read_gguf_head(
    path: Path, data: mmap.mmap, leave_out: tuple[str, ...]
) -> tuple[GGUFMetadata, tuple[TensorPlace, ...]]:
    """The same of a file that is mapped already, and where its tensors lie. Raises ModelError."""
    reader = _Reader(path, data, leave_out)
    metadata = GGUFMetadata(path, reader.read_metadata())
    return metadata, reader.read_tensors(metadata.integer("general.alignment", DEFAULT_ALIGNMENT))


class _Reader:
    """A position in the mapped file; nothing is taken beyond its end."""

    def __init__(self, path: Path, data: mmap.mmap, leave_out: tuple[str, ...]) -> None:
        self._path = path
        self._data = data
        self._leave_out = leave_out
        self._num_tensors = 0
        self._size = len(data)
        self._position = 0

    def read_metadata(self) -> dict[str, Any]:
        if self._take(4) != b"GGUF":
            raise self._malformed("it does not begin with GGUF")
        version = self._u32()
        if version not in (2, 3):
            raise self._malformed(f"its version is {version}; 2 and 3 in little-endian order can be read")
        self._num_tensors = self._u64()
        num_keys = self._u64()
        if num_keys > MAX_METADATA_KEYS:
            raise self._malformed(f"it claims {num_keys} metadata keys, at most {MAX_METADATA_KEYS} are read")
        values: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._strings(1)[0]
            values[key] = self._value(key, self._u32())
        return values

    def read_tensors(self, alignment: int) -> tuple[TensorPlace, ...]:
        """What stands behind the metadata."""
        if alignment < 1 or self._num_tensors > MAX_TENSORS:
            raise self._malformed(f"it claims {self._num_tensors} tensors, aligned to {alignment} bytes")
        places = []
        for _ in range(self._num_tensors):
            name = self._strings(1)[0]
            num_dimensions = self._u32()
            if num_dimensions > MAX_DIMENSIONS:
                raise self._malformed(f"tensor {name!r} claims {num_dimensions} dimensions")
            shape = [self._u64() for _ in range(num_dimensions)]
            places.append(TensorPlace(name, tuple(reversed(shape)), self._u32(), self._u64()))
        data_start = -(-self._position // alignment) * alignment
        return tuple([place._replace(start=data_start + place.start) for place in places])

    def _value(self, key: str, value_type: int) -> Any:
        if value_type != _ARRAY:
            return self._array(key, value_type, 1)[0]
        item_type = self._u32()
        count = self._u64()
        if count > MAX_ARRAY_ITEMS:
            raise self._malformed(f"array {key!r} claims {count} items, at most {MAX_ARRAY_ITEMS} are read")
        if item_type == _STRING and key.startswith(self._leave_out):
            return self._pass_over_strings(count)
        return self._array(key, item_type, count)

    def _array(self, key: str, item_type: int, count: int) -> list[Any]:
        if item_type == _STRING:
            return self._strings(count)
        code = _CODES.get(item_type)
        if code is None:
            raise self._malformed(f"key {key!r} has the unknown or nested value type {item_type}")
        return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(f"<{code}"))))

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

    def _pass_over_strings(self, count: int) -> None:
        size, position, length_at, data = self._size, self._position, _U64.unpack_from, self._data
        for _ in range(count):
            if position + 8 > size:
                raise self._malformed(f"it ends inside a string length, at byte {position}")
            position += 8 + length_at(data, position)[0]
        if position > size:
            raise self._malformed(f"an array of {count} strings ends at byte {position}")
        self._position = position

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
