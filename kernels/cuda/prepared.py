"""Everything that a step of one size needs, made once: places for its inputs and results, and its graphs.

A step of decodes has all of it for itself. Steps with prefill of so many rows share what follows from the rows alone,
token ids, positions, slots and the tensors between the kernels, so that the graphs of their pieces serve them all;
their own arrays, brought with the others, are copied over these on the device. It must not know weights.
"""

from collections import OrderedDict
from dataclasses import dataclass

import torch

from kernels.backend import StepBatch
from kernels.cuda.attention_plan import AttentionShape, Plan, Sharing, plan_of
from kernels.cuda.graphs import Capture, Graphs, device_capture
from kernels.cuda.staging import Staging, num_bytes
from kernels.cuda.step import ROWS, WHOLE, Piece, Step, StepInputs, StepResult
from kernels.cuda.step_arrays import (
    BEHIND_ROWS,
    LEAST_BLOCKS,
    LEAST_ROWS,
    MAX_PARTIALS,
    OF_ROWS,
    OF_STEP,
    Size,
    arriving,
    fill,
    leaving,
    padded,
    size_of,
)
from kernels.cuda.workspace import Workspace
from kernels.decoder import DecoderShape
from kernels.device_backend import LargestStep

MOST_PREPARED = 96  # sizes kept; whatever was used longest ago goes
MOST_ROW_SETS = 24  # padded numbers of rows, up to 65,536
_PROGRAMS_A_MULTIPROCESSOR = 3  # of attention: as many as its registers allow at once


@dataclass(frozen=True, slots=True)
class RowSet:
    """What all steps with prefill of so many rows share.

    arrays   OF_ROWS, on the device
    """

    arrays: Staging
    work: Workspace
    graphs: Graphs


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    arriving   what a step brings: copied to the device in one piece
    leaving    what the host wants back of every step, in one piece (`step_arrays.leaving`)
    row_set    None: its inputs are those that arrive
    """

    arriving: Staging
    leaving: Staging
    inputs: StepInputs
    result: StepResult
    work: Workspace
    graphs: Graphs
    row_set: RowSet | None

    def upload(self) -> None:
        self.arriving.upload()
        if self.row_set is not None:
            self.row_set.arrays.bytes.copy_(self.arriving.bytes[: len(self.row_set.arrays.bytes)])

    def run(self, step: Step) -> None:
        """Through its graphs; `step` is of these inputs, result and work."""
        pieces = step.pieces() if self.row_set is not None else [Piece(WHOLE, step.run)]
        self.graphs.run(step.memory[0], pieces)


class Preparations:
    """A backend's prepared steps. Raises torch.OutOfMemoryError, as its methods do."""

    def __init__(self, shape: DecoderShape, device: torch.device, *, has_wide_tiles: bool = False) -> None:
        self._shape = shape
        self._has_wide_tiles = has_wide_tiles  # attention's, for prefill
        self._device = device
        self._work = Workspace.of(shape, LEAST_ROWS, device)
        self._logits = torch.zeros(0, shape.vocab_size, device=device)
        self._residual, self._delta = (torch.zeros(0, shape.hidden_size, device=device) for _ in range(2))
        self._sharing = Sharing(_num_programs(device), MAX_PARTIALS)
        partials = (MAX_PARTIALS, shape.num_heads)
        self._mixed = torch.zeros(*partials, shape.head_dim, device=device)
        self._highest, self._totals = (torch.zeros(partials, device=device) for _ in range(2))
        self.choose_graphs(device_capture(), in_pieces=True)

    def choose_graphs(self, capture: Capture | None, *, in_pieces: bool) -> None:
        """Forget all that is prepared, and go on so. It changes no bit.

        capture     None: no graphs
        in_pieces   steps with prefill are captured piece by piece; False: each size as a whole
        """
        self._capture, self._in_pieces = capture, in_pieces
        self._kept: OrderedDict[Size, Prepared] = OrderedDict()
        self._row_sets: dict[int, RowSet] = {}

    def for_batch(self, batch: StepBatch, block_size: int, spare_block: int) -> Prepared:
        """Prepared for a batch of this size, its inputs filled in on the host."""
        size = size_of(batch)
        prepared = self._kept.get(size)
        if prepared is None:
            prepared = self._kept[size] = self._prepare(size)
            if len(self._kept) > MOST_PREPARED:
                self._kept.popitem(last=False)
        self._kept.move_to_end(size)
        shape = AttentionShape(self._shape.num_heads, self._shape.num_kv_heads, self._shape.head_dim, block_size)
        plan = plan_of(batch, shape, self._sharing, has_wide=self._has_wide(size))
        prepared.arriving.wait()
        fill(prepared.arriving.host, batch, plan, spare_block * block_size)
        return prepared

    def _has_wide(self, size: Size) -> bool:
        """A step of decodes alone has no launch for wide tiles."""
        return self._has_wide_tiles and size.has_prefill

    def _prepare(self, size: Size) -> Prepared:
        self._grow(size.num_rows, size.num_logits)
        row_set = self._row_set(size.num_rows) if size.has_prefill and self._in_pieces else None
        arrives = Staging(arriving(size), self._device)
        leaves = Staging(leaving(size.num_logits, self._shape.hidden_size), self._device)
        here = arrives.device
        of_rows = here if row_set is None else row_set.arrays.device
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
        inputs = StepInputs(of_rows["token_ids"], of_rows["positions"], of_rows["slots"], here["logit_rows"], plan)
        shared = [each[: size.num_logits] for each in (self._residual, self._delta, self._logits)]
        normed, *statistics = (leaves.device[name] for name in OF_STEP)
        result = StepResult(shared[0], shared[1], normed, shared[2], *statistics)
        work = self._work.rows(size.num_rows) if row_set is None else row_set.work
        graphs = Graphs(self._capture, WHOLE) if row_set is None else row_set.graphs
        return Prepared(arrives, leaves, inputs, result, work, graphs, row_set)

    def _row_set(self, num_rows: int) -> RowSet:
        if num_rows not in self._row_sets:
            kinds = arriving(Size(num_rows, 0, 0, 0, has_prefill=True))
            assert list(kinds)[: len(OF_ROWS) + 1] == [*OF_ROWS, BEHIND_ROWS], "one copy brings them, from the first on"
            arrays = Staging({name: kinds[name] for name in OF_ROWS}, self._device)
            self._row_sets[num_rows] = RowSet(arrays, self._work.rows(num_rows), Graphs(self._capture, ROWS))
        return self._row_sets[num_rows]

    def make_room(self, largest: LargestStep) -> None:
        """The tensors that all steps share, for the largest one; otherwise they grow with the steps that come."""
        self._grow(padded(largest.num_rows), padded(largest.num_logits))

    def bytes_of(self, largest: LargestStep) -> int:
        """Of a prepared step's own arrays on the device."""
        rows, logits = padded(largest.num_rows), padded(largest.num_logits)
        size = Size(rows, logits, logits, padded(largest.num_blocks, LEAST_BLOCKS), has_prefill=False)
        return num_bytes(arriving(size)) + num_bytes(leaving(logits, self._shape.hidden_size))

    def _grow(self, num_rows: int, num_logits: int) -> None:
        """What is prepared already keeps the smaller memory that it was made with."""
        if num_rows > len(self._work.hidden):
            self._work = Workspace.of(self._shape, num_rows, self._device)
        if num_logits > len(self._logits):
            self._logits = torch.zeros(num_logits, self._shape.vocab_size, device=self._device)
            self._residual = torch.zeros(num_logits, self._shape.hidden_size, device=self._device)
            self._delta = torch.zeros_like(self._residual)


def _num_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return 2
    return _PROGRAMS_A_MULTIPROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count
