"""The vault, read: prompts and output tokens of the requests in a recording. See `format.py`, Vault."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from engine.core.contents import RequestContents
from recorder.encryption import ENCRYPTED, NotAuthentic, decrypter
from recorder.format import CIPHER_AES, VAULT_CIPHERS, VAULT_MAGIC
from recorder.frames import FrameReader
from recorder.header import Header
from recorder.keys import KeyRing, KeyUnusable
from recorder.vault_records import GAP, PROMPT, TOKENS

Decrypt = Callable[[bytes, bytes, bytes], bytes]


@dataclass(slots=True)
class Contents:
    """Token ids, by request and by step.

    prompts       request → what its client gave
    tokens        step → (request, token id) in the order of the step's `emitted`
    num_missing   records that the recorder could not keep
    notices       what could not be read, one text each
    """

    prompts: dict[int, RequestContents] = field(default_factory=dict)
    tokens: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    num_missing: int = 0
    notices: list[str] = field(default_factory=list)
    _unreadable: Counter[str] = field(default_factory=Counter)
    _outputs: dict[int, list[int]] = field(default_factory=dict)

    def outputs(self, request: int) -> list[int]:
        """All tokens computed for the request, in order; of one that was handed over, as they were delivered.

        A request that ended while a step computed a token for it has that one more than its answer: TokensEmitted
        tells which ones count.
        """
        return list(self._outputs.get(request, ()))

    @classmethod
    def read(cls, paths: Sequence[Path], open_keys: Callable[[], KeyRing]) -> "Contents":
        """The vaults' contents together; `open_keys` is asked once one is encrypted.

        Raises RecordingError when one is none or newer, and what `open_keys` raises.
        """
        contents = cls()
        keys: KeyRing | None = None
        for path in paths:
            frames = FrameReader(path, VAULT_MAGIC)
            try:
                header = Header.from_map(frames.header, path, VAULT_CIPHERS)
                decrypt: Decrypt | None = None
                if header.cipher == CIPHER_AES:
                    keys = keys or open_keys()
                    decrypt = decrypter(keys, header.salt, header.segment_number)
                contents._add_all(frames, decrypt)
            finally:
                frames.close()
            for offset, num_bytes_lost, reason in frames.damages:
                contents.notices.append(f"{path}: {num_bytes_lost} bytes from offset {offset} on are lost: {reason}")
        contents._tell_unreadable()
        return contents

    def _tell_unreadable(self) -> None:
        for reason, num_records in self._unreadable.items():
            self.notices.append(f"{num_records} records of contents cannot be read: {reason}")

    @property
    def num_unreadable(self) -> int:
        """Records whose key is not here, or that were changed."""
        return sum(self._unreadable.values())

    def _add_all(self, frames: FrameReader, decrypt: Decrypt | None) -> None:
        for body in frames:
            try:
                array = msgpack.unpackb(body, use_list=False, strict_map_key=False)
                if array[0] == ENCRYPTED and decrypt is not None:
                    array = msgpack.unpackb(decrypt(*array[1:4]), use_list=False, strict_map_key=False)
                self._add(array)
            except (KeyUnusable, NotAuthentic) as error:
                self._unreadable[str(error)] += 1
            except Exception as error:  # a stranger's bytes may be wrong in any way; which one is in the notice
                frames.mark_damaged(f"the frame holds no contents: {error or type(error).__name__}", body)
                return

    def _add(self, array: tuple[Any, ...]) -> None:
        """Unknown kinds, written by a newer version, are left out; so are fields beyond those known."""
        kind = array[0]
        if kind == PROMPT:
            contents = RequestContents(*array[2 : 2 + len(RequestContents._fields)])
            self.prompts[array[1]] = contents
            if contents.output_token_ids or array[1] in self._outputs:  # another engine goes on with it
                self._outputs[array[1]] = list(contents.output_token_ids)
        elif kind == TOKENS:
            rows = [(row[0], row[1]) for row in array[2]]
            self.tokens.setdefault(array[1], []).extend(rows)
            for request, token_id in rows:
                self._outputs.setdefault(request, []).append(token_id)
        elif kind == GAP:
            self.num_missing += array[1]
            self.notices.append(f"{array[1]} records of contents were not kept: {array[2]}")
