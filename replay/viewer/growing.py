"""Rows that grow at the end, as one array a column; kept in a file they are read again at once. It knows no table."""

import os
import sqlite3
import zipfile
from itertools import chain
from pathlib import Path

import numpy as np

from replay.viewer.framing import Array

_BATCH = 50_000


class Growing:
    """Rows of floats that grow at the end: `view` of those there are."""

    def __init__(self, dtypes: tuple[str, ...]) -> None:
        self._arrays = [np.empty(1_024, dtype) for dtype in dtypes]
        self.length = 0

    def view(self, column: int) -> Array:
        return self._arrays[column][: self.length]

    def cut(self, length: int) -> None:
        """Forget the rows from there on."""
        self.length = length

    def save(self, path: Path) -> None:
        """For `load`, by this version on this machine."""
        whole = path.with_suffix(f".{os.getpid()}")
        with whole.open("wb") as file:
            np.savez(
                file, allow_pickle=False, **{f"c{number}": self.view(number) for number in range(len(self._arrays))}
            )
        whole.replace(path)

    def load(self, path: Path) -> bool:
        """False: they are not there, or not of this kind."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = [found[f"c{number}"] for number in range(len(self._arrays))]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
            return False
        alike = all(new.dtype == old.dtype for new, old in zip(arrays, self._arrays, strict=True))
        if not alike or len({array.shape for array in arrays}) != 1 or not len(arrays[0]):
            return False
        self._arrays, self.length = arrays, len(arrays[0])
        return True

    def take(self, cursor: sqlite3.Cursor) -> None:
        """All rows of the cursor; NULL becomes NaN."""
        width = len(self._arrays)
        while rows := cursor.fetchmany(_BATCH):
            values = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width)
            self.extend(values.reshape(len(rows), width))

    def replace(self, places: Array, rows: Array) -> None:
        """`rows` as of `extend`, one for each place."""
        for number, array in enumerate(self._arrays):
            array[places] = rows[:, number]

    def extend(self, rows: Array) -> None:
        """Rows × columns, of floats."""
        end = self.length + len(rows)
        for number, array in enumerate(self._arrays):
            if end > len(array):
                grown = np.empty(max(end, 2 * len(array)), array.dtype)
                grown[: self.length] = array[: self.length]
                self._arrays[number] = array = grown
            array[self.length : end] = rows[:, number]
        self.length = end
