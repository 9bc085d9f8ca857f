"""The first record in which two recordings differ, and the first that does something else.

Both streams are walked together, the right one under the left one's request numbers. Times are not compared: no two
runs take the same. Nor are names where requests were aligned by order, nor digests that cannot be equal: of prompts
under another key, of hidden rows of another numerics class.
"""

from itertools import zip_longest
from typing import Any, NamedTuple

from engine.core.events import RequestArrived, StepCompleted
from engine.core.vocabulary import Entry
from replay.diff.alignment import Alignment, renumbered
from replay.diff.side import Side
from replay.divergence import NUM_ENTRIES_BEFORE
from replay.done import first_done_otherwise
from replay.transcript import Trail

_TIMES = {"arrival_ns": 0, "deadline_ns": 0, "execute_ns": 0, "sample_ns": 0, "swap_ns": 0}


class FirstDifference(NamedTuple):
    """
    left, right             the entries; None where one stream had ended
    record_index            of the decision that differs; -1: the event
    expected, got           the records; None where one side has none
    before                  what came before it on the left, as transcript lines
    """

    left: Entry | None
    right: Entry | None
    record_index: int
    expected: Any
    got: Any
    before: tuple[str, ...]


class Firsts(NamedTuple):
    """
    record        the first difference of any kind; None: all records are equal
    done          the first record that does something else; None: everybody was served alike, step by step
    num_entries   compared
    """

    record: FirstDifference | None
    done: FirstDifference | None
    num_entries: int


def find_firsts(left: Side, right: Side, alignment: Alignment) -> Firsts:
    comparable = _Comparable(left, right, alignment)
    trail = Trail(left.header.created_now_ns, NUM_ENTRIES_BEFORE)
    first: FirstDifference | None = None
    num_entries = 0
    for ours, theirs in zip_longest(left.entries(), right.entries()):
        lefts, rights = comparable.records(ours, is_left=True), comparable.records(theirs, is_left=False)
        if lefts != rights:
            pairs = list(zip_longest(lefts, rights))
            index = next(index for index, (a, b) in enumerate(pairs) if a != b or type(a) is not type(b))
            first = first or FirstDifference(ours, theirs, index - 1, *pairs[index], trail.lines())
            otherwise = _done_otherwise(lefts, rights)
            if otherwise is not None:
                place = lefts.index(otherwise[0]) if otherwise[0] is not None else len(lefts)
                return Firsts(first, FirstDifference(ours, theirs, place - 1, *otherwise, trail.lines()), num_entries)
        num_entries += 1
        if ours is not None:
            trail.pass_by(ours)
    return Firsts(first, None, num_entries)


class _Comparable:
    """Records of both sides, without what cannot be equal."""

    def __init__(self, left: Side, right: Side, alignment: Alignment) -> None:
        self._to_left = alignment.to_left
        self._keeps_ids = alignment.by_id
        self._same_key = left.header.salt == right.header.salt
        self._same_numerics = left.numerics_class == right.numerics_class

    def records(self, entry: Entry | None, *, is_left: bool) -> list[Any]:
        if entry is None:
            return []
        found: list[Any] = [entry.event, *entry.decisions]
        return [self._comparable(record if is_left else renumbered(record, self._to_left)) for record in found]

    def _comparable(self, record: Any) -> Any:
        changes: dict[str, Any] = {name: value for name, value in _TIMES.items() if name in record._fields}
        if isinstance(record, RequestArrived):
            if not self._keeps_ids:
                changes["request_id"] = ""
            if not self._same_key:
                changes["prompt_digests"] = ()
                changes["grammar_digest"] = b""
        elif isinstance(record, StepCompleted):
            if not self._same_key:
                changes["filled"] = tuple([(request, b"") for request, _digest in record.filled])
            if not self._same_numerics:
                changes["emitted"] = tuple([(request, flag, 0, 0) for request, flag, _digest, _bits in record.emitted])
                changes["prompt_logprobs"] = tuple([(*told[:2], 0) for told in record.prompt_logprobs])
        return record._replace(**changes) if changes else record


def _done_otherwise(lefts: list[Any], rights: list[Any]) -> tuple[Any, Any] | None:
    """The first two of an entry's records that do not do the same; an event does what it is about."""
    left, right = lefts[0] if lefts else None, rights[0] if rights else None
    if _about(left) != _about(right):
        return left, right
    return first_done_otherwise(tuple(lefts[1:]), tuple(rights[1:]))


def _about(event: Any) -> tuple[Any, ...]:
    return type(event), getattr(event, "step", -1), getattr(event, "request", -1)
