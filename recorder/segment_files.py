"""A segment's file, whatever its form: live or sealed, and sealed between two looks at it.

Whoever reads a segment opens it here; the two forms' own modules know nothing of each other.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from recorder.errors import RecordingError
from recorder.format import SEALED_SUFFIX, SEGMENT_MAGIC
from recorder.frames import FrameReader, file_digest

if TYPE_CHECKING:  # zstd is needed by those who meet a sealed segment
    from recorder.sealed import SealedReader


def open_segment(path: Path) -> "FrameReader | SealedReader":
    """Its header read, its bodies to be iterated. Raises NotARecording, RecordingError."""
    if path.suffix == SEALED_SUFFIX:
        return _open_sealed(path)
    try:
        return FrameReader(path, SEGMENT_MAGIC)
    except RecordingError:
        if not path.exists() and path.with_suffix(SEALED_SUFFIX).exists():  # sealed since its folder was listed
            return _open_sealed(path.with_suffix(SEALED_SUFFIX))
        raise


def live_digest(path: Path) -> bytes:
    """What the next segment's header holds of this one: the digest of its live form; b"" where none can be told.

    Raises OSError, RecordingError.
    """
    if path.suffix != SEALED_SUFFIX:
        try:
            return file_digest(path)
        except FileNotFoundError:
            path = path.with_suffix(SEALED_SUFFIX)
    reader = _open_sealed(path)
    reader.close()
    return reader.footer.live_digest if reader.footer is not None else b""


def _open_sealed(path: Path) -> "SealedReader":
    from recorder.sealed import SealedReader

    return SealedReader(path)
