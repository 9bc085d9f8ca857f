"""Sealing: a live segment nobody appends to any more → the same entries compressed, indexed, and a footer.

Written aside, synced, read back and compared, renamed; only then the live segment is removed. At any moment before,
it is as if nothing had happened. It runs beside a serving engine: in a process of its own, see `housekeeping.py`.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import msgpack

from recorder.chunks import CHUNK_RAW_BYTES, ENTRIES, FOOTER, INDEX, TAIL, TRAILER, pack_chunk
from recorder.errors import RecordingError
from recorder.format import PART_SUFFIX, SEALED_END, SEALED_MAGIC, SEALED_SUFFIX, SEGMENT_MAGIC, U32
from recorder.frames import FrameChain, FrameReader, file_digest, sync_directory
from recorder.index import Index
from recorder.keyframes import is_keyframe
from recorder.sealed import Footer, SealedReader


class SealingFailed(RecordingError):
    """A live segment cannot be sealed, or a sealed one does not hold all of its live form."""


def seal(live: Path) -> Path:
    """Replace the live segment by its sealed form; returns its path.

    Raises RecordingError when it is none or cannot be sealed, OSError for what the disk refuses; then it is unchanged.
    """
    sealed, part = live.with_suffix(SEALED_SUFFIX), live.with_suffix(PART_SUFFIX)
    times = live.stat()
    part.unlink(missing_ok=True)
    try:
        write_sealed(live, part)
        os.utime(part, ns=(times.st_atime_ns, times.st_mtime_ns))  # age counts from the last entry
        _compare(live, part)
        part.rename(sealed)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(sealed.parent)
    live.unlink()
    return sealed


def write_sealed(live: Path, target: Path) -> None:
    """The sealed form of a live segment, as a new file (0600), synced. Raises as `seal`."""
    with closing(FrameReader(live, SEGMENT_MAGIC)) as frames, _new_file(target) as file:
        header = FrameChain(SEALED_MAGIC, frames.header_body)
        file.write(header.first_bytes)
        seed, index = header.checksum, Index()
        num_entries = 0
        for bodies in _in_chunks(frames):
            _add_to_index(index, file.tell(), bodies, live)
            num_entries += len(bodies)
            raw = b"".join([part for body in bodies for part in (U32.pack(len(body)), body)])
            file.write(pack_chunk(ENTRIES, file.tell(), raw, seed))
        tail = _tail(live, frames.offset)
        if tail:
            file.write(pack_chunk(TAIL, file.tell(), tail, seed))
        index_offset = file.tell()
        file.write(pack_chunk(INDEX, index_offset, msgpack.packb(index.to_map()), seed))
        footer = Footer(
            num_entries=num_entries,
            live_bytes=frames.offset + len(tail),
            live_digest=file_digest(live),
            damage=frames.damages[0] if frames.damages else None,
            index_offset=index_offset,
        )
        footer_offset = file.tell()
        file.write(pack_chunk(FOOTER, footer_offset, msgpack.packb(footer.to_map()), seed))
        file.write(TRAILER.pack(footer_offset, SEALED_END))
        file.flush()
        os.fsync(file.fileno())


def unsealed(sealed: Path) -> Iterator[bytes]:
    """The live segment's bytes, piece by piece. Raises RecordingError when not all of it can be read."""
    reader = SealedReader(sealed)
    chain = FrameChain(SEGMENT_MAGIC, reader.header_body)
    yield chain.first_bytes
    for body in reader:
        yield chain.add(body)
    yield chain.add_bytes(reader.tail)
    footer = reader.footer
    if footer is None or (chain.num_bytes, chain.digest()) != (footer.live_bytes, footer.live_digest):
        raise SealingFailed(f"{sealed} does not hold all of the live segment: reprise show --fsck says what is lost")


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _in_chunks(frames: FrameReader) -> Iterator[list[bytes]]:
    """Bodies in groups of CHUNK_RAW_BYTES; a keyframe begins one, so that whoever begins there reads nothing before."""
    bodies: list[bytes] = []
    num_bytes = 0
    for body in frames:
        if bodies and is_keyframe(body):
            yield bodies
            bodies, num_bytes = [], 0
        bodies.append(body)
        num_bytes += U32.size + len(body)
        if num_bytes >= CHUNK_RAW_BYTES:
            yield bodies
            bodies, num_bytes = [], 0
    if bodies:
        yield bodies


def _add_to_index(index: Index, offset: int, bodies: list[bytes], live: Path) -> None:
    try:
        index.add(offset, [msgpack.unpackb(body, use_list=False, strict_map_key=False) for body in bodies])
    except Exception as error:  # a stranger's bytes may be wrong in any way
        raise SealingFailed(f"{live} holds a frame that is no entry, so it is left as it is: {error}") from error


def _tail(live: Path, offset: int) -> bytes:
    """What follows the last whole frame."""
    with live.open("rb") as file:
        file.seek(offset)
        return file.read()


def _compare(live: Path, part: Path) -> None:
    size, digest = SealedReader(part).live_digest()
    if (size, digest) != (live.stat().st_size, file_digest(live)):
        raise SealingFailed(f"{live} does not read back from its sealed form: it is left as it is")
