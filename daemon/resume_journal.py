"""The journal of resumable answers: what the next daemon needs to go on with each. Encrypted, short-lived.

One file per answer, in a folder of this daemon's address: its opening (the request as it was sent to the engine, and
how its answer is told), then its tokens in batches, then its end. The file goes when nobody can ask for it any more.
It is the same with and without `--record-content`: a vault has another life (segments, bounds, key per tenant, kept
for weeks), and reading it back while the next daemon starts would tie a restart to the state of a recording.

A frame is u32 length, 12 random bytes, AES-256-GCM ciphertext of a msgpack body; its associated data are the file's
name and the frame's number, so frames cannot be exchanged. A torn tail ends the file: the tokens behind it are drawn
again, equal. The key lies in the runtime directory, never beside the files: whoever gets the disk alone reads
nothing. Appends are gathered and written by a thread, so the event loop never waits for the disk; only an opening is
waited for, before its client is told that it can come back. Nothing is synced: what the kernel has outlives the
daemon, and a power loss takes the key along, which lies in memory by the unit. It must not know HTTP.
"""

import asyncio
import fcntl
import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import structlog

KEY_BYTES, NONCE_BYTES = 32, 12
MAX_FRAME_BYTES = 64 * 1024 * 1024
FLUSH_SECONDS = 0.1
SUFFIX = ".resume"
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")

log = structlog.get_logger(__name__)


class ResumeJournal:
    """Holds the folder's lock as long as it lives. Raises OSError where the folder or the key cannot be had."""

    def __init__(self, directory: Path, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # here, for most daemons hold no such answer

        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._cipher = AESGCM(key)
        self._lock_descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._num_frames: dict[str, int] = {}
        self._pending: dict[str, list[Any]] = {}
        self._writing = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None

    async def begin(self, opening: Any) -> str:
        """A new file that holds `opening`; its name. It is written when this returns."""
        name = secrets.token_hex(16)
        self._num_frames[name] = 0
        self._pending[name] = [opening]
        await self._flush()
        return name

    def append(self, name: str, record: Any) -> None:
        """Written within FLUSH_SECONDS. Without effect on a file that is gone."""
        if name not in self._num_frames:
            return
        self._pending.setdefault(name, []).append(record)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_soon(), name="resume journal")

    def remove(self, name: str) -> None:
        self._num_frames.pop(name, None)
        self._pending.pop(name, None)
        self._path(name).unlink(missing_ok=True)

    async def close(self) -> None:
        """Write what is gathered; the files stay for the next daemon."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        await self._flush()
        os.close(self._lock_descriptor)

    def read(self) -> list[tuple[str, int, list[Any]]]:
        """(name, wall-clock ns of its last write, records) of every file that a daemon before this one has left."""
        found = []
        for path in sorted(self._directory.glob("*" + SUFFIX)):
            records, num_bytes = self._read_file(path)
            written_ns = path.stat().st_mtime_ns
            if not records:
                path.unlink(missing_ok=True)  # of another key, or cut off in its opening
                continue
            if num_bytes < path.stat().st_size:
                os.truncate(path, num_bytes)
            self._num_frames[path.stem] = len(records)
            found.append((path.stem, written_ns, [record for frame in records for record in frame]))
        return found

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        await self._flush()
        if self._pending:
            self._flushing = asyncio.create_task(self._flush_soon(), name="resume journal")

    async def _flush(self) -> None:
        async with self._writing:
            pending, self._pending = self._pending, {}
            batches = []
            for name, records in pending.items():
                if name in self._num_frames:
                    batches.append((name, self._num_frames[name], records))
                    self._num_frames[name] += 1
            if batches:
                for name in await asyncio.to_thread(self._write, batches):
                    self._num_frames.pop(name, None)  # a hole would make what follows unreadable

    def _write(self, batches: list[tuple[str, int, list[Any]]]) -> list[str]:
        """In a thread: one frame per file; the names of those that could not be written."""
        failed = []
        for name, number, records in batches:
            nonce = secrets.token_bytes(NONCE_BYTES)
            body = nonce + self._cipher.encrypt(nonce, msgpack.packb(records), _associated(name, number))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if number == 0 else 0)
            try:
                descriptor = os.open(self._path(name), flags, 0o600)
                try:
                    os.write(descriptor, _LENGTH.pack(len(body)) + body)
                finally:
                    os.close(descriptor)
            except FileNotFoundError:
                failed.append(name)  # it was removed meanwhile
            except OSError as error:
                failed.append(name)
                log.error("an answer cannot be resumed after a crash", error=error.strerror)
        return failed

    def _read_file(self, path: Path) -> tuple[list[list[Any]], int]:
        """The whole frames, and how many bytes they take."""
        from cryptography.exceptions import InvalidTag

        data, offset, frames = path.read_bytes(), 0, list[list[Any]]()
        while offset + _LENGTH.size <= len(data):
            (length,) = _LENGTH.unpack_from(data, offset)
            body = data[offset + _LENGTH.size : offset + _LENGTH.size + length]
            if length > MAX_FRAME_BYTES or len(body) < length or length <= NONCE_BYTES:
                break
            try:
                plain = self._cipher.decrypt(
                    body[:NONCE_BYTES], body[NONCE_BYTES:], _associated(path.stem, len(frames))
                )
            except InvalidTag:
                break
            frames.append(msgpack.unpackb(plain, use_list=False, strict_map_key=False))
            offset += _LENGTH.size + length
        return frames, offset

    def _path(self, name: str) -> Path:
        return self._directory / (name + SUFFIX)


def open_journal(directory: Path, environment: Mapping[str, str]) -> ResumeJournal | None:
    """None, with a warning, where the folder or the key cannot be had: then answers outlive their connections only."""
    try:
        return ResumeJournal(directory, runtime_key(environment))
    except OSError as error:
        reason = error.strerror or str(error)
        log.warning("answers cannot be resumed after a crash of the daemon", directory=str(directory), reason=reason)
        return None


def runtime_key(environment: Mapping[str, str]) -> bytes:
    """The key of this service or user, made when there is none: gone with the runtime directory. Raises OSError.

    In $RUNTIME_DIRECTORY (systemd; with RuntimeDirectoryPreserve=yes it outlives a restart), $XDG_RUNTIME_DIR/reprise,
    or, where there is neither, ~/.config/reprise.
    """
    under_systemd = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    of_user = environment.get("XDG_RUNTIME_DIR", "")
    home = environment.get("XDG_CONFIG_HOME") or "~/.config"
    folder = Path(under_systemd or Path(of_user or home).expanduser() / "reprise")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "resume.key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
        path.unlink()
        return runtime_key(environment)
    with os.fdopen(descriptor, "wb") as file:
        key = secrets.token_bytes(KEY_BYTES)
        file.write(key)
    return key


def _associated(name: str, number: int) -> bytes:
    return name.encode() + _NUMBER.pack(number)
