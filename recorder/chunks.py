"""The framing of a sealed segment after its header: checked chunks, both ways. See `format.py`, Sealed segment.

It knows bytes; which chunk holds what is `sealed.py`'s and `sealing.py`'s business.
"""

import struct
from typing import BinaryIO, NamedTuple

import zstandard
from google_crc32c import extend

from recorder.format import MAX_BODY_BYTES, SEALED_END, U32

ENTRIES = 1
TAIL = 2
INDEX = 3
FOOTER = 4

CHUNK_RAW_BYTES = 256 * 1024  # a chunk of entries ends with the entry that reaches this
MAX_CHUNK_RAW_BYTES = CHUNK_RAW_BYTES + U32.size + MAX_BODY_BYTES
PREFIX = struct.Struct("<IIII")  # kind, stored length, raw length, checksum
COVERED = struct.Struct("<IIII")  # offset in the file, kind, stored length, raw length: what the checksum begins with
TRAILER = struct.Struct("<I8s")  # offset of the footer, end magic
ZSTD_LEVEL = 3  # 36.6 bytes a token become 23.6; 12 takes 40 % longer for 2 % fewer, 19 five times as long for 20 %


class Chunk(NamedTuple):
    """A chunk whose checksum is right: its raw bytes, and where the next one begins."""

    kind: int
    raw: bytes
    end: int


class BadChunk(Exception):
    """Why no chunk can be read at an offset. It never leaves the recorder: readers turn it into a notice."""


def pack_chunk(kind: int, offset: int, raw: bytes, seed: int) -> bytes:
    """The chunk as it lies in the file at that offset.

    seed   checksum of the header's frame, from which every chunk's own goes on: no chunk of another file passes
    """
    stored = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(raw)
    return PREFIX.pack(kind, len(stored), len(raw), _checksum(kind, offset, stored, len(raw), seed)) + stored


def read_chunk(file: BinaryIO, offset: int, seed: int, num_file_bytes: int) -> Chunk:
    """Nothing is believed, nor memory taken, before it fits into the file and its checksum is right.

    Raises BadChunk.
    """
    file.seek(offset)
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        raise BadChunk("the file ends before its footer")
    kind, num_stored, num_raw, checksum = PREFIX.unpack(prefix)
    end = offset + PREFIX.size + num_stored
    if end > num_file_bytes:
        raise BadChunk(f"a chunk of {num_stored} bytes runs past the end of the file")
    if num_raw > MAX_CHUNK_RAW_BYTES:
        raise BadChunk(f"a chunk claims {num_raw} bytes, at most {MAX_CHUNK_RAW_BYTES} are possible")
    stored = file.read(num_stored)
    computed = _checksum(kind, offset, stored, num_raw, seed)
    if computed != checksum:
        raise BadChunk(f"checksum {checksum:08x} stands where {computed:08x} was computed")
    return Chunk(kind, _decompressed(stored, num_raw), end)


def read_trailer(file: BinaryIO, num_file_bytes: int) -> int:
    """Offset of the footer. Raises BadChunk."""
    file.seek(max(0, num_file_bytes - TRAILER.size))
    data = file.read(TRAILER.size)
    if len(data) < TRAILER.size:
        raise BadChunk("the file is shorter than its end")
    offset, end_magic = TRAILER.unpack(data)
    if end_magic != SEALED_END:
        raise BadChunk(f"it ends with {end_magic.hex(' ')}, not {SEALED_END.hex(' ')}")
    return int(offset)


def _checksum(kind: int, offset: int, stored: bytes, num_raw: int, seed: int) -> int:
    covered = COVERED.pack(offset, kind, len(stored), num_raw)
    checksum: int = extend(extend(seed, covered), stored)
    return checksum


def _decompressed(stored: bytes, num_raw: int) -> bytes:
    try:
        if zstandard.frame_content_size(stored) != num_raw:  # what the decompressor would believe
            raise BadChunk("a chunk's compressed bytes are of another length than it says")
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=num_raw)
    except zstandard.ZstdError as error:
        raise BadChunk(f"a chunk cannot be decompressed: {error}") from error
