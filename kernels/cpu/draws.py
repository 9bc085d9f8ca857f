"""Rows to draw → the library's structs, and what it drew: a few microseconds a row, whatever the vocabulary.

It mirrors DrawRow, Drawn and Alternative of `src/sampling.h`. The arrays of a row are handed over by address, so they
must stay as they are during the call; the library keeps none of them.
"""

import ctypes as c
import struct
from collections.abc import Sequence

from kernels.cpu import library as native
from kernels.sampling import NO_DRAW, Draw, DrawRow

_ROW = struct.Struct("=6dQQq7Q5i4x")
_DRAWN = struct.Struct("=qfi")
_ALTERNATIVE = struct.Struct("=if")
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_MANY = 1 << 31  # no vocabulary has more


class DrawCall:
    """Draws by one library; the memory for rows and results grows with need and is kept."""

    def __init__(self, library: c.CDLL) -> None:
        self._library = library
        self._rows, self._drawn, self._alternatives = (_memory(0) for _ in range(3))

    def draw(self, decoder: int, logits: native.LogitRows, rows: Sequence[DrawRow]) -> list[Draw]:
        """One Draw for each of `rows`, which belong to the first rows of `logits`. Raises MemoryError."""
        num_alternatives = self._pack(rows, logits.length)
        result = self._library.reprise_draw(decoder, c.byref(logits), self._rows, len(rows), self._drawn)
        native.raise_if_failed(self._library, result)
        drawn = _DRAWN.iter_unpack(memoryview(self._drawn)[: len(rows) * _DRAWN.size])
        if not num_alternatives:
            return [Draw(True, token_id, logprob, ()) if ok else NO_DRAW for token_id, logprob, ok in drawn]
        used = memoryview(self._alternatives)[: num_alternatives * _ALTERNATIVE.size]
        alternatives = iter(_ALTERNATIVE.iter_unpack(used))
        draws = []
        for row, (token_id, logprob, is_finite) in zip(rows, drawn, strict=True):
            count = _num_alternatives(row, logits.length)
            top = tuple([next(alternatives) for _ in range(count)])
            draws.append(Draw(True, token_id, logprob, top) if is_finite else NO_DRAW)
        return draws

    def _pack(self, rows: Sequence[DrawRow], vocab_size: int) -> int:
        """Write the structs; returns how many alternatives all rows ask for."""
        num_alternatives = sum([_num_alternatives(row, vocab_size) for row in rows])
        self._rows = _grown(self._rows, len(rows) * _ROW.size)
        self._drawn = _grown(self._drawn, len(rows) * _DRAWN.size)
        self._alternatives = _grown(self._alternatives, num_alternatives * _ALTERNATIVE.size)
        place, memory = 0, c.addressof(self._alternatives)
        for parameters, position, seen, banned, allowed in rows:
            biased, num_biased = parameters.biased.buffer_info()
            banned_at, num_banned = banned.buffer_info()
            seen_at, num_seen = (0, 0) if seen is None else seen.ids.buffer_info()
            allowed_at, num_allowed = (0, 0) if allowed is None else allowed.buffer_info()
            count = min(max(parameters.num_logprobs, 0), vocab_size)
            _ROW.pack_into(
                self._rows,
                place,
                parameters.temperature,
                parameters.top_p,
                parameters.min_p,
                parameters.repetition_penalty,
                parameters.presence_penalty,
                parameters.frequency_penalty,
                parameters.seed & _WORD,
                position,
                min(parameters.top_k, _MANY),
                seen_at,
                0 if seen is None else seen.counts.buffer_info()[0],
                biased,
                parameters.biases.buffer_info()[0],
                banned_at,
                allowed_at,
                memory,
                num_seen,
                num_biased,
                num_banned,
                num_allowed,
                count,
            )
            place += _ROW.size
            memory += count * _ALTERNATIVE.size
        return num_alternatives


def _num_alternatives(row: DrawRow, vocab_size: int) -> int:
    return min(max(row.parameters.num_logprobs, 0), vocab_size)


def _memory(num_bytes: int) -> "c.Array[c.c_char]":
    return (c.c_char * num_bytes)()


def _grown(memory: "c.Array[c.c_char]", num_bytes: int) -> "c.Array[c.c_char]":
    return memory if len(memory) >= num_bytes else _memory(2 * num_bytes)
