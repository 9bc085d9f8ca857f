"""Every tile that loading will try, compiled into triton's cache by many processes while the first parts run.

One after the other, as a load meets them, an 8B's tiles in two formats would take a large part of the ten minutes.
Tensors have shapes and no memory here; nothing is started on the device. What fails or comes too late is compiled when
it is met, so nothing here can make a part fail.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from kernels.cuda import linear
from kernels.cuda.device_bench import fixed_planes
from kernels.cuda.launch import FUSE_MULTIPLY_ADD
from kernels.cuda.planes import LAYOUTS
from kernels.cuda.tiles import Shape, Tile, candidates, default_plan
from kernels.cuda.weights import Part
from kernels.decoder import DecoderShape
from tests.gpu.made_models import LARGE, SMALL

_META = torch.device("meta")
_ROWS = 64  # a kernel is the same for any
_LEFT_ALONE = 3  # processors, for the parts
MODELS = (  # the soonest needed first: shape, format of the layers, of the head
    (SMALL, "Q4_1", "Q8_0"),
    (LARGE, "BF16", "BF16"),
    (LARGE, "Q4_K", "Q6_K"),
    (SMALL, "BF16", "BF16"),
)


def start(root: Path) -> list[subprocess.Popen[bytes]]:
    """The processes, which end by themselves."""
    count = max(1, (os.cpu_count() or 1) - _LEFT_ALONE)
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.compiled_ahead", str(number), str(count)],
            cwd=root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(count)
    ]


def tiles() -> Iterator[tuple[Shape, Tile]]:
    """Each shape's candidates, the models' in order; none twice."""
    shapes = [shape for model in MODELS for shape in shapes_of(*model)]
    for shape in dict.fromkeys(shapes):
        for tile in candidates(shape):
            yield shape, tile


def shapes_of(shape: DecoderShape, format: str, head_format: str) -> list[Shape]:
    hidden, mlp, heads = shape.hidden_size, shape.intermediate_size, shape.num_heads + 2 * shape.num_kv_heads
    sizes = [
        (heads * shape.head_dim, hidden),
        (hidden, shape.num_heads * shape.head_dim),
        (2 * mlp, hidden),
        (hidden, mlp),
    ]
    layers = [Shape(LAYOUTS[format], *size) for size in sizes]
    return [*layers, Shape(LAYOUTS[head_format], shape.vocab_size, hidden)]


def compile_tile(shape: Shape, tile: Tile) -> None:
    """As `linear.linear_part` would start it."""
    part = Part(0, shape, fixed_planes(shape, _META), default_plan(shape))
    x = torch.empty(_ROWS, shape.num_inputs, dtype=torch.bfloat16, device=_META)
    with _compiled_only():
        linear.linear_part(x, part, tile, torch.empty(_ROWS, shape.num_outputs, device=_META), None)


@contextmanager
def _compiled_only() -> Iterator[None]:
    def launch(
        kernel: Any, grid: tuple[int, ...], *arguments: Any, max_registers: int | None = None, **constants: Any
    ) -> None:
        kernel.warmup(*arguments, grid=grid, maxnreg=max_registers, enable_fp_fusion=FUSE_MULTIPLY_ADD, **constants)

    with patch.object(linear, "launch", launch):
        yield


def main() -> int:
    number, count = map(int, sys.argv[1:])
    for shape, tile in islice(tiles(), number, None, count):
        compile_tile(shape, tile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
