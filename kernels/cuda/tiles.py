"""The tiles of a matrix product: what decides the bits of its sums, and what decides its speed alone.

A sum over the inputs is taken in `depth`-long pieces, piece after piece, within `splits` runs of pieces, whose totals
are then added in ascending order. These two are one figure per weight, whatever the number of rows (`Order`). The rest
of a Tile says how the work is cut, and may follow the number of rows. Where each run of pieces is a program of its own
(`spread`), the totals go through memory and are added there in the very order in which one program adds them in
registers.

The weight is the first operand of the product and the rows are the second, so that a tile always holds 64 or more
outputs: the tensor cores' instruction (wgmma on sm_90, mma.sync on sm_80) is chosen by the first operand and never
changes with the number of rows. That its bits do not either is what `autotune.py` and the self-test look at on a
device. It must not know kernels.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kernels.cuda.planes import Layout

_PROGRAMS_WANTED = 256  # about two for each of the 132 multiprocessors of an H100 or H200
_LEAST_PIECES = 8  # of a split: fewer cost more to add up than they save


class Shape(NamedTuple):
    """Of a packed weight."""

    layout: Layout
    num_outputs: int
    num_inputs: int


class Order(NamedTuple):
    """What decides in which order the products are added. depth counts inputs; splits are 1 or more."""

    depth: int
    splits: int


class Tile(NamedTuple):
    """
    outputs, rows   of the result that one program computes; outputs ≥ 64
    spread          each split is a program of its own
    """

    order: Order
    outputs: int
    rows: int
    spread: bool
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Which tile for how many rows: all of one order. The last one has no limit.

    limits   ascending; tiles[i] serves up to limits[i] rows; one fewer than tiles
    """

    tiles: tuple[Tile, ...]
    limits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len({tile.order for tile in self.tiles}) == 1, "the order of the sums must not follow the number of rows"
        assert len(self.limits) == len(self.tiles) - 1
        assert list(self.limits) == sorted(set(self.limits)), "limits ascend"

    @property
    def order(self) -> Order:
        return self.tiles[0].order

    def tile(self, num_rows: int) -> Tile:
        for tile, limit in zip(self.tiles, self.limits, strict=False):
            if num_rows <= limit:
                return tile
        return self.tiles[-1]


def order_of(shape: Shape) -> Order:
    """A function of shape and layout alone: equal on every machine, and untouched by measurements."""
    depth = 64  # 128 spills with 8-bit numbers on sm_80 and sm_90
    pieces = -(-shape.num_inputs // depth)
    tiles = -(-shape.num_outputs // 64)
    return Order(depth, max(1, min(_PROGRAMS_WANTED // tiles, pieces // _LEAST_PIECES)))


def default_plan(shape: Shape) -> Plan:
    """Without a measurement: splits are spread while there are few rows, which is when the device has room for them."""
    serial = Tile(order_of(shape), outputs=64, rows=64, spread=False, num_warps=4, num_stages=3)
    if serial.order.splits == 1:
        return Plan((serial,))
    return Plan((serial._replace(spread=True), serial), limits=(64,))


def candidates(shape: Shape) -> tuple[Tile, ...]:
    """What may be measured: tiles of the weight's order, first the one whose bits are wanted: a program to a sum."""
    serial = default_plan(shape).tiles[-1]
    few_rows = [serial, serial._replace(rows=16, num_stages=4)]
    spills = shape.layout.has_minimums or shape.layout.super_group > 0  # of 128 rows on sm_80, with triton 3.7
    many_rows = [serial._replace(outputs=128, rows=rows, num_warps=8) for rows in ((64,) if spills else (64, 128))]
    spread = [tile._replace(spread=True) for tile in few_rows] if serial.order.splits > 1 else []
    return tuple(dict.fromkeys((*few_rows, *spread, *many_rows)))
