"""Feeds recorded events to the core, each at its recorded time, and lays what it decides beside what was recorded.

It knows no runner and no contents: any machine can do it. It stops where nothing can be compared any more and says why.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from engine.core.decisions import Decision
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from replay.divergence import Raised
from replay.lives import Life
from replay.older_writer import as_written
from replay.own_policy import recorded_core
from replay.refusal import CannotCompare


class Decider(Protocol):
    """What the player asks of a core."""

    def handle(self, event: Any, now_ns: int) -> list[Decision]: ...


MakeCore = Callable[[Limits], Decider]


class Turn(NamedTuple):
    """One entry and what the core decided on its event now.

    raised    stands in when the core refused the event
    is_last   no comparable entry follows; known only when the core raised
    """

    entry: Entry
    decided: tuple[Decision, ...]
    raised: Raised | None = None
    is_last: bool = False

    @property
    def ends_alike(self) -> bool:
        """The core raised on the last event, for which no decision was recorded: the engine recorded what broke it."""
        return self.raised is not None and self.is_last and not self.entry.decisions


class Mismatch(NamedTuple):
    """The first decision of an entry that differs; None on the side that has no such decision."""

    record_index: int
    expected: Any
    got: Any


class Player:
    """Plays one life of an engine: a fresh core, then event after event.

    refusal   why the entries after the last turn could not be compared; None when all were
    """

    def __init__(self, life: Life, make_core: MakeCore | None = None) -> None:
        """`make_core` replaces the core that recorded. Raises CannotCompare when that one cannot be built here."""
        self._life = life
        header = life.header
        self._core: Decider = make_core(Limits.from_dict(header.limits)) if make_core else recorded_core(header)
        self._as_written = as_written(header.schema)
        self.refusal: CannotCompare | None = None

    def turns(self) -> Iterator[Turn]:
        """Every entry with the decisions made again. Ends after an event that the core refused."""
        entries = self._life.comparable_entries(self._refuse)
        for entry in entries:
            try:
                decided = tuple(self._core.handle(entry.event, entry.now_ns))
            except Exception as error:  # whatever it is, the recorded run did not raise it
                is_last = next(entries, None) is None
                yield Turn(entry, (), Raised(f"{type(error).__name__}: {error}"), is_last)
                return
            yield Turn(entry, self._as_written(decided))

    def _refuse(self, refusal: CannotCompare) -> None:
        self.refusal = refusal


def first_mismatch(turn: Turn) -> Mismatch | None:
    """Where the turn's decisions part from the recorded ones, the first decision too many or too few included."""
    expected, got = turn.entry.decisions, turn.decided
    if turn.ends_alike:
        return None
    if turn.raised is not None:
        return Mismatch(0, expected[0] if expected else None, turn.raised)
    if expected == got and all(type(left) is type(right) for left, right in zip(expected, got, strict=True)):
        return None
    for index, (left, right) in enumerate(zip(expected, got, strict=False)):
        if type(left) is not type(right) or left != right:
            return Mismatch(index, left, right)
    index = min(len(expected), len(got))
    return Mismatch(
        index,
        expected[index] if index < len(expected) else None,
        got[index] if index < len(got) else None,
    )
