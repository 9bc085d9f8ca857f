"""The vault, written: contents beside the segment they belong to. Runs in the writer thread; see `format.py`, Vault.

It follows the segments' numbers and is not rotated by a size of its own: a prompt's token costs 1 to 3 bytes once, its
computation far more in the segment.
"""

import errno
from dataclasses import replace
from pathlib import Path

import msgpack

from engine.clock import Clock
from engine.core.contents import TokenOutput
from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry
from recorder.disk_sync import DiskSync
from recorder.encryption import encrypted
from recorder.errors import RecordingUnwritable
from recorder.format import CIPHER_AES, CIPHER_NONE, MAX_BODY_BYTES, VAULT_MAGIC, vault_path
from recorder.frames import FramedFile
from recorder.header import Header
from recorder.keys import KeyRing
from recorder.vault_records import GAP, PROMPT, TOKENS, Prompt, StepTokens

MAX_KNOWN_REQUESTS = 262_144  # whose tenants are remembered: far more than can be live


class VaultWriter:
    """Appends contents; what the disk refuses is counted and becomes a gap record when writing works again.

    num_lost   records that are not on file and not yet told in a gap record
    last_error   why the last one is not on file; "" if all are
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        clock: Clock,
        disk: DiskSync,
        segment_number: int,
        keys: KeyRing | None = None,
    ) -> None:
        """With `keys`, each tenant's records are encrypted under a key of its own. Raises RecordingUnwritable."""
        self._keys = keys
        self._tenants: dict[int, str] = {}
        self._disk = disk
        self._directory = directory
        self._header = replace(header, cipher=CIPHER_AES if keys else CIPHER_NONE)
        self._clock = clock
        self._packer = msgpack.Packer()
        self._segment_number = segment_number
        self._num_closed_bytes = 0
        self.num_lost = 0
        self._cause = ""
        self.last_error = ""
        try:
            self._file = self._create(segment_number)
        except OSError as error:
            raise RecordingUnwritable(f"no vault in {directory}: {error.strerror or error}") from error

    @property
    def is_broken(self) -> bool:
        """Nothing can be appended before the next segment begins."""
        return self._file.is_broken or self._file.sync_error is not None

    @property
    def num_bytes(self) -> int:
        return self._num_closed_bytes + self._file.num_bytes

    def note_lost(self, num_records: int, cause: str) -> None:
        self.num_lost += num_records
        self._cause = cause
        self.last_error = f"contents: {cause}"

    def see(self, entry: Entry) -> None:
        """Learn whose request it is. Call it before `append` of what the request brought."""
        if self._keys is not None and type(entry.event) is RequestArrived:
            self._tenants[entry.event.request] = entry.event.tenant
            if len(self._tenants) > MAX_KNOWN_REQUESTS:
                del self._tenants[next(iter(self._tenants))]

    def append(self, records: list[Prompt | StepTokens], segment_number: int) -> None:
        """All of `records` in one append, to the vault of that segment."""
        bodies = [
            body
            for record in records
            for tenant, part in self._by_tenant(record)
            if (body := self._encode(part, tenant, segment_number))
        ]
        num_told = self.num_lost
        if num_told:
            bodies.insert(0, self._packer.pack((GAP, num_told, self._cause)))
        if not bodies:
            return
        try:
            if segment_number != self._segment_number:
                self._begin(segment_number)
            if self.is_broken:
                raise OSError(errno.EIO, "the vault became unwritable")
            self._file.append(bodies)
            self._disk.note(self._file)
            self.num_lost -= num_told
        except OSError as error:
            self.note_lost(len(bodies) - bool(num_told), f"{error.strerror or error} (errno {error.errno})")

    def close(self) -> None:
        self.append([], self._segment_number)  # a gap that still waits to be told
        self._disk.retire(self._file)

    def _by_tenant(self, record: Prompt | StepTokens) -> list[tuple[str, Prompt | StepTokens]]:
        """A step's tokens in as many records as it has tenants."""
        if self._keys is None:
            return [("", record)]
        if isinstance(record, Prompt):
            return [(self._tenants.get(record.request, ""), record)]
        parts: dict[str, list[TokenOutput]] = {}
        for output in record.outputs:
            parts.setdefault(self._tenants.get(output.request, ""), []).append(output)
        return [(tenant, StepTokens(record.step, tuple(outputs))) for tenant, outputs in parts.items()]

    def _encode(self, record: Prompt | StepTokens, tenant: str, segment_number: int) -> bytes | None:
        if isinstance(record, Prompt):
            array: tuple[object, ...] = (PROMPT, record.request, *record.contents)
        else:
            array = (TOKENS, record.step, [(output.request, output.token_id) for output in record.outputs])
        try:
            body: bytes = self._packer.pack(array)
            if self._keys is not None:
                body = self._packer.pack(encrypted(self._keys, tenant, body, self._header.salt, segment_number))
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"{len(body)} bytes exceed {MAX_BODY_BYTES}")
        except Exception as error:  # whatever is wrong with one record, the vault goes on after it
            self._packer.reset()
            self.note_lost(1, f"cannot be encoded: {error}")
            return None
        return body

    def _begin(self, segment_number: int) -> None:
        """Raises OSError, and then the vault before stays the one in use."""
        file = self._create(segment_number)
        self._disk.retire(self._file)
        self._num_closed_bytes += self._file.num_bytes
        self._segment_number, self._file = segment_number, file

    def _create(self, segment_number: int) -> FramedFile:
        header = replace(
            self._header,
            created_wall_ns=self._clock.wall_ns(),
            created_now_ns=self._clock.now_ns(),
            segment_number=segment_number,
        )
        file = FramedFile(vault_path(self._directory, segment_number), VAULT_MAGIC, header.to_vault_map())
        self._disk.note(file)
        return file
