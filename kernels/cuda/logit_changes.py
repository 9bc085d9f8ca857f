"""Logits changed before a draw, row by row: biases, penalties, bans and what a grammar lets through.

Each operation is one that IEEE 754 rounds correctly, in the order and the precision of `reference_sampling._adjusted`:
so a changed logit has the reference's bits. The step's own logits stay as they are; rows that nothing changes are not
copied.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch
from kernels.cuda.row_flags import IS_CHANGED

CHUNK = 4096  # logits that one program copies
ENTRIES = 256  # of a program
ENTRY_FIELDS = 4
BANNED = float("-inf")  # as a bias
_BANNED = tl.constexpr(BANNED)
_LARGEST = tl.constexpr(3.4028234663852886e38)


def change(
    logits: torch.Tensor,
    changed: torch.Tensor,
    flags: torch.Tensor,
    mask_of: torch.Tensor,
    masks: torch.Tensor,
    entries: torch.Tensor,
    num_entries: int,
    numbers: torch.Tensor,
    penalties: torch.Tensor,
) -> None:
    """
    logits       float32 [rows, vocabulary], contiguous
    changed      the same, written in the rows that have CHANGED
    flags        int32 [rows]: `row_flags.py`
    mask_of      int32 [rows]: the row's place in `masks`; -1: every token is allowed
    masks        int32 [masks, words]: the lowest bit of the first word is token 0's; set where a token is allowed
    entries      int32 [at least num_entries, 4]: row, token id, how often it is in the output (0: in the prompt only,
                 -1: in neither, or without penalties), bits of the float32 bias (BANNED bans). A token is once in a row
    numbers      float64 [rows, 4]: the last is the repetition penalty
    penalties    float32 [rows, 2]: frequency, presence
    """
    rows, vocab_size = logits.shape
    constants = {"VOCAB_SIZE": vocab_size, "WORDS": masks.shape[1]}
    grid = (triton.cdiv(vocab_size, CHUNK), rows)
    launch(_copy_allowed, grid, logits, changed, flags, mask_of, masks, **constants, CHUNK=CHUNK)
    launch(
        _change_entries,
        (triton.cdiv(num_entries, ENTRIES),),
        *(logits, changed, mask_of, masks, entries, numbers, penalties, num_entries),
        **constants,
        ENTRIES=ENTRIES,
    )


@triton.jit
def _is_allowed(
    masks: tl.tensor, mask_of: tl.tensor, ids: tl.tensor, inside: tl.tensor, WORDS: tl.constexpr
) -> tl.tensor:
    at = masks + mask_of.to(tl.int64) * WORDS + ids // 32
    words = tl.load(at, mask=(inside & (mask_of >= 0)) != 0, other=-1)
    return ((words >> (ids % 32)) & 1) != 0


@triton.jit
def _copy_allowed(
    logits: tl.tensor,
    changed: tl.tensor,
    flags: tl.tensor,
    mask_of: tl.tensor,
    masks: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    WORDS: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    row = tl.program_id(1)
    ids = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = ((ids < VOCAB_SIZE) & ((tl.load(flags + row) & IS_CHANGED) != 0)) != 0  # as in `row_flags.py`
    at = row.to(tl.int64) * VOCAB_SIZE + ids
    x = tl.load(logits + at, mask=inside, other=0.0)
    allowed = _is_allowed(masks, tl.load(mask_of + row), ids, inside, WORDS)
    tl.store(changed + at, tl.where(allowed, x, float("-inf")), mask=inside)


@triton.jit(do_not_specialize=["num_entries"])
def _change_entries(
    logits: tl.tensor,
    changed: tl.tensor,
    mask_of: tl.tensor,
    masks: tl.tensor,
    entries: tl.tensor,
    numbers: tl.tensor,
    penalties: tl.tensor,
    num_entries: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    WORDS: tl.constexpr,
    ENTRIES: tl.constexpr,
) -> None:
    places = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    inside = places < num_entries
    entry = entries + places.to(tl.int64) * 4
    row = tl.load(entry, mask=inside, other=0)
    ids = tl.load(entry + 1, mask=inside, other=0)
    count = tl.load(entry + 2, mask=inside, other=-1)
    bias = tl.load(entry + 3, mask=inside, other=0).to(tl.float32, bitcast=True)
    at = row.to(tl.int64) * VOCAB_SIZE + ids
    x = tl.load(logits + at, mask=inside, other=0.0)
    x = tl.where(bias == _BANNED, x, x + bias)
    x = tl.where(count >= 0, _repeated(x, tl.load(numbers + row * 4 + 3, mask=inside, other=1.0)), x)
    times = tl.load(penalties + row * 2, mask=inside, other=0.0) * count.to(tl.float32)
    x = tl.where(count > 0, (x - times) - tl.load(penalties + row * 2 + 1, mask=inside, other=0.0), x)
    x = tl.where(bias == _BANNED, float("-inf"), x)
    allowed = _is_allowed(masks, tl.load(mask_of + row, mask=inside, other=-1), ids, inside, WORDS)
    tl.store(changed + at, x, mask=inside & allowed)


@triton.jit
def _repeated(x: tl.tensor, penalty: tl.tensor) -> tl.tensor:
    before = x.to(tl.float64)
    penalised = tl.where(before > 0, before / penalty, before * penalty)
    penalised = tl.where(penalised > _LARGEST, _LARGEST, penalised)
    penalised = tl.where(penalised < -_LARGEST, -_LARGEST, penalised)
    return tl.where(penalty == 1.0, x, penalised.to(tl.float32))


def _variants(vocab_size: int) -> tuple[Variant, Variant]:
    constants = {"VOCAB_SIZE": vocab_size, "WORDS": triton.cdiv(vocab_size, 32)}
    both = {"logits": "*fp32", "changed": "*fp32", "mask_of": "*i32", "masks": "*i32"}
    of_entries = {"entries": "*i32", "numbers": "*fp64", "penalties": "*fp32"}
    return (
        Variant(
            f"allowed of {vocab_size} logits",
            _copy_allowed,
            {**both, "flags": "*i32"},
            {**constants, "CHUNK": CHUNK},
        ),
        Variant(
            f"changes of {vocab_size} logits",
            _change_entries,
            {**both, **of_entries, "num_entries": "i32"},
            {**constants, "ENTRIES": ENTRIES},
        ),
    )


VARIANTS = _variants(128256)
