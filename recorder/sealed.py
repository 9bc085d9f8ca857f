"""A sealed segment, read: the frames' bodies chunk by chunk, past damaged chunks where the index tells the way.

See `format.py`, Sealed segment. What a body means is the reader's business; nothing here is repaired in place.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from recorder.chunks import ENTRIES, FOOTER, INDEX, TAIL, TRAILER, BadChunk, Chunk, read_chunk, read_trailer
from recorder.format import SEALED_MAGIC, SEGMENT_MAGIC, U32
from recorder.frames import Damage, FrameChain, FrameReader
from recorder.index import Index


@dataclass(frozen=True, slots=True)
class Footer:
    """What the last chunk says of the whole.

    live_bytes, live_digest   of the live segment that was sealed
    damage                    what was wrong with that one; None if nothing was
    """

    num_entries: int
    live_bytes: int
    live_digest: bytes
    damage: Damage | None
    index_offset: int

    def to_map(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "damage": list(self.damage) if self.damage else None}

    @classmethod
    def from_map(cls, values: dict[str, Any]) -> "Footer":
        known = {name: values[name] for name in cls.__slots__}
        damage = known["damage"]
        return cls(**{**known, "damage": Damage(*damage) if damage else None})


class SealedReader:
    """Like `FrameReader` of the live segment that it was: iterate its bodies once, then look at `damages`.

    header        the header's map
    footer        None when it cannot be read
    index         None when it cannot be read; `Index` is rebuilt by whoever needs it, from the bodies
    is_torn       bodies may be missing behind the last one read
    index_fault   why footer or index cannot be read; "" if they can
    tail          what followed the last whole frame of the live segment; known after the pass
    """

    def __init__(self, path: Path) -> None:
        """Reads header, footer and index. Raises NotARecording, or RecordingError when it cannot be opened."""
        frames = FrameReader(path, SEALED_MAGIC)
        self.path = path
        self.header = frames.header
        self.header_body = frames.header_body
        self.damages: list[Damage] = []
        self.tail = b""
        self.footer: Footer | None = None
        self.index: Index | None = None
        self.index_fault = ""
        self._file = frames.file
        self._first_offset = frames.offset
        self._seed = frames.checksum
        self._num_file_bytes = os.fstat(self._file.fileno()).st_size
        self._footer_offset = 0
        self._place = Damage(0, 0, "")  # of the chunk under way
        self.is_torn = False
        try:
            self._read_footer()
        except Exception as error:  # a stranger's bytes may be wrong in any way
            self.index_fault = str(error) or type(error).__name__

    def __iter__(self) -> Iterator[bytes]:
        return self.bodies()

    def bodies(self, first_chunk: int = 0) -> Iterator[bytes]:
        """The bodies from that chunk on, which only a whole index can find; once."""
        offset = self._first_offset
        if first_chunk and self.index is not None:
            offset = self.index.chunks[first_chunk].offset
        with self._file:
            while (chunk := self._next_good(offset)) is not None and chunk.kind != FOOTER:
                if chunk.kind == TAIL:
                    self.tail = chunk.raw
                elif chunk.kind == ENTRIES:
                    self._place = Damage(offset, chunk.end - offset, "")
                    self.is_torn = False
                    yield from self._bodies_in(chunk.raw)
                offset = chunk.end
            if chunk is not None:
                self._end(chunk)

    def chunks(self) -> Iterator[tuple[int, list[bytes]]]:
        """The offset and the bodies of each chunk of entries; a pass like `bodies`."""
        bodies: list[bytes] = []
        offset = 0
        for body in self.bodies():
            if bodies and self._place.offset != offset:
                yield offset, bodies
                bodies = []
            offset = self._place.offset
            bodies.append(body)
        if bodies:
            yield offset, bodies

    def _next_good(self, offset: int) -> Chunk | None:
        """The chunk there, or the next one that the index knows and that can be read; None when there is none."""
        while True:
            try:
                return self._chunk(offset)
            except BadChunk as error:
                following = self._after(offset)
                if self.footer is not None and offset == self.footer.index_offset:
                    offset = self._footer_offset  # no entry is lost with it: `index_fault` says so
                    continue
                end = self._num_file_bytes if following is None else following
                self._note(Damage(offset, end - offset, str(error)))
                if following is None:
                    return None
                offset = following

    def _after(self, offset: int) -> int | None:
        """Where the next chunk begins that footer and index know of."""
        if self.footer is None:
            return None
        chunks = self.index.chunks if self.index is not None else []
        known = [*(chunk.offset for chunk in chunks), self.footer.index_offset, self._footer_offset]
        return min((other for other in known if other > offset), default=None)

    def _bodies_in(self, raw: bytes) -> Iterator[bytes]:
        position = 0
        while position < len(raw):
            (length,) = U32.unpack_from(raw, position)
            position += U32.size
            if not 0 < length <= len(raw) - position:
                self.mark_damaged(f"a body of {length} bytes runs past its chunk", b"")
                return
            yield raw[position : position + length]
            position += length

    def _end(self, footer: Chunk) -> None:
        """All chunks are read: what was wrong with the live segment is wrong with this one."""
        if self.footer is None:
            try:
                self.footer = Footer.from_map(msgpack.unpackb(footer.raw))
            except Exception as error:  # a stranger's bytes may be wrong in any way
                self.index_fault = f"the footer holds no footer: {error or type(error).__name__}"
                return
        if self.footer.damage is not None:
            self._note(self.footer.damage)

    def _note(self, damage: Damage) -> None:
        self.damages.append(damage)
        self.is_torn = True

    def close(self) -> None:
        self._file.close()

    def mark_damaged(self, reason: str, body: bytes) -> None:
        """Of the body just read: its checksum is right, yet nothing can be made of it."""
        self._note(self._place._replace(reason=reason))

    def live_digest(self) -> tuple[int, bytes]:
        """Size and digest of the live segment, computed again from all that is here; a pass of its own."""
        chain = FrameChain(SEGMENT_MAGIC, self.header_body)
        for body in self:
            chain.add(body)
        chain.add_bytes(self.tail)
        return chain.num_bytes, chain.digest()

    def _chunk(self, offset: int) -> Chunk:
        return read_chunk(self._file, offset, self._seed, self._num_file_bytes)

    def _read_footer(self) -> None:
        self._footer_offset = read_trailer(self._file, self._num_file_bytes)
        if self._footer_offset < self._first_offset:
            raise BadChunk(f"its end says that the footer is at {self._footer_offset}, within the header")
        footer = self._chunk(self._footer_offset)
        if footer.kind != FOOTER or footer.end + TRAILER.size != self._num_file_bytes:
            raise BadChunk(f"no footer stands at {self._footer_offset}, where its end says that it is")
        self.footer = Footer.from_map(msgpack.unpackb(footer.raw))
        index = self._chunk(self.footer.index_offset)
        if index.kind != INDEX:
            raise BadChunk(f"a chunk of kind {index.kind} stands where the index should")
        self.index = Index.from_map(msgpack.unpackb(index.raw, strict_map_key=False))
