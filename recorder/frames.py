"""The framing of segments and vaults, both ways: bodies with a length and a chained checksum. See `format.py`.

It knows bytes and files; what a body means is not its business.
"""

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgpack
from google_crc32c import extend, value

from recorder.errors import NotARecording, RecordingError
from recorder.format import DIGEST_BYTES, FRAME_PREFIX, MAX_BODY_BYTES, U32
from recorder.index import Index

_READ_BUFFER_BYTES = 1 << 20


class FramedFile:
    """A file under way: created exclusively, appended to, never left with half a frame if that can be helped.

    num_bytes        whole frames on file, magic and header included
    is_broken        a failed write could not be taken back: nothing may be appended here any more
    sync_error       what a sync failed with: what was appended may not be on the disk, nor what would be
    waits_for_sync, is_retired, is_named, is_closed
                     between its writer and `DiskSync`: is_named once its name, too, outlives a power loss
    """

    def __init__(self, path: Path, magic: bytes, header: dict[str, Any]) -> None:
        """Raises OSError, and then leaves no file; FileExistsError when it is there already."""
        self.path = path
        self.num_bytes = 0
        self.is_broken = False
        self.sync_error: OSError | None = None
        self.waits_for_sync = self.is_retired = self.is_named = self.is_closed = False
        self._crc: int = value(magic)
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        try:
            self._append(magic, [msgpack.packb(header)])
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise
        self.num_header_bytes = self.num_bytes

    def append(self, bodies: Sequence[bytes]) -> None:
        """All of `bodies` as frames, in one write; raises OSError when they are not all on file, and then none is."""
        self._append(b"", bodies)

    def digest(self) -> bytes:
        """Of the whole file so far."""
        return self._digest.digest()

    def sync(self) -> None:
        """To the disk itself; raises OSError."""
        os.fdatasync(self._descriptor)

    @property
    def is_removed(self) -> bool:
        """Somebody has taken its name away: what is appended goes with it when it is closed. Raises OSError."""
        return os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self._descriptor)

    def _append(self, before: bytes, bodies: Sequence[bytes]) -> None:
        crc = self._crc
        parts = [before]
        for body in bodies:
            length = U32.pack(len(body))
            crc = extend(extend(crc, length), body)
            parts += (length, U32.pack(crc), body)
        data = b"".join(parts)
        self._write(data)
        self._crc = crc
        self._digest.update(data)
        self.num_bytes += len(data)

    def _write(self, data: bytes) -> None:
        try:
            num_written = os.write(self._descriptor, data)
            while num_written < len(data):  # short: the disk is nearly full, or a signal came
                more = os.write(self._descriptor, memoryview(data)[num_written:])
                if more == 0:
                    raise OSError(errno.ENOSPC, "the file takes no more bytes")
                num_written += more
        except OSError:
            self._take_back()
            raise

    def _take_back(self) -> None:
        """Cut off what a failed write left behind: the next frame must follow the last whole one."""
        try:
            os.ftruncate(self._descriptor, self.num_bytes)
        except OSError:
            self.is_broken = True


class FrameChain:
    """The bytes that a file of these bodies has, without the file.

    num_bytes     so far, magic and header included
    checksum      of the last frame
    first_bytes   magic and header
    """

    def __init__(self, magic: bytes, header_body: bytes) -> None:
        self.checksum: int = value(magic)
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.num_bytes = 0
        self.first_bytes = self.add_bytes(magic) + self.add(header_body)

    def add(self, body: bytes) -> bytes:
        """The body's frame."""
        length = U32.pack(len(body))
        self.checksum = extend(extend(self.checksum, length), body)
        return self.add_bytes(length + U32.pack(self.checksum) + body)

    def add_bytes(self, data: bytes) -> bytes:
        """Bytes that are no frame, such as a torn tail."""
        self._digest.update(data)
        self.num_bytes += len(data)
        return data

    def digest(self) -> bytes:
        """Of all so far."""
        return self._digest.digest()


class Damage(NamedTuple):
    """Why a file's frames end before the file does.

    offset           of the first byte that is not part of a good frame
    num_bytes_lost   from there to the end of the file
    """

    offset: int
    num_bytes_lost: int
    reason: str


class FrameReader:
    """The bodies in one file: iterate once; afterwards `damages` says why it ended early, or is empty.

    file, offset, checksum   where it stands: behind the last good frame
    header, header_body      what the header's frame holds, and its bytes; header_checksum: where it ends
    """

    def __init__(self, path: Path, magic: bytes) -> None:
        """Reads the header. Raises NotARecording, or RecordingError when the file cannot be opened."""
        self.path = path
        self.index: Index | None = None  # a file under way has none, so none that could be damaged
        self.index_fault = ""
        self.damages: list[Damage] = []
        try:
            self.file: BinaryIO = path.open("rb", buffering=_READ_BUFFER_BYTES)
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror}") from error
        self._num_file_bytes = os.fstat(self.file.fileno()).st_size
        self.offset = len(magic)
        self.checksum: int = value(magic)
        try:
            self.header = self._read_header(magic)
            self.header_checksum = self.checksum
        except RecordingError:
            self.file.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self.bodies()

    def bodies(self, first_chunk: int = 0) -> Iterator[bytes]:
        """`first_chunk` counts in sealed segments only."""
        with self.file:
            while (body := self._next_body()) is not None:
                yield body

    def go_to(self, offset: int, checksum: int) -> None:
        """Stand where a reader of the same file has stood, behind a good frame; before the bodies are iterated."""
        self.file.seek(offset)
        self.offset, self.checksum = offset, checksum

    @property
    def is_torn(self) -> bool:
        """Bodies may be missing behind the last one read."""
        return bool(self.damages)

    def close(self) -> None:
        self.file.close()

    def mark_damaged(self, reason: str, body: bytes) -> None:
        """Of the body just read: its checksum is right, yet nothing can be made of it."""
        offset = self.offset - FRAME_PREFIX.size - len(body)
        self.damages.append(Damage(offset, self._num_file_bytes - offset, reason))

    def _read_header(self, magic: bytes) -> Any:
        found = self.file.read(len(magic))
        if found != magic:
            what = "is empty" if not found else f"begins with {found.hex(' ')}, not {magic.hex(' ')}"
            raise NotARecording(f"{self.path} {what}: this is no {self.path.suffix or 'recording'} file of ours")
        body = self._next_body()
        if body is None:
            reason = self.damages[0].reason if self.damages else "the file ends before it"
            raise NotARecording(f"{self.path}: the header is not whole ({reason}), so nothing in it can be read")
        self.header_body = body
        try:
            return msgpack.unpackb(body, strict_map_key=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise NotARecording(f"{self.path}: the header is not msgpack: {error}") from error

    def _next_body(self) -> bytes | None:
        """The body of the next frame, or None at the end of what is good."""
        prefix = self.file.read(FRAME_PREFIX.size)
        if len(prefix) < FRAME_PREFIX.size:
            if prefix:
                self._end("a frame's prefix is cut short")
            return None
        length, checksum = FRAME_PREFIX.unpack(prefix)
        if not 0 < length <= MAX_BODY_BYTES:
            self._end(f"a frame claims {length} bytes, 1 to {MAX_BODY_BYTES} are possible")
            return None
        end = self.offset + FRAME_PREFIX.size + length
        if end > self._num_file_bytes:
            self._num_file_bytes = os.fstat(self.file.fileno()).st_size  # it may still be growing
            if end > self._num_file_bytes:
                self._end(f"a frame of {length} bytes runs past the end of the file")
                return None
        body = self.file.read(length)
        crc: int = extend(extend(self.checksum, prefix[: U32.size]), body)
        if crc != checksum:
            self._end(f"checksum {checksum:08x} stands where {crc:08x} was computed")
            return None
        self.checksum = crc
        self.offset = end
        return body

    def _end(self, reason: str) -> None:
        self.damages.append(Damage(self.offset, self._num_file_bytes - self.offset, reason))


def file_digest(path: Path) -> bytes:
    """The digest that the next segment's header holds of this file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).digest()


def sync_directory(directory: Path) -> None:
    """So that a new file's name, too, outlives a power loss."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
