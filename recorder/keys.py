"""The keys of vaults: one data key per tenant and month, each in a file of its own, wrapped by one master key.

Deleting a tenant's files erases its contents everywhere, copies and backups of vaults included, since nothing else can
read them. The master key comes from a file, the environment or a systemd credential; where none is given one is made
beside the data keys, which protects a vault that is handed on without them and makes erasing possible, no more.

    KEYS/master               32 bytes, only where no master key was given
    KEYS/<key id>.key         JSON: tenant, created_wall_ns, nonce, wrapped (hexadecimal)

It must not know what is encrypted.
"""

import base64
import binascii
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.clock import Clock
from recorder.errors import RecordingError
from recorder.frames import sync_directory

KEY_BYTES = 32
KEY_ID_BYTES = 8
NONCE_BYTES = 12
ROTATE_AFTER_NS = 30 * 86_400 * 10**9  # a random nonce per record stays safe far beyond the records of a month
MASTER_VARIABLE = "REPRISE_VAULT_KEY"
RING_VARIABLE = "REPRISE_VAULT_KEYS"
CREDENTIAL = "reprise-vault-key"
_MASTER_NAME = "master"
_PURPOSE = b"reprise data key"


class KeyUnusable(RecordingError):
    """A key is missing, malformed, or not the one that wrapped another."""


class DataKey(NamedTuple):
    key_id: bytes
    tenant: str
    created_wall_ns: int
    key: bytes

    def __repr__(self) -> str:
        return f"DataKey({self.key_id.hex()}, {self.tenant!r})"  # never the key


@dataclass(frozen=True, slots=True)
class _Wrapped:
    tenant: str
    created_wall_ns: int
    nonce: bytes
    wrapped: bytes


class KeyRing:
    """All data keys in a folder. It notices what others add to or delete from it."""

    def __init__(self, directory: Path, master: bytes, clock: Clock) -> None:
        """Raises KeyUnusable when the folder cannot be made."""
        self.directory = directory
        self._master = master
        self._clock = clock
        self._seen_ns = -1
        self._keys: dict[bytes, DataKey | KeyUnusable] = {}
        _make_folder(directory)

    def current(self, tenant: str) -> DataKey:
        """To encrypt with: the tenant's newest, a new one where that is a month old. Raises KeyUnusable, OSError."""
        self._look()
        own = [key for key in self._keys.values() if isinstance(key, DataKey) and key.tenant == tenant]
        newest = max(own, key=lambda key: key.created_wall_ns, default=None)
        if newest is None or self._clock.wall_ns() - newest.created_wall_ns > ROTATE_AFTER_NS:
            newest = self._make(tenant)
        return newest

    def find(self, key_id: bytes) -> DataKey:
        """To decrypt with. Raises KeyUnusable."""
        self._look()
        if key_id not in self._keys:
            self._seen_ns = -1  # two changes within a tick of the file system's clock look like one
            self._look()
        found = self._keys.get(key_id)
        if found is None:
            raise KeyUnusable(f"key {key_id.hex()} is not in {self.directory}: it was erased, or is kept elsewhere")
        if isinstance(found, KeyUnusable):
            raise found
        return found

    def all(self) -> list[DataKey]:
        """Those that can be unwrapped, the oldest first."""
        self._look()
        keys = [key for key in self._keys.values() if isinstance(key, DataKey)]
        return sorted(keys, key=lambda key: (key.created_wall_ns, key.key_id))

    def rotate(self, tenant: str) -> DataKey:
        """From now on the tenant's contents are under a new key; what was written stays under the old one."""
        return self._make(tenant)

    def erase(self, tenant: str) -> int:
        """Destroy all keys of the tenant; its contents can never be read again. Returns how many there were."""
        num_erased = 0
        for path in sorted(self.directory.glob("*.key")):
            if _read_wrapped(path).tenant == tenant:
                _destroy(path)
                num_erased += 1
        sync_directory(self.directory)
        return num_erased

    def rewrap(self, master: bytes) -> int:
        """All data keys under another master key; vaults stay as they are. Returns how many."""
        keys = self.all()
        for key in keys:
            self._write(key, master)
        self._master, self._seen_ns = master, -1
        return len(keys)

    def _look(self) -> None:
        changed_ns = self.directory.stat().st_mtime_ns
        if changed_ns != self._seen_ns:
            self._seen_ns = changed_ns
            self._keys = {bytes.fromhex(path.stem): self._unwrapped(path) for path in self.directory.glob("*.key")}

    def _make(self, tenant: str) -> DataKey:
        key = DataKey(secrets.token_bytes(KEY_ID_BYTES), tenant, self._clock.wall_ns(), secrets.token_bytes(KEY_BYTES))
        self._write(key, self._master)
        self._seen_ns = -1
        return key

    def _write(self, key: DataKey, master: bytes) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        wrapped = AESGCM(master).encrypt(nonce, key.key, _associated(key.key_id, key.tenant))
        values = {
            "tenant": key.tenant,
            "created_wall_ns": key.created_wall_ns,
            "nonce": nonce.hex(),
            "wrapped": wrapped.hex(),
        }
        _write_aside(self.directory / f"{key.key_id.hex()}.key", json.dumps(values).encode())

    def _unwrapped(self, path: Path) -> DataKey | KeyUnusable:
        try:
            key_id, found = bytes.fromhex(path.stem), _read_wrapped(path)
            key = AESGCM(self._master).decrypt(found.nonce, found.wrapped, _associated(key_id, found.tenant))
        except InvalidTag:
            return KeyUnusable(f"{path} was wrapped by another master key, or was changed")
        except KeyUnusable as error:
            return error
        return DataKey(key_id, found.tenant, found.created_wall_ns, key)


def open_ring(directory: Path, clock: Clock, environment: Mapping[str, str], key_file: str = "") -> KeyRing:
    """The ring in the folder, or where REPRISE_VAULT_KEYS says, under the master key that is given.

    Raises KeyUnusable.
    """
    chosen = Path(environment.get(RING_VARIABLE) or directory)
    return KeyRing(chosen, _master_key(chosen, environment, key_file), clock)


def read_key_file(path: Path) -> bytes:
    """32 bytes, or 64 hexadecimal digits, or base64 of 32 bytes. Raises KeyUnusable, which never shows what it read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        remedy = "let the daemon's user read it (--vault-key-file, or the credential reprise-vault-key)"
        raise KeyUnusable(f"the vaults' master key in {path} cannot be read: {error.strerror}; {remedy}") from error
    return data if len(data) == KEY_BYTES else _decoded(data.strip(), str(path))


def _master_key(directory: Path, environment: Mapping[str, str], key_file: str) -> bytes:
    """From the first place that has one: file, environment, systemd credential, the ring's own."""
    if key_file:
        return read_key_file(Path(key_file).expanduser())
    if text := environment.get(MASTER_VARIABLE):
        return _decoded(text.encode(), MASTER_VARIABLE)
    credentials = environment.get("CREDENTIALS_DIRECTORY")
    if credentials and (Path(credentials) / CREDENTIAL).exists():
        return read_key_file(Path(credentials) / CREDENTIAL)
    own = directory / _MASTER_NAME
    if not own.exists():
        _make_folder(directory)
        _write_aside(own, secrets.token_bytes(KEY_BYTES))
    return read_key_file(own)


def _make_folder(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeyUnusable(f"no keys can be kept in {directory}: {error.strerror}") from error


def _decoded(text: bytes, place: str) -> bytes:
    with suppress(ValueError):
        if len(key := bytes.fromhex(text.decode("ascii"))) == KEY_BYTES:
            return key
    with suppress(ValueError, binascii.Error):
        if len(key := base64.b64decode(text, validate=True)) == KEY_BYTES:
            return key
    raise KeyUnusable(f"{place} holds no key: give {KEY_BYTES} bytes, as they are, in hexadecimal or in base64")


def _associated(key_id: bytes, tenant: str) -> bytes:
    return _PURPOSE + key_id + tenant.encode("utf-8", "surrogatepass")


def _read_wrapped(path: Path) -> _Wrapped:
    try:
        values = json.loads(path.read_bytes())
        nonce, wrapped = bytes.fromhex(values["nonce"]), bytes.fromhex(values["wrapped"])
        return _Wrapped(str(values["tenant"]), int(values["created_wall_ns"]), nonce, wrapped)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KeyUnusable(f"{path} is no key file of ours") from error


def _write_aside(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.rename(path)
    sync_directory(path.parent)


def _destroy(path: Path) -> None:
    """Overwritten before it is unlinked: of little use on flash, of some elsewhere."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
