"""Two recordings side by side: tiles whose rows are pairs of requests, strips and marks on one axis, and what differs.

Tiles of the two sides have the same rows in the same order. The other recording's times are told on this one's axis.
"""

from typing import Any

import numpy as np

from replay.viewer.answers.views import arrows, marks, whole
from replay.viewer.beside import BY_DIFFERENCE, MAX_DIFFERENCES, Beside, Parting
from replay.viewer.columns import STRIPS
from replay.viewer.differing import Decision
from replay.viewer.framing import Array, framed
from replay.viewer.pairing import NOBODY, Pairing
from replay.viewer.parameters import MAX_ROWS, Parameters, Range
from replay.viewer.rows import GROUPS, rows_of
from replay.viewer.strips import strips
from replay.viewer.timeline import tile
from replay.viewer.viewed import LifeColumns, Viewed

MAX_TEXT = 400
_NO_REQUEST = 2**32 - 1


def pairs(beside: Beside, asked: Parameters) -> dict[str, Any]:
    """Who stands beside whom, and every difference in order of time; those of one request once, by the first."""
    life = asked.integer("life", 1)
    pairing, partings = beside.told(life)
    with beside.left.every_life(), beside.right.every_life():
        told = [_difference(beside, pairing, parting) for parting in partings[:MAX_DIFFERENCES]]
    return {
        "left": str(beside.left.shown_path),
        "right": str(beside.right.shown_path),
        "right_life": beside.life_of(life),
        "aligned_by": "id" if pairing.by_id else "order",
        "shift_ns": pairing.shift_ns,
        "num_pairs": int(((pairing.lefts != NOBODY) & (pairing.rights != NOBODY)).sum()),
        "num_only_left": int((pairing.rights == NOBODY).sum()),
        "num_only_right": int((pairing.lefts == NOBODY).sum()),
        "num_differences": len(partings),
        "differences": told,
    }


def timeline(beside: Beside, asked: Parameters) -> bytes:
    """As the timeline of one recording; `side` says of which, rows tell both: `request`, `other` and `differs`.

    group   also `difference`: what differs first, in order of time, then the rest
    """
    life, side = asked.integer("life", 1), asked.one_of("side", "left", "left", "right")
    group = asked.one_of("group", BY_DIFFERENCE, *GROUPS, BY_DIFFERENCE)
    first, count = asked.pair("rows", (0, 256), MAX_ROWS)
    pairing, partings = beside.told(life)
    rows = beside.rows(life, group, asked.text("filter"))
    shown = rows[first : first + count]
    viewed = beside.left if side == "left" else beside.right
    with viewed.columns(life if side == "left" else beside.life_of(life)) as columns:
        seen, shift = _range(beside, pairing, asked, columns, side)
        places = (pairing.lefts if side == "left" else pairing.rights)[shown]
        known = viewed.requests.of("number")
        numbers = np.where(places == NOBODY, _NO_REQUEST, known[places]) if len(known) else np.zeros(0, np.uint32)
        header, arrays = _moved(*tile(columns.slices, seen, numbers), shift)
    header |= {"rows": _rows(beside, pairing, partings, life, group, first, shown)}
    return framed({"first": first, "num_rows": len(rows), **header, "side": side}, arrays)


def counters(beside: Beside, asked: Parameters) -> bytes:
    """The other's strips on this one's axis."""
    life = asked.integer("life", 1)
    pairing, _ = beside.told(life)
    with beside.right.columns(beside.life_of(life)) as columns:
        seen, shift = _range(beside, pairing, asked, columns, "right")
        header, arrays = strips(columns.steps, seen, asked.names("names", STRIPS))
        header |= {"from": header.pop("begin") + shift, "to": header.pop("end") + shift}
        return framed(header, arrays)


def other_marks(beside: Beside, asked: Parameters) -> dict[str, Any]:
    """All of the other's, their times on this one's axis."""
    life = asked.integer("life", 1)
    shift = beside.told(life)[0].shift_ns
    found = marks(beside.right, Parameters({"life": str(beside.life_of(life))}))
    for mark in found["marks"]:
        mark["now_ns"] += shift
        if mark["until_ns"] is not None:
            mark["until_ns"] += shift
    return found


def other_arrows(beside: Beside, asked: Parameters) -> dict[str, Any]:
    """All of the other's, under its own numbers, their times on this one's axis."""
    life = asked.integer("life", 1)
    shift_ns = beside.told(life)[0].shift_ns
    found = arrows(beside.right, Parameters({"life": str(beside.life_of(life))}))
    for arrow in found["arrows"]:
        arrow["now_ns"] += shift_ns
    return found


def _range(beside: Beside, pairing: Pairing, asked: Parameters, columns: LifeColumns, side: str) -> tuple[Range, float]:
    """What is asked for on the side's own axis, and what its places are moved by."""
    seen = asked.range(whole(columns))
    shift = float(pairing.shift_ns) if side == "right" and seen.axis == "time" else 0.0
    return seen._replace(begin=seen.begin - shift, end=seen.end - shift), shift


def _moved(header: dict[str, Any], arrays: dict[str, Array], shift: float) -> tuple[dict[str, Any], dict[str, Array]]:
    header |= {"from": header["from"] + shift, "to": header["to"] + shift}
    return header, {**arrays, "from": arrays["from"] + shift, "to": arrays["to"] + shift}


def _rows(
    beside: Beside, pairing: Pairing, partings: list[Parting], life: int, group: str, first: int, shown: Array
) -> list[dict[str, Any]]:
    """As rows of the left one's timeline; of those that only the right one has as rows of its own."""
    differs = {parting.row for parting in partings}
    opened = (beside.left.opened_ns(life), beside.right.opened_ns(beside.life_of(life)))
    by = "none" if group == BY_DIFFERENCE else group
    found = []
    with beside.left.every_life(), beside.right.every_life():
        for at, row in enumerate(shown.tolist()):
            left, right = int(pairing.lefts[row]), int(pairing.rights[row])
            ours = None if left == NOBODY else _row(beside.left, opened[0], by, first + at, left)
            theirs = None if right == NOBODY else _row(beside.right, opened[1], by, first + at, right)
            found.append(_one(ours, theirs, pairing.shift_ns, group, row in differs))
    return found


def _row(viewed: Viewed, opened_ns: int, group: str, row: int, place: int) -> dict[str, Any]:
    return rows_of(viewed.requests, opened_ns, group, row, np.array([place]))[0]


def _one(
    ours: dict[str, Any] | None, theirs: dict[str, Any] | None, shift_ns: int, group: str, differs: bool
) -> dict[str, Any]:
    shown = dict(ours or theirs or {})
    other = None
    if theirs is not None:
        ended = None if theirs["end_ns"] is None else theirs["end_ns"] + shift_ns
        other = {"request": theirs["request"], "end_ns": ended, "reason": theirs["reason"]}
    if ours is None:
        shown |= {"request": None, "group": "only right", "reason": None, "end_ns": None}
        shown["arrival_ns"] += shift_ns
    elif group == BY_DIFFERENCE:
        shown["group"] = "only left" if theirs is None else "differ" if differs else "alike"
    return {**shown, "other": other, "differs": differs}


def _difference(beside: Beside, pairing: Pairing, parting: Parting) -> dict[str, Any]:
    left, right = int(pairing.lefts[parting.row]), int(pairing.rights[parting.row])
    return {
        "row": parting.row,
        "at_ns": parting.at_ns,
        "request": parting.difference.request,
        "other": None if right == NOBODY else int(beside.right.requests.of("number")[right]),
        "request_id": beside.left.requests.ids[left],
        "left": _decision(parting.difference.left),
        "right": _decision(parting.difference.right),
    }


def _decision(decision: Decision | None) -> dict[str, Any] | None:
    return None if decision is None else {**decision._asdict(), "words": decision.words[:MAX_TEXT]}


SIDE_BY_SIDE = {"pairs": pairs, "timeline": timeline, "strips": counters, "marks": other_marks, "arrows": other_arrows}
