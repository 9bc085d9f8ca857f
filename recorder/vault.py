"""The vault, read: prompts and output tokens of the requests in a recording. See `format.py`, Vault."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from engine.core.contents import RequestContents
from recorder.format import VAULT_MAGIC
from recorder.frames import FrameReader
from recorder.header import Header
from recorder.vault_writer import GAP, PROMPT, TOKENS


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
    _outputs: dict[int, list[int]] = field(default_factory=dict)

    def outputs(self, request: int) -> list[int]:
        """All tokens computed for the request, in order. A request that ended while a step computed a token for it has
        that one more than its answer: TokensEmitted tells which ones count."""
        return list(self._outputs.get(request, ()))

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "Contents":
        """The vaults' contents together. Raises RecordingError when one is none, newer or encrypted."""
        contents = cls()
        for path in paths:
            frames = FrameReader(path, VAULT_MAGIC)
            try:
                Header.from_map(frames.header, path)
                contents._add_all(frames)
            finally:
                frames.close()
            for offset, num_bytes_lost, reason in frames.damages:
                contents.notices.append(f"{path}: {num_bytes_lost} bytes from offset {offset} on are lost: {reason}")
        return contents

    def _add_all(self, frames: FrameReader) -> None:
        for body in frames:
            try:
                self._add(msgpack.unpackb(body, use_list=False, strict_map_key=False))
            except Exception as error:  # a stranger's bytes may be wrong in any way; which one is in the notice
                frames.mark_damaged(f"the frame holds no contents: {error or type(error).__name__}", body)
                return

    def _add(self, array: tuple[Any, ...]) -> None:
        """Unknown kinds, written by a newer version, are left out; so are fields beyond those known."""
        kind = array[0]
        if kind == PROMPT:
            self.prompts[array[1]] = RequestContents(*array[2 : 2 + len(RequestContents._fields)])
        elif kind == TOKENS:
            rows = [(row[0], row[1]) for row in array[2]]
            self.tokens.setdefault(array[1], []).extend(rows)
            for request, token_id in rows:
                self._outputs.setdefault(request, []).append(token_id)
        elif kind == GAP:
            self.num_missing += array[1]
            self.notices.append(f"{array[1]} records of contents were not kept: {array[2]}")
