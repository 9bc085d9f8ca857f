"""The header of a segment: what a reader must know before the first entry. Its fields are specified in `format.py`."""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import KINDS, Entry
from recorder.errors import NewerFormat, NotARecording, RecordingError
from recorder.format import CIPHER_NONE, FORMAT_VERSION, MIN_READER_VERSION


def current_schema() -> dict[int, list[Any]]:
    """Kind number → [record name, [field name …]] of this version."""
    return {kind: [record_type.__name__, list(record_type._fields)] for kind, record_type in KINDS.items()}


def current_structures() -> dict[str, list[str]]:
    """Name → [field name …] of the arrays nested in records."""
    return {structure.__name__: list(structure._fields) for structure in (Entry, SamplingParams)}


def current_boot_id() -> str:
    """The kernel's id of this boot; "" where it gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What whoever starts a recorder tells about the run; the recorder fills in what follows `quirks` for each segment.

    salt   16 random bytes; the key of the prefix-block digests
    """

    salt: bytes
    boot_id: str = ""
    reprise_version: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    quirks: dict[str, Any] = field(default_factory=dict)
    created_wall_ns: int = 0
    created_now_ns: int = 0
    previous_segment_digest: bytes = b""
    segment_number: int = 1
    first_sequence: int = 0
    starts_fresh: bool = True
    schema: dict[int, list[Any]] = field(default_factory=current_schema)
    structures: dict[str, list[str]] = field(default_factory=current_structures)
    format_version: int = FORMAT_VERSION
    min_reader_version: int = MIN_READER_VERSION
    cipher: str = CIPHER_NONE
    origin: str = ""

    def to_map(self) -> dict[str, Any]:
        return asdict(self)

    def to_vault_map(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in VAULT_FIELDS}

    @classmethod
    def from_map(cls, values: Any, path: Path, ciphers: tuple[str, ...] = (CIPHER_NONE,)) -> "Header":
        """Unknown keys, written by a newer version, are left out.

        ciphers   those that the caller can read
        Raises NotARecording, NewerFormat, RecordingError.
        """
        if not isinstance(values, dict):
            raise NotARecording(f"{path}: the header is no map, so this is no recording of ours")
        needed = values.get("min_reader_version", 1)
        if not isinstance(needed, int) or needed > FORMAT_VERSION:
            raise NewerFormat(path, needed, FORMAT_VERSION)
        known = {item.name: values[item.name] for item in fields(cls) if item.name in values}
        for name, expected in _TYPES.items():
            if name in known and not isinstance(known[name], expected):
                raise NotARecording(f"{path}: header field {name} is {known[name]!r}, not of type {expected.__name__}")
        if "salt" not in known:
            raise NotARecording(f"{path}: the header lacks its salt")
        header = cls(**known)
        if header.cipher not in ciphers:
            raise RecordingError(f"{path} is encrypted with {header.cipher!r}, which this version cannot read")
        return header


VAULT_FIELDS = (
    "format_version",
    "min_reader_version",
    "salt",
    "boot_id",
    "created_wall_ns",
    "created_now_ns",
    "reprise_version",
    "segment_number",
    "cipher",
)

_TYPES: dict[str, type[Any]] = {
    "salt": bytes,
    "boot_id": str,
    "reprise_version": str,
    "limits": dict,
    "config": dict,
    "environment": dict,
    "quirks": dict,
    "created_wall_ns": int,
    "created_now_ns": int,
    "previous_segment_digest": bytes,
    "segment_number": int,
    "first_sequence": int,
    "starts_fresh": bool,
    "schema": dict,
    "structures": dict,
    "format_version": int,
    "cipher": str,
    "origin": str,
}
