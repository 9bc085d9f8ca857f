"""Answers in packs: some hundred together, compressed, so that a page opens one of them to read what it is asked for.

    the pack     gzip, in base64
    unpacked     u32 length of the header, little-endian; the header, UTF-8 JSON: [[path, kind, length], …];
                 then the bodies one after the other. kind: "json", or "frame" as `framing.py` writes them

Neighbouring steps say nearly the same, so together they take a tenth of what each takes alone. It must not know what
is in them.
"""

import base64
import gzip
import json
from typing import Any, TypedDict

_FULL_BYTES = 512 * 1024  # a page takes some ms to open one
_EXPECTED_RATIO = 8  # of compression, for what is not compressed yet; errs on the safe side


class Pack(TypedDict):
    paths: list[str]
    gzip: str


class Packing:
    """One that is being filled."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._bodies: list[bytes] = []
        self._header: list[tuple[str, str, int]] = []
        self._num_bytes = 0

    def add(self, path: str, answer: Any) -> None:
        """`answer`: bytes as they are, anything else as JSON."""
        is_frame = isinstance(answer, bytes)
        body = answer if is_frame else json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
        self.paths.append(path)
        self._bodies.append(body)
        self._header.append((path, "frame" if is_frame else "json", len(body)))
        self._num_bytes += len(body)

    @property
    def is_full(self) -> bool:
        return self._num_bytes >= _FULL_BYTES

    @property
    def expected_bytes(self) -> int:
        """When it is packed."""
        return self._num_bytes // _EXPECTED_RATIO

    def pack(self) -> Pack:
        header = json.dumps(self._header, separators=(",", ":")).encode()
        whole = b"".join((len(header).to_bytes(4, "little"), header, *self._bodies))
        return {"paths": self.paths, "gzip": in_base64(whole)}


def in_base64(body: bytes) -> str:
    """Compressed, and to the same bytes each time."""
    return base64.b64encode(gzip.compress(body, 6, mtime=0)).decode()


def unpacked(pack: Pack) -> dict[str, Any]:
    """path → answer; for tests and for other readers."""
    whole = gzip.decompress(base64.b64decode(pack["gzip"]))
    offset = 4 + int.from_bytes(whole[:4], "little")
    found: dict[str, Any] = {}
    for path, kind, length in json.loads(whole[4:offset]):
        body = whole[offset : offset + length]
        found[path] = json.loads(body) if kind == "json" else body
        offset += length
    return found
