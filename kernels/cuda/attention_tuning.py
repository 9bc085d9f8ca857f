"""Whether a long prefill may be taken in wide tiles: asked of the device once, at load.

Fixed inputs go through the kernel in narrow tiles and in wide ones. Only where every float32 of the results is equal
are the wide ones timed, and taken if they are faster: a measurement decides how fast a prefill is, never which bits it
has. The digest of the results is part of the numerics class. It must not know weights or steps.
"""

import hashlib
from typing import NamedTuple

import torch
from triton.runtime.errors import OutOfResources

from kernels.backend import StepBatch
from kernels.cuda.attention import attend
from kernels.cuda.attention_plan import WIDE_ROWS, AttentionShape, Plan, Sharing, plan_of
from kernels.cuda.device_time import median_seconds
from kernels.packing import SequenceRows, pack_batch

BLOCK_SIZE = 16
CHUNKS = ((0, 300), (700, 300), (517, 1))  # (first position, rows): one after the other in their blocks
NUM_PROGRAMS = 256
_TIMES = 5  # the median of so many
_PARTIALS = 64
_SEED = 11


class WideTiles(NamedTuple):
    """
    are_used    a prefill is taken in them
    are_equal   they give the bits of narrow ones
    bits        digest of what narrow tiles give on the fixed inputs
    """

    are_used: bool
    are_equal: bool
    bits: str


def wide_tiles(
    num_heads: int, num_kv_heads: int, head_dim: int, kind: torch.dtype, windows: tuple[int, ...], device: torch.device
) -> WideTiles:
    """For a model with layers of these windows (0: all keys), keys and values of `kind`.

    Takes two compilations a window and some milliseconds.
    """
    trial = _Trial(AttentionShape(num_heads, num_kv_heads, head_dim, BLOCK_SIZE), kind, device)
    narrow = [trial.attended(window, has_wide=False) for window in windows]
    bits = hashlib.sha256(b"".join(narrow)).hexdigest()[:16]
    if trial.shape.group(WIDE_ROWS) == trial.shape.group():
        return WideTiles(are_used=False, are_equal=True, bits=bits)
    try:
        are_equal = narrow == [trial.attended(window, has_wide=True) for window in windows]
    except OutOfResources:  # of the device: shared memory or registers
        return WideTiles(are_used=False, are_equal=False, bits=bits)
    is_faster = are_equal and trial.seconds(has_wide=True) < trial.seconds(has_wide=False)
    return WideTiles(is_faster, are_equal, bits)


class _Trial:
    """The fixed inputs, and what attention makes of them."""

    def __init__(self, shape: AttentionShape, kind: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self._device = device
        self._batch = _batch()
        num_rows, blocks = len(self._batch.token_ids), int(self._batch.block_tables.max()) + 1
        draw = torch.Generator().manual_seed(_SEED)
        memory = (blocks, shape.num_kv_heads, BLOCK_SIZE, shape.head_dim)
        self._queries = torch.randn(num_rows, shape.num_heads, shape.head_dim, generator=draw).bfloat16().to(device)
        self._keys, self._values = (_stored(torch.randn(memory, generator=draw), kind).to(device) for _ in "kv")

    def attended(self, window: int, *, has_wide: bool) -> bytes:
        """Every row's results in float32."""
        out = torch.zeros(len(self._queries), self.shape.num_heads * self.shape.head_dim, device=self._device)
        self._run(self._plan(has_wide), out, window)
        return bytes(out.cpu().numpy().tobytes())

    def seconds(self, *, has_wide: bool) -> float:
        """How long it takes without a window."""
        plan, out = self._plan(has_wide), torch.zeros_like(self._queries).flatten(1)
        return median_seconds(lambda: self._run(plan, out, 0), _TIMES)

    def _run(self, plan: Plan, out: torch.Tensor, window: int) -> None:
        attend(self._queries, self._keys, self._values, plan, out, window=window)

    def _plan(self, has_wide: bool) -> Plan:
        sharing = Sharing(NUM_PROGRAMS, _PARTIALS)
        sequences, blocks = self._batch.block_tables.shape
        sizes = {"max_rows": len(self._queries), "max_sequences": sequences, "max_blocks": blocks}
        plan = Plan.room(self.shape, sharing, **sizes, has_wide=has_wide, device=self._device)
        plan.put(plan_of(self._batch, self.shape, sharing, has_wide=has_wide))
        return plan


def _batch() -> StepBatch:
    rows, first_block = [], 0
    for start, count in CHUNKS:
        num_blocks = -(-(start + count) // BLOCK_SIZE)
        rows.append(SequenceRows([0] * count, start, range(first_block, first_block + num_blocks), 0))
        first_block += num_blocks
    return pack_batch(rows, BLOCK_SIZE)


def _stored(numbers: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return numbers.to(torch.float8_e4m3fn).view(kind) if kind == torch.uint8 else numbers.to(kind)
