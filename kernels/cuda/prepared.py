"""Everything that a step of one size needs, made once: places for its inputs and results, and its graphs.

Steps come in all sizes; they are padded to a few, so that few are prepared and a graph can be used again. Padding is
harmless to a row's bits, for no kernel adds up over rows. It must not know weights.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from kernels.backend import StepBatch
from kernels.cuda import draws
from kernels.cuda.attention_plan import ITEM_FIELDS, MERGE_FIELDS, AttentionShape, Plan, Sharing, plan_of
from kernels.cuda.graphs import Graphs, new_graph_pool
from kernels.cuda.launch import INTERPRETED
from kernels.cuda.staging import Kinds, Staging, num_bytes
from kernels.cuda.step import StepInputs, StepResult
from kernels.cuda.workspace import Workspace
from kernels.decoder import DecoderShape
from kernels.device_backend import LargestStep

LEAST_ROWS = 2 if INTERPRETED else 16  # a padding row costs the interpreter milliseconds, a GPU nothing
FIRST_OF_DRAWS = "values"
_OF_STEP = ("normed", "best", "highest", "log_sum")
LEAST_BLOCKS = 16  # of a block table
MOST_PREPARED = 96  # sizes kept; whatever was used longest ago goes
_PROGRAMS_A_MULTIPROCESSOR = 3  # of attention: as many as its registers allow at once
_MAX_PARTIALS = 32 if INTERPRETED else 2048  # 33 MB for 32 heads of 128


class Size(NamedTuple):
    """What a prepared step is made for; all padded."""

    num_rows: int
    num_logits: int
    num_sequences: int
    num_blocks: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    arriving   what a step brings: copied to the device in one piece
    leaving    what the host wants back of every step, in one piece: `normed`, `best`, `highest`, `log_sum`, and then,
               from FIRST_OF_DRAWS on, what draws leave that are not greedy
    """

    arriving: Staging
    leaving: Staging
    inputs: StepInputs
    result: StepResult
    work: Workspace
    graphs: Graphs


class Preparations:
    """A backend's prepared steps. Raises torch.OutOfMemoryError, as its methods do."""

    def __init__(self, shape: DecoderShape, device: torch.device, *, has_wide_tiles: bool = False) -> None:
        self._shape = shape
        self._has_wide_tiles = has_wide_tiles  # attention's, for prefill
        self._device = device
        self._pool = new_graph_pool()
        self._kept: OrderedDict[Size, Prepared] = OrderedDict()
        self._work = Workspace.of(shape, LEAST_ROWS, device)
        self._logits = torch.zeros(0, shape.vocab_size, device=device)
        self._residual, self._delta = (torch.zeros(0, shape.hidden_size, device=device) for _ in range(2))
        self._sharing = Sharing(_num_programs(device), _MAX_PARTIALS)
        partials = (_MAX_PARTIALS, shape.num_heads)
        self._mixed = torch.zeros(*partials, shape.head_dim, device=device)
        self._highest, self._totals = (torch.zeros(partials, device=device) for _ in range(2))

    def for_batch(self, batch: StepBatch, block_size: int, spare_block: int) -> Prepared:
        """Prepared for a batch of this size, its inputs filled in on the host."""
        size = Size(
            padded(len(batch.token_ids)),
            padded(len(batch.logit_rows)),
            padded(len(batch.context_lengths)),
            padded(batch.block_tables.shape[1], LEAST_BLOCKS),
        )
        prepared = self._kept.get(size)
        if prepared is None:
            prepared = self._kept[size] = self._prepare(size)
            if len(self._kept) > MOST_PREPARED:
                self._kept.popitem(last=False)
        self._kept.move_to_end(size)
        prepared.arriving.wait()
        self._fill(prepared.arriving.host, batch, block_size, spare_block, has_wide=self._has_wide(size))
        return prepared

    def _has_wide(self, size: Size) -> bool:
        """A step of decodes alone has as many rows as sequences, and no launch for wide tiles."""
        return self._has_wide_tiles and size.num_rows > size.num_sequences

    def _prepare(self, size: Size) -> Prepared:
        arriving = Staging(_arriving(size), self._device)
        leaving = Staging(_leaving(size.num_logits, self._shape.hidden_size), self._device)
        here = arriving.device
        plan = Plan(
            self._sharing.num_programs,
            here["counts"],
            here["items"],
            here["merges"],
            here["block_tables"],
            self._mixed,
            self._highest,
            self._totals,
            self._has_wide(size),
        )
        inputs = StepInputs(here["token_ids"], here["positions"], here["slots"], here["logit_rows"], plan)
        self._grow(size.num_rows, size.num_logits)
        shared = [each[: size.num_logits] for each in (self._residual, self._delta, self._logits)]
        normed, *statistics = (leaving.device[name] for name in _OF_STEP)
        result = StepResult(shared[0], shared[1], normed, shared[2], *statistics)
        return Prepared(arriving, leaving, inputs, result, self._work.rows(size.num_rows), Graphs(self._pool))

    def make_room(self, largest: LargestStep) -> None:
        """The tensors that all steps share, for the largest one; otherwise they grow with the steps that come."""
        self._grow(padded(largest.num_rows), padded(largest.num_logits))

    def bytes_of(self, largest: LargestStep) -> int:
        """Of a prepared step's own arrays on the device."""
        rows, logits = padded(largest.num_rows), padded(largest.num_logits)
        size = Size(rows, logits, logits, padded(largest.num_blocks, LEAST_BLOCKS))
        return num_bytes(_arriving(size)) + num_bytes(_leaving(logits, self._shape.hidden_size))

    def _grow(self, num_rows: int, num_logits: int) -> None:
        """What is prepared already keeps the smaller memory that it was made with."""
        if num_rows > len(self._work.hidden):
            self._work = Workspace.of(self._shape, num_rows, self._device)
        if num_logits > len(self._logits):
            self._logits = torch.zeros(num_logits, self._shape.vocab_size, device=self._device)
            self._residual = torch.zeros(num_logits, self._shape.hidden_size, device=self._device)
            self._delta = torch.zeros_like(self._residual)

    def _fill(
        self, host: dict[str, NDArray[Any]], batch: StepBatch, block_size: int, spare_block: int, *, has_wide: bool
    ) -> None:
        """Padding rows are token 0 at position 0, and write to the spare block, which nothing reads."""
        shape = AttentionShape(self._shape.num_heads, self._shape.num_kv_heads, self._shape.head_dim, block_size)
        plan = plan_of(batch, shape, self._sharing, has_wide=has_wide)
        for name, numbers, padding in (
            ("token_ids", batch.token_ids, 0),
            ("positions", batch.positions, 0),
            ("slots", batch.slot_mapping, spare_block * block_size),
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


def padded(count: int, least: int = LEAST_ROWS) -> int:
    """The next of 0, `least`, 1.5 × least, 2 × least, 3 × least, 4 × least, 6 × least, …"""
    if count == 0:
        return 0
    size = least
    while size < count:
        size *= 2
    return size * 3 // 4 if size > least and size * 3 // 4 >= count else size


def _arriving(size: Size) -> Kinds:
    return {
        "slots": ((size.num_rows,), torch.int64),
        "logit_rows": ((size.num_logits,), torch.int64),
        "fresh_blocks": ((size.num_rows,), torch.int64),
        "token_ids": ((size.num_rows,), torch.int32),
        "positions": ((size.num_rows,), torch.int32),
        "counts": ((3,), torch.int32),
        "items": ((size.num_rows + _MAX_PARTIALS, ITEM_FIELDS), torch.int32),
        "merges": ((_MAX_PARTIALS, MERGE_FIELDS), torch.int32),
        "block_tables": ((size.num_sequences, size.num_blocks), torch.int32),
    }


def _leaving(num_logits: int, hidden_size: int) -> Kinds:
    return {
        "normed": ((num_logits, hidden_size), torch.bfloat16),
        "best": ((num_logits,), torch.int32),
        "highest": ((num_logits,), torch.float32),
        "log_sum": ((num_logits,), torch.float32),
        **draws.leaving(num_logits),
    }


def _num_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return 2
    return _PROGRAMS_A_MULTIPROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count
