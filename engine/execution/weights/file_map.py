"""A model's file as memory: its bytes where they lie, and its pages given back once a backend has copied them."""

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.core.errors import ModelError


class FileMap:
    """Read only. Raises ModelError for a file that is empty or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise ModelError(f"the model file {path} cannot be read: {error}; fetch it again") from error

    def rows(self, name: str, start: int, num_rows: int, row_bytes: int) -> NDArray[np.uint8]:
        """A tensor's bytes, uint8 [num_rows, row_bytes]. Raises ModelError where the file ends before it."""
        num_bytes = num_rows * row_bytes
        if start + num_bytes > len(self.map):
            raise ModelError(
                f"{self.path} ends at byte {len(self.map)}, inside tensor {name}, which begins at {start} and has "
                f"{num_bytes} bytes: fetch it again"
            )
        return np.frombuffer(self.map, np.uint8, num_bytes, start).reshape(num_rows, row_bytes)

    def release_pages(self) -> None:
        """Take the file's pages out of this process; what is read again comes back from the file cache by itself."""
        self.map.madvise(mmap.MADV_DONTNEED)
