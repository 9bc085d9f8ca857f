"""Proves on this machine, with this model, that company, chunking, placement and threads change no bit.

Fixed inputs, float32 outputs compared bit for bit, at least 10^5 of them: fewer have called a path invariant that was
not. It takes a few hundred milliseconds for a 135M model. A failure does not stop the engine; it withdraws the claim
that a request can be replayed alone, and says so.
"""

from dataclasses import dataclass

import numpy as np

from kernels import memory
from kernels.backend import Backend, Floats
from kernels.packing import SequenceRows, pack_batch

_BLOCK_SIZE = 4
_NUM_TOKENS = 12
_NUM_BLOCKS = 8
_PROBE_ROWS = 16
_MOST_ROWS = 64
_WIDE = 8192  # outputs beyond which fewer row counts are tried: a head's cost as much as all layers' together
_HEAD_ROW_COUNTS = (1, 2, 3, 4, 7, 16, 17, 33)
_LONG_TOKENS = 600  # three splits of 256 keys
_LAST_ROWS = 8  # of them, whose logits are compared: 8 × 49152 values for a small vocabulary

_Piece = tuple[int, int, int]  # sequence, first position, end position
_COMPANY_TABLE, _ALONE_TABLE, _OTHER_TABLE = (0, 1), (2, 3, 4), (6, 7, 5)


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    """
    num_compared   float32 values compared
    failures       one text per claim that does not hold; empty: all hold
    """

    num_compared: int
    failures: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.failures


def run_self_test(backend: Backend, num_threads: int) -> SelfTestReport:
    """Compare a loaded backend with itself: linear rows by place and company, a sequence by chunks and threads.

    num_threads   in force before, and restored
    """
    tally = _Tally()
    _check_linear(backend, tally)
    _check_sequence(backend, num_threads, tally)
    return SelfTestReport(tally.num_compared, tuple(tally.failures))


def run_thorough_test(backend: Backend, num_threads: int) -> SelfTestReport:
    """What `run_self_test` compares, and more of it: 1 to 64 rows, unaligned rows, several splits, many chunkings.

    It takes some seconds; `reprise doctor` is for it.
    """
    tally = _Tally()
    _check_linear(backend, tally)
    _check_row_counts(backend, tally)
    _check_sequence(backend, num_threads, tally)
    _check_long_sequence(backend, num_threads, tally)
    return SelfTestReport(tally.num_compared, tuple(tally.failures))


class _Tally:
    def __init__(self) -> None:
        self.num_compared = 0
        self.failures: list[str] = []

    def compare(self, claim: str, expected: Floats, actual: Floats) -> None:
        """By bits, not values: -0 and 0 differ, and nan equals itself."""
        self.num_compared += expected.size
        num_different = int((expected.view(np.int32) != actual.view(np.int32)).sum())
        if num_different:
            self.failures.append(f"{claim}: {num_different} of {expected.size} values differ")


def _check_linear(backend: Backend, tally: _Tally) -> None:
    for probe in backend.linear_probes():
        rows = hashed_rows(_PROBE_ROWS, probe.num_inputs)
        together = probe.apply(rows)
        for shift in range(1, _PROBE_ROWS):
            moved = np.roll(np.arange(_PROBE_ROWS), shift)
            tally.compare(f"{probe.name}: rows moved by {shift}", together[moved], probe.apply(rows[moved]))
        for row in range(0, _PROBE_ROWS, 5):
            tally.compare(f"{probe.name}: row {row} alone", together[row : row + 1], probe.apply(rows[row : row + 1]))


def _check_row_counts(backend: Backend, tally: _Tally) -> None:
    """Any number of rows up to 64 at once, taken from any place, lying at any address."""
    for probe in backend.linear_probes():
        rows = hashed_rows(_MOST_ROWS, probe.num_inputs)
        together = probe.apply(rows)
        is_head = together.shape[1] > _WIDE
        for count in _HEAD_ROW_COUNTS if is_head else range(1, _MOST_ROWS):
            first = count * 5 % (_MOST_ROWS - count + 1)
            some = rows[first : first + count]
            tally.compare(f"{probe.name}: {count} rows", together[first : first + count], probe.apply(some))
        for shift in (1, 3):  # floats by which the rows' memory is moved out of every vector's alignment
            unaligned = memory.zeros((rows.size + shift,), np.float32)[shift:].reshape(rows.shape)
            unaligned[:] = rows
            tally.compare(f"{probe.name}: rows {4 * shift} bytes off", together, probe.apply(unaligned))


def _check_long_sequence(backend: Backend, num_threads: int, tally: _Tally) -> None:
    """A sequence over several attention splits, in one chunk and in many, decoded, and on every number of threads."""
    num_blocks = -(-_LONG_TOKENS // _BLOCK_SIZE)
    forwards, backwards = tuple(range(num_blocks)), tuple(reversed(range(num_blocks)))

    def logits(table: tuple[int, ...], chunk: int) -> Floats:
        starts = range(0, _LONG_TOKENS, chunk)
        steps = [[(0, start, min(start + chunk, _LONG_TOKENS))] for start in starts]
        return _sequence_logits(backend, table, steps, num_blocks, num_last=_LAST_ROWS)

    expected = logits(forwards, _LONG_TOKENS)
    for chunk in (1, 7, 33, 64, 97, 256):
        tally.compare(f"{_LONG_TOKENS} tokens in chunks of {chunk}", expected, logits(backwards, chunk))
    for count in range(1, num_threads + 1):
        backend.set_num_threads(count)
        try:
            on_some_threads = logits(forwards, 64)
        finally:
            backend.set_num_threads(num_threads)
        tally.compare(f"{_LONG_TOKENS} tokens on {count} of {num_threads} threads", expected, on_some_threads)


def _check_sequence(backend: Backend, num_threads: int, tally: _Tally) -> None:
    """One sequence, alone in one chunk; then in company, in two chunks and other blocks; then on one thread."""
    expected = _sequence_logits(backend, _ALONE_TABLE, [[(0, 0, _NUM_TOKENS)]])
    steps = [[(1, 0, 3), (0, 0, 5)], [(1, 3, 5), (0, 5, _NUM_TOKENS)]]
    tally.compare("a sequence in two chunks, in company", expected, _sequence_logits(backend, _OTHER_TABLE, steps))
    if num_threads > 1:
        backend.set_num_threads(1)
        try:
            on_one_thread = _sequence_logits(backend, _ALONE_TABLE, [[(0, 0, _NUM_TOKENS)]])
        finally:
            backend.set_num_threads(num_threads)
        tally.compare("a sequence on one thread", expected, on_one_thread)


def _sequence_logits(
    backend: Backend,
    table: tuple[int, ...],
    steps: list[list[_Piece]],
    num_blocks: int = _NUM_BLOCKS,
    num_last: int = _LONG_TOKENS,
) -> Floats:
    """Logits of sequence 0's rows over `steps`, the last `num_last` of them, in a KV memory of their own."""
    first_wanted = max(end for step in steps for _sequence, _start, end in step) - num_last
    keys, values = backend.new_kv(num_blocks, _BLOCK_SIZE)
    tables = {0: table, 1: _COMPANY_TABLE}
    logits = []
    for step in steps:
        rows = [
            SequenceRows(
                _tokens(backend, sequence, start, end),
                start,
                tables[sequence],
                0 if sequence else max(0, end - max(start, first_wanted)),
            )
            for sequence, start, end in step
        ]
        logits.append(backend.forward(pack_batch(rows, _BLOCK_SIZE), keys, values).logits.copy())
    return np.concatenate(logits)


def _tokens(backend: Backend, sequence: int, start: int, end: int) -> list[int]:
    """Token ids all over the vocabulary, by position."""
    return [(sequence + 1) * (position + 1) * 7919 % backend.vocab_size for position in range(start, end)]


def hashed_rows(num_rows: int, length: int) -> Floats:
    """Float32 [num_rows, length] in [-1, 1), from an integer hash of the place: the same on every machine."""
    places = np.arange(num_rows * length, dtype=np.int64)
    mixed = (places * 2_654_435_761 + 12_345) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2_246_822_519) & 0xFFFFFFFF
    numbers = ((mixed ^ (mixed >> 13)) & 0xFFFFFF).astype(np.float32)
    return (numbers / np.float32(0x800000) - np.float32(1.0)).reshape(num_rows, length)
