"""Records of contents under a data key: AES-256-GCM, bound to the vault and segment that they were written for.

A body is [4, key id, nonce, ciphertext]; the plain text is the body that it would be without. See `format.py`, Vault.
"""

import secrets
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from recorder.errors import RecordingError
from recorder.format import U32
from recorder.keys import NONCE_BYTES, KeyRing

ENCRYPTED = 4


class NotAuthentic(RecordingError):
    """A record was changed, or was written for another vault."""


def encrypted(
    ring: KeyRing, tenant: str, body: bytes, salt: bytes, segment_number: int
) -> tuple[int, bytes, bytes, bytes]:
    """The array that stands for `body`. Raises KeyUnusable, OSError."""
    key = ring.current(tenant)
    nonce = secrets.token_bytes(NONCE_BYTES)
    ciphertext = AESGCM(key.key).encrypt(nonce, body, _associated(salt, segment_number, key.key_id))
    return ENCRYPTED, key.key_id, nonce, ciphertext


def decrypter(ring: KeyRing, salt: bytes, segment_number: int) -> Callable[[bytes, bytes, bytes], bytes]:
    """A function of key id, nonce and ciphertext; it raises KeyUnusable or NotAuthentic."""

    def decrypt(key_id: bytes, nonce: bytes, ciphertext: bytes) -> bytes:
        key = ring.find(key_id)
        try:
            return AESGCM(key.key).decrypt(nonce, ciphertext, _associated(salt, segment_number, key_id))
        except (InvalidTag, ValueError) as error:
            raise NotAuthentic(f"a record under key {key_id.hex()} was changed, or was written elsewhere") from error

    return decrypt


def _associated(salt: bytes, segment_number: int, key_id: bytes) -> bytes:
    return salt + U32.pack(segment_number) + key_id
