"""Which compilations of the matrix product are looked at without a GPU: registers, shared memory, spills.

VARIANTS are the default model's and one of bfloat16; MORE_VARIANTS every layout and every tile that `autotune.py` may
choose, which takes minutes. It must not know how a kernel is compiled.
"""

from collections.abc import Iterator

from kernels.cuda.launch import Variant
from kernels.cuda.linear import _linear, linear_constants
from kernels.cuda.planes import LAYOUTS
from kernels.cuda.tiles import Shape, Tile, candidates, default_plan
from kernels.cuda.weight_tile import absent_planes, plane_types


def _linear_variant(name: str, shape: Shape, tile: Tile) -> Variant:
    layout = shape.layout
    signature = {"x": "*bf16", **plane_types(layout), "bias": "*fp32", "out": "*fp32", "num_rows": "i32"}
    absent: dict[str, None] = absent_planes(layout)
    if tile.spread:
        signature |= {"totals": "*fp32", "arrived": "*i32"}
    else:
        absent |= {"totals": None, "arrived": None}
    return Variant(
        f"linear {name} {shape.num_outputs}x{shape.num_inputs}, {_told(tile)}",
        _linear,
        signature,
        {**linear_constants(shape, tile, 0, shape.num_outputs), **absent},
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


def _told(tile: Tile) -> str:
    splits = f"{tile.order.splits} splits {'spread' if tile.spread else 'in turn'}"
    return f"{tile.outputs}x{tile.rows}x{tile.order.depth} {splits}, {tile.num_stages} stages"


_DOWN = Shape(LAYOUTS["Q4_1"], 576, 1536)  # of SmolLM2-135M
_QKV = Shape(LAYOUTS["BF16"], 6144, 4096)  # of Llama-3.1-8B


def _thorough() -> Iterator[Variant]:
    for format in ("BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
        shape = Shape(LAYOUTS[format], 4096, 4096)
        for tile in candidates(shape):
            yield _linear_variant(format, shape, tile)


VARIANTS = (
    _linear_variant("BF16", _QKV, default_plan(_QKV).tiles[-1]),
    _linear_variant("Q4_1", _DOWN, default_plan(_DOWN).tiles[0]),
)
MORE_VARIANTS = tuple(_thorough())
