"""Counters over the axis: smallest, greatest and mean value of the steps that begin in each pixel.

A pixel has the figures of its own steps, exactly, and of none besides: `pyramid.py` reads them from blocks of steps,
3 ms for nine strips of a million steps where every step looked at took 11 ms for 355,000.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from replay.viewer.columns import StepColumns
from replay.viewer.framing import Array
from replay.viewer.parameters import Range


def strips(columns: StepColumns, seen: Range, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """(header, arrays NAME.min, NAME.max, NAME.mean), each `width` long; NaN in a pixel in which no step begins.

    A value that is not known (NaN) does not count.
    """
    starts = columns.steps if seen.axis == "step" else columns.planned_ns
    edges = np.searchsorted(starts, np.linspace(seen.begin, seen.end, seen.width + 1))
    arrays: dict[str, Array] = {}
    for name, found in columns.figures(names, edges[:-1], edges[1:]):
        is_known = found.num_known > 0
        mean = np.divide(found.total, found.num_known, out=np.full(seen.width, np.nan), where=is_known)
        arrays[f"{name}.min"] = np.where(is_known, found.low, np.nan).astype(np.float32)
        arrays[f"{name}.max"] = np.where(is_known, found.high, np.nan).astype(np.float32)
        arrays[f"{name}.mean"] = mean.astype(np.float32)
    return {"names": list(names), **seen._asdict()}, arrays
