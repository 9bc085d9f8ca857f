"""What rows of a step ask of the device for their draws, as arrays for one copy. It must not know the answers.

A row that asks for something out of the ordinary is not asked about: the host draws it from all of its logits. Which
rows those are follows a row's own parameters alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.cuda.logit_changes import BANNED, ENTRY_FIELDS
from kernels.cuda.row_flags import CANDIDATES, CHANGED, TOP, WHOLE
from kernels.philox import uniform
from kernels.sampling import DrawRow

MOST_CANDIDATES = 128
MOST_TOP = 32  # of the likeliest to be told: 20, and some that may equal the last of them
WIDTHS = (1, 32, MOST_CANDIDATES)  # candidates looked for in a step: few, for each is a compilation
_MOST_ENTRIES = 1 << 17  # of a row
_SMALLEST = float(np.finfo(np.float64).tiny)

Int32 = NDArray[np.int32]


class DrawRequests(NamedTuple):
    """
    flags        int32 [rows]: `row_flags.py`
    numbers      float64 [rows, 4]: temperature, smallest weight kept, uniform number, repetition penalty
    penalties    float32 [rows, 2]: frequency, presence
    mask_of      int32 [rows], masks int32 [masks, words], entries int32 [entries, 4]: as in `logit_changes.change`
    width        candidates to look for; 0: none
    refused      place → why the row cannot be asked about
    """

    flags: Int32
    numbers: NDArray[np.float64]
    penalties: NDArray[np.float32]
    mask_of: Int32
    masks: Int32
    entries: Int32
    width: int
    refused: dict[int, str]


def requests_of(rows: Sequence[DrawRow], vocab_size: int) -> DrawRequests:
    """`width` and what the rows' flags say is the same for a row in any company but for a wider look at candidates."""
    flags = np.zeros(len(rows), np.int32)
    numbers = np.tile(np.array([1.0, _SMALLEST, 0.0, 1.0]), (len(rows), 1))
    penalties = np.zeros((len(rows), 2), np.float32)
    mask_of = np.full(len(rows), -1, np.int32)
    masks: list[Int32] = []
    entries: list[Int32] = []
    refused: dict[int, str] = {}
    width = 0
    for place, row in enumerate(rows):
        if takes_the_likeliest(row):
            continue
        parameters = row.parameters
        if reason := _refusal(row):
            refused[place] = reason
            continue
        wanted = _candidates_wanted(row)
        width = max(width, wanted)
        flags[place] = (
            (CANDIDATES if wanted else 0)
            | (CHANGED if _is_changed(row) else 0)
            | (WHOLE if _draws_from_all(row) else 0)
            | (TOP if parameters.num_logprobs > 0 else 0)
        )
        if parameters.temperature > 0.0:
            numbers[place, :3] = (
                parameters.temperature,
                max(parameters.min_p, _SMALLEST),
                uniform(parameters.seed, row.position),
            )
        numbers[place, 3] = parameters.repetition_penalty
        penalties[place] = parameters.frequency_penalty, parameters.presence_penalty
        if row.allowed is not None:
            mask_of[place] = len(masks)
            masks.append(_mask(row, vocab_size))
        if _is_changed(row):
            entries.append(_entries(place, row, vocab_size))
    width = min(vocab_size, next((each for each in WIDTHS if each >= width), MOST_CANDIDATES)) if width else 0
    return DrawRequests(
        flags,
        numbers,
        penalties,
        mask_of,
        np.stack(masks) if masks else np.zeros((0, -(-vocab_size // 32)), np.int32),
        np.concatenate(entries) if entries else np.zeros((0, ENTRY_FIELDS), np.int32),
        width,
        refused,
    )


def takes_the_likeliest(row: DrawRow) -> bool:
    """Nothing changes its logits, and nothing more is asked about them: a step's statistics say all."""
    return row.parameters.temperature <= 0.0 and row.parameters.num_logprobs <= 0 and not _is_changed(row)


def _is_changed(row: DrawRow) -> bool:
    return row.seen is not None or row.allowed is not None or bool(len(row.banned)) or bool(len(row.parameters.biased))


def _refusal(row: DrawRow) -> str:
    parameters = row.parameters
    if parameters.num_logprobs >= MOST_TOP:
        return "top_logprobs"
    if len(set(parameters.biased)) < len(parameters.biased) or not np.isfinite(np.array(parameters.biases)).all():
        return "logit_bias"  # a token biased twice: the order of the additions counts
    if len(parameters.biased) + len(row.banned) + (len(row.seen.ids) if row.seen else 0) > _MOST_ENTRIES:
        return "too many changes"
    return ""


def _candidates_wanted(row: DrawRow) -> int:
    """1: the likeliest, which other weights are relative to, and which a greedy draw takes."""
    parameters = row.parameters
    if parameters.temperature <= 0.0:
        return int(_is_changed(row))
    if parameters.top_k > 0:
        return parameters.top_k + 1  # one more, to see that it is less likely
    return MOST_CANDIDATES if parameters.top_p < 1.0 else 1


def _draws_from_all(row: DrawRow) -> bool:
    parameters = row.parameters
    return parameters.temperature > 0.0 and not 0 < parameters.top_k < MOST_CANDIDATES


def _mask(row: DrawRow, vocab_size: int) -> Int32:
    """Of all the vocabulary's words; none is allowed beyond those that are given."""
    words = np.zeros(-(-vocab_size // 32), np.int32)
    given = np.frombuffer(row.allowed or b"", np.int32)[: len(words)]
    words[: len(given)] = given
    return words


def _entries(place: int, row: DrawRow, vocab_size: int) -> Int32:
    """[tokens, 4]: each token that anything changes once, ascending."""
    parameters = row.parameters
    biased, banned = np.array(parameters.biased, np.int64), np.array(row.banned, np.int64)
    seen = np.array(row.seen.ids if row.seen else (), np.int64)
    ids = np.unique(np.concatenate((biased, banned, seen)))
    found: NDArray[Any] = np.zeros((len(ids), ENTRY_FIELDS), np.int32)
    found[:, 0], found[:, 1], found[:, 2] = place, ids.clip(0, vocab_size), -1
    biases = found[:, 3].view(np.float32)
    if row.seen is not None:
        found[np.searchsorted(ids, seen), 2] = np.array(row.seen.counts, np.int64)
    biases[np.searchsorted(ids, biased)] = np.array(parameters.biases, np.float32)
    biases[np.searchsorted(ids, banned)] = BANNED
    return np.ascontiguousarray(found[(ids >= 0) & (ids < vocab_size)])
