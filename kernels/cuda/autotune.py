"""Which tiles serve a weight: the fastest of those that give the same bits.

Every candidate is run on fixed inputs, and candidates are grouped by the bits of what comes out. Only the group of the
weight's first candidate, which follows from its shape alone, may be used. So a measurement, which never comes out the
same twice, decides how fast a step is and never which bits it has. A candidate whose rows have other bits alone than in
company is in no group.

What a device does is behind `Bench`, so that all this is tested without one. It must not know a model.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.cuda.tiles import Plan, Shape, Tile

COMPANY = (1, 16, 33)  # how many of the first rows are run alone
MEASURED_ROWS = (1, 16, 64, 512)  # one tile is chosen for each; up to the number, the last for all above


class Bench(Protocol):
    """A device, seen by the one who compares tiles.

    num_rows   of the fixed inputs
    """

    num_rows: int

    def run(self, shape: Shape, tile: Tile, num_rows: int) -> NDArray[np.float32]:
        """The first rows' results on inputs and a weight that the shape alone decides: [num_rows, some outputs].

        Raises DoesNotFit.
        """
        ...

    def seconds(self, shape: Shape, tile: Tile, num_rows: int) -> float:
        """How long one product takes."""
        ...


class Choice(NamedTuple):
    """
    bits   digest of the group's results on the fixed inputs: part of the numerics class
    """

    plan: Plan
    bits: str


class DoesNotFit(Exception):
    """The device has not the shared memory or the registers that a tile needs: it is no candidate there."""


class NotInvariant(Exception):
    """The device gives a row other bits alone than in company, so nothing can be promised on it."""


def choose(shape: Shape, tiles: Sequence[Tile], bench: Bench) -> Choice:
    """The fastest plan among tiles of the first one's bits.

    Raises NotInvariant where the first tile's rows are not their own.
    """
    bits, members = same_bits(shape, tiles, bench)
    fastest = [min(members, key=lambda tile: bench.seconds(shape, tile, rows)) for rows in MEASURED_ROWS]
    return Choice(_plan(fastest), bits)


def same_bits(shape: Shape, tiles: Sequence[Tile], bench: Bench) -> tuple[str, list[Tile]]:
    """Bits of the first tile, and all tiles that give them, in their order.

    Raises NotInvariant where the first tile's rows are not their own.
    """
    bits = [_bits(shape, tiles[0], bench), *(_bits_if_it_fits(shape, tile, bench) for tile in tiles[1:])]
    if bits[0] is None:
        raise NotInvariant(
            f"tile {tiles[0]} of {shape} gives rows other bits alone than in company: "
            "choose another backend, and report the device with its driver and the versions of torch and triton"
        )
    return bits[0], [tile for tile, of_tile in zip(tiles, bits, strict=True) if of_tile == bits[0]]


def _bits_if_it_fits(shape: Shape, tile: Tile, bench: Bench) -> str | None:
    try:
        return _bits(shape, tile, bench)
    except DoesNotFit:
        return None


def _bits(shape: Shape, tile: Tile, bench: Bench) -> str | None:
    """None where a row's bits follow its company."""
    together = bench.run(shape, tile, bench.num_rows)
    for num_rows in [rows for rows in COMPANY if rows < bench.num_rows]:
        if bench.run(shape, tile, num_rows).tobytes() != together[:num_rows].tobytes():
            return None
    return hashlib.sha256(together.tobytes()).hexdigest()[:16]


def _plan(fastest: Sequence[Tile]) -> Plan:
    """One tile for up to each of MEASURED_ROWS; neighbours that are equal become one."""
    tiles, limits = [fastest[0]], list[int]()
    for limit, tile in zip(MEASURED_ROWS, fastest[1:], strict=False):
        if tile != tiles[-1]:
            tiles.append(tile)
            limits.append(limit)
    return Plan(tuple(tiles), tuple(limits))
