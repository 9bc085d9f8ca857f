"""The timeline's tiles: the slices of some rows within a range, merged where a pixel holds several."""

from typing import Any

import numpy as np

from replay.viewer.columns import SliceColumns
from replay.viewer.framing import Array
from replay.viewer.merging import GOES_ON, MERGED, Slices, merged
from replay.viewer.parameters import Range


def tile(columns: SliceColumns, seen: Range, numbers: Array) -> tuple[dict[str, Any], dict[str, Array]]:
    """(header, arrays row, kind, flags, begin as `from`, end as `to`, busy, tokens, count).

    numbers   of the requests of all rows, in their order
    """
    found = slices_of(columns, numbers, seen)
    joined = merged(found, (seen.end - seen.begin) / seen.width)
    header = {
        "axis": seen.axis,
        "from": seen.begin,
        "to": seen.end,
        "merged": bool((joined.flags & MERGED).any()),
        "num_slices": len(found.row),
        "num_shown": len(joined.row),
    }
    return header, {
        "row": joined.row.astype("<u4"),
        "kind": joined.kind,
        "flags": joined.flags,
        "from": joined.begin,
        "to": joined.end,
        "busy": joined.busy,
        "tokens": joined.tokens.astype("<u4"),
        "count": joined.num_parts.astype("<u4"),
    }


def slices_of(columns: SliceColumns, numbers: Array, seen: Range) -> Slices:
    """All slices of these requests that reach into the range, whole."""
    places, slices = columns.of(numbers)
    begin, end = columns.stretches(slices, seen.axis)
    inside = np.flatnonzero((end >= seen.begin) & (begin <= seen.end))
    places, slices, begin, end = places[inside], slices[inside], begin[inside], end[inside]
    return Slices(
        places.astype(np.uint32),
        columns.kinds(slices),
        np.where(columns.are_open(slices) > 0, GOES_ON, 0).astype(np.uint8),
        begin,
        end,
        end - begin,
        columns.tokens(slices).astype(np.uint64),
        np.ones(len(slices), np.uint32),
    )
