"""A trace's text, read within bounds: lines of a file that may be gzipped, and the items of one long JSON array.

A stranger's file may be endless, of one line, or nested a million deep: each is an error that says where.
"""

import codecs
import gzip
import math
import zlib
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from replay.simulate.arrivals import UnusableTrace

MAX_TRACE_BYTES = 1 << 30  # unpacked; no trace that is worth replaying is longer
MAX_LINE_BYTES = 8 << 20  # of a line, and of an item
_CHUNK_BYTES = 1 << 20
_SPACES = "\ufeff\r\n\t "


class TraceText:
    """One file; `lines` and `items` read it from its beginning each time. They raise UnusableTrace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number from 1, text without its end) of each line that is not empty."""
        num_bytes = 0
        with self._open() as file:
            for number in range(1, MAX_TRACE_BYTES):
                raw = self._read(file, MAX_LINE_BYTES + 1)
                if not raw:
                    return
                num_bytes += len(raw)
                if len(raw) > MAX_LINE_BYTES:
                    self.fail(f"line {number}", f"has more than {MAX_LINE_BYTES} bytes")
                self._check_size(num_bytes)
                text = self._decode(raw, f"line {number}").strip(_SPACES)
                if text:
                    yield number, text

    def first_line(self) -> str:
        """The first one that is not empty, or the beginning of one that is too long; "" of an empty file."""
        with self._open() as file:
            while raw := self._read(file, MAX_LINE_BYTES):
                is_whole = len(raw) < MAX_LINE_BYTES
                text = self._decode(raw, "line 1") if is_whole else raw.decode("utf-8", "ignore")
                if text := text.strip(_SPACES):
                    return text
        return ""

    def document(self) -> Any:
        """The file as one JSON value, of the size of a line at most."""
        with self._open() as file:
            raw = self._read(file, MAX_LINE_BYTES + 1, whole_line=False)
        if len(raw) > MAX_LINE_BYTES:
            raise UnusableTrace(f"{self.path} has more than {MAX_LINE_BYTES} bytes")
        try:
            return parse_json(self._decode(raw, "line 1"))
        except ValueError as error:
            raise UnusableTrace(f"{self.path} is no JSON: {error}") from error

    def items(self) -> Iterator[tuple[int, Any]]:
        """(number from 1, value) of each item of the JSON array that the file is; one item is held at a time."""
        with self._open() as file:
            characters = _Characters(self, file)
            if characters.next_mark() != "[":
                self.fail("item 1", "does not stand in a JSON array")
            number = 0
            while (mark := characters.next_mark()) not in ("]", ""):
                if mark == "," and number:
                    continue
                number += 1
                yield number, characters.value(number)
            if not mark:
                self.fail(f"item {number}", "is the last one, but the array is not closed: the file was cut")

    def fail(self, place: str, problem: str) -> NoReturn:
        raise UnusableTrace(f"{self.path}, {place} {problem}")

    def _open(self) -> BinaryIO:
        try:
            return cast("BinaryIO", (gzip.open if self.path.suffix == ".gz" else open)(self.path, "rb"))
        except OSError as error:
            raise UnusableTrace(f"{self.path} cannot be read: {error}") from error

    def _read(self, file: BinaryIO, size: int, *, whole_line: bool = True) -> bytes:
        try:
            return file.readline(size) if whole_line else file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise UnusableTrace(f"{self.path} cannot be read: {error}") from error

    def _decode(self, raw: bytes, place: str) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnusableTrace(f"{self.path}, {place} is no text: {error}") from error

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > MAX_TRACE_BYTES:
            raise UnusableTrace(f"{self.path} has more than {MAX_TRACE_BYTES} bytes: cut it")


def parse_json(text: str) -> Any:
    """One JSON text. Raises ValueError for what is none, infinite, not a number, or nested too deep."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


_DECODER = JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


class _Characters:
    """The text of a file, as much of it as is needed."""

    def __init__(self, text: TraceText, file: BinaryIO) -> None:
        self._text = text
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._buffer = ""
        self._at = 0
        self._num_bytes = 0

    def next_mark(self) -> str:
        """The next character that is no space, taken; "" at the end."""
        while True:
            while self._at < len(self._buffer):
                self._at += 1
                if self._buffer[self._at - 1] not in _SPACES:
                    return self._buffer[self._at - 1]
            if not self._more(0):
                return ""

    def value(self, number: int) -> Any:
        """The JSON value that begins with the mark just taken."""
        self._at -= 1
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except RecursionError:
                self._text.fail(f"item {number}", "is nested too deep")
            except ValueError as error:
                is_cut = isinstance(error, JSONDecodeError) and len(self._buffer) - self._at < MAX_LINE_BYTES
                if not (is_cut and self._more(number)):
                    self._text.fail(f"item {number}", f"is no JSON of at most {MAX_LINE_BYTES} bytes: {error}")
                continue
            if end < len(self._buffer) or not self._more(number):  # a number at the end could go on
                self._at = end
                return value

    def _more(self, number: int) -> bool:
        raw = self._text._read(self._file, _CHUNK_BYTES, whole_line=False)
        self._num_bytes += len(raw)
        self._text._check_size(self._num_bytes)
        try:
            more = self._decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            self._text.fail(f"item {number}", f"is no text: {error}")
        self._buffer, self._at = self._buffer[self._at :] + more, 0
        return bool(raw)
