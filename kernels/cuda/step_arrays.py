"""A step's arrays as they travel: how large they are for a padded step, and filled in from a batch on the host.

Steps come in all sizes; they are padded to a few, so that few are prepared and a graph can be used again. Padding is
harmless to a row's bits, for no kernel adds up over rows: a padding row is token 0 at position 0, and writes to the
spare block, which nothing reads. It must not know graphs.
"""

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from kernels.backend import StepBatch
from kernels.cuda import draws
from kernels.cuda.attention_plan import ITEM_FIELDS, MERGE_FIELDS, PlanArrays
from kernels.cuda.launch import INTERPRETED
from kernels.cuda.staging import Kinds

LEAST_ROWS = 2 if INTERPRETED else 16  # a padding row costs the interpreter milliseconds, a GPU nothing
LEAST_BLOCKS = 16  # of a block table
MAX_PARTIALS = 32 if INTERPRETED else 2048  # of attention: 33 MB for 32 heads of 128
OF_STEP = ("normed", "best", "highest", "log_sum")
FIRST_OF_DRAWS = "values"
OF_ROWS = ("slots", "token_ids", "positions")
BEHIND_ROWS = "logit_rows"


class Size(NamedTuple):
    """What a prepared step is made for; all numbers padded.

    has_prefill   it has more rows than sequences
    """

    num_rows: int
    num_logits: int
    num_sequences: int
    num_blocks: int
    has_prefill: bool


def size_of(batch: StepBatch) -> Size:
    """A step with prefill is padded to fewer sizes beside its rows, for all its sizes would be too many to prepare."""
    num_rows, num_sequences = padded(len(batch.token_ids)), padded(len(batch.context_lengths))
    num_logits, num_blocks = padded(len(batch.logit_rows)), padded(batch.block_tables.shape[1], LEAST_BLOCKS)
    has_prefill = num_rows > num_sequences
    if has_prefill:
        num_logits, num_sequences = coarsely_padded(num_logits), coarsely_padded(num_sequences)
        num_blocks = coarsely_padded(num_blocks, LEAST_BLOCKS)
    return Size(num_rows, num_logits, num_sequences, num_blocks, has_prefill)


def padded(count: int, least: int = LEAST_ROWS) -> int:
    """The next of 0, `least`, 1.5 × least, 2 × least, 3 × least, 4 × least, 6 × least, …"""
    if count == 0:
        return 0
    size = least
    while size < count:
        size *= 2
    return size * 3 // 4 if size > least and size * 3 // 4 >= count else size


def coarsely_padded(count: int, least: int = LEAST_ROWS) -> int:
    """The next of 0, `least`, 4 × least, 16 × least, …"""
    if count == 0:
        return 0
    size = least
    while size < count:
        size *= 4
    return size


def arriving(size: Size) -> Kinds:
    """Those OF_ROWS first: they have the same places in all steps of so many rows."""
    return {
        "slots": ((size.num_rows,), torch.int64),
        "token_ids": ((size.num_rows,), torch.int32),
        "positions": ((size.num_rows,), torch.int32),
        "logit_rows": ((size.num_logits,), torch.int64),
        "fresh_blocks": ((size.num_rows,), torch.int64),
        "counts": ((3,), torch.int32),
        "items": ((size.num_rows + MAX_PARTIALS, ITEM_FIELDS), torch.int32),
        "merges": ((MAX_PARTIALS, MERGE_FIELDS), torch.int32),
        "block_tables": ((size.num_sequences, size.num_blocks), torch.int32),
    }


def leaving(num_logits: int, hidden_size: int) -> Kinds:
    """Those OF_STEP, then, from FIRST_OF_DRAWS on, what draws leave that are not greedy."""
    return {
        "normed": ((num_logits, hidden_size), torch.bfloat16),
        "best": ((num_logits,), torch.int32),
        "highest": ((num_logits,), torch.float32),
        "log_sum": ((num_logits,), torch.float32),
        **draws.leaving(num_logits),
    }


def fill(host: dict[str, NDArray[Any]], batch: StepBatch, plan: PlanArrays, spare_slot: int) -> None:
    """Write a step into its arrays on the host."""
    for name, numbers, padding in (
        ("token_ids", batch.token_ids, 0),
        ("positions", batch.positions, 0),
        ("slots", batch.slot_mapping, spare_slot),
        ("logit_rows", batch.logit_rows, 0),
    ):
        host[name][: len(numbers)] = numbers
        host[name][len(numbers) :] = padding
    host["counts"][:] = plan.counts
    host["items"][: len(plan.items)] = plan.items
    host["merges"][: len(plan.merges)] = plan.merges
    host["fresh_blocks"][: len(batch.fresh_blocks)] = batch.fresh_blocks
    num_sequences, width = plan.block_tables.shape
    host["block_tables"][:num_sequences, :width] = plan.block_tables
