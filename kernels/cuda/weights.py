"""A model's matrices as the GPU holds them: packed once, at load, and read by `linear.py` and `embedding.py`.

Matrices that read the same input are packed as one Weight: q, k and v; gate and up. Where all are of one format that
is one Part and one launch; where a file mixes formats (Q4_K_M keeps some `v` as Q6_K) each run of one format is a Part
and a launch of its own, into its own columns of the result. It must not know layers or names of weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from kernels.cuda.planes import LAYOUTS, Planes, planes_of
from kernels.cuda.tiles import Plan, Shape, default_plan
from kernels.stored_tensor import StoredTensor

_BYTES_AT_A_TIME = 64 << 20  # bounds what packing needs beside the result: about eight times as much


@dataclass(frozen=True, slots=True)
class Part:
    """Outputs of one format.

    first_output   its place among the Weight's outputs
    plan           which tile for how many rows (`tiles.py`); `autotune.py` may set another of the same bits
    """

    first_output: int
    shape: Shape
    planes: Planes
    plan: Plan

    def tensors(self) -> Iterator[Tensor]:
        for field in fields(self.planes):
            tensor = getattr(self.planes, field.name)
            if tensor is not None:
                yield tensor


@dataclass(frozen=True, slots=True)
class Weight:
    num_outputs: int
    num_inputs: int
    parts: tuple[Part, ...]

    @property
    def num_bytes(self) -> int:
        """Device memory of all planes."""
        return sum(tensor.nbytes for part in self.parts for tensor in part.tensors())

    def with_plans(self, plans: Sequence[Plan]) -> "Weight":
        """The same numbers with other tiles, one plan per part."""
        parts = tuple(replace(part, plan=plan) for part, plan in zip(self.parts, plans, strict=True))
        return replace(self, parts=parts)


def pack(tensors: Sequence[StoredTensor], device: torch.device | str) -> Weight:
    """The matrices' outputs one after the other, as one Weight on `device`.

    tensors   matrices of one number of inputs, [outputs, inputs] each
    """
    num_inputs = tensors[0].shape[1]
    assert all(tensor.shape[1] == num_inputs for tensor in tensors), "matrices packed as one read the same input"
    parts: list[Part] = []
    first_output = 0
    for layout, run in groupby(tensors, key=lambda tensor: LAYOUTS[tensor.format]):
        planes = _joined([piece for tensor in run for piece in _pieces(tensor, torch.device(device))])
        shape = Shape(layout, planes.values.shape[0], num_inputs)
        parts.append(Part(first_output, shape, planes, default_plan(shape)))
        first_output += shape.num_outputs
    return Weight(first_output, num_inputs, tuple(parts))


def _pieces(tensor: StoredTensor, device: torch.device) -> Iterator[Planes]:
    """The planes of so many of its rows at a time; the bytes are unpacked where they will lie."""
    num_rows, num_inputs = tensor.shape
    rows_at_a_time = max(1, _BYTES_AT_A_TIME // tensor.rows.shape[1])
    for start in range(0, num_rows, rows_at_a_time):
        some = slice(start, min(start + rows_at_a_time, num_rows))
        stored = np.array(tensor.rows[some if tensor.row_order is None else tensor.row_order[some]])
        yield planes_of(tensor.format, torch.from_numpy(stored).to(device), num_inputs)


def _joined(pieces: Sequence[Planes]) -> Planes:
    """Outputs after outputs: rows of the values, columns of the other planes."""
    if len(pieces) == 1:
        return pieces[0]

    def joined(name: str, dim: int) -> Tensor | None:
        tensors = [getattr(piece, name) for piece in pieces]
        return None if tensors[0] is None else torch.cat(tensors, dim)

    values = torch.cat([piece.values for piece in pieces])
    return Planes(values, *(joined(field.name, 1) for field in fields(Planes) if field.name != "values"))
