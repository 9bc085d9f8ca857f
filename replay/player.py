"""Feeds recorded events to the core, each at its recorded time, and lays what it decides beside what was recorded.

It knows no runner and no contents: any machine can do it. It stops where nothing can be compared any more and says why.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from engine.core.decisions import Decision
from engine.core.keyframes.comparing import StateDifference, state_differences
from engine.core.keyframes.freezing import freeze
from engine.core.keyframes.layout import VERSION
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import CoreKeyframe, Entry
from replay.divergence import MAX_DIFFERENCES, Raised
from replay.lives import Life
from replay.older_writer import as_written
from replay.own_policy import recorded_core, thawed_core
from replay.refusal import CannotCompare
from replay.span import Beginning, Resumption, moments


class Decider(Protocol):
    """What the player asks of a core."""

    def handle(self, event: Any, now_ns: int) -> list[Decision]: ...


MakeCore = Callable[[Limits], Decider]


class Turn(NamedTuple):
    """One entry and what the core decided on its event now.

    raised    stands in when the core refused the event
    drift     the entry is a keyframe, and the core's state differs in these fields
    is_last   no comparable entry follows; known only when the core raised
    """

    entry: Entry
    decided: tuple[Decision, ...]
    raised: Raised | None = None
    is_last: bool = False
    drift: tuple[StateDifference, ...] = ()

    @property
    def ends_alike(self) -> bool:
        """The core raised on the last event, for which no decision was recorded: the engine recorded what broke it."""
        return self.raised is not None and self.is_last and not self.entry.decisions


class Mismatch(NamedTuple):
    """The first decision of an entry that differs; None on the side that has no such decision."""

    record_index: int
    expected: Any
    got: Any


class CoreState(NamedTuple):
    """One field of a core's state, by its way from the core, and its value."""

    field: str
    value: Any


class Player:
    """Plays one life of an engine: a fresh core, or one from a keyframe, then event after event.

    At each keyframe on the way the core's state is compared with the recorded one; behind a gap it goes on from the
    next keyframe.

    beginning       where it began
    refusals        why entries could not be compared, each for a stretch of them
    num_keyframes   that were equal
    notes           where it went on
    """

    def __init__(
        self,
        life: Life,
        make_core: MakeCore | None = None,
        beginning: Beginning | None = None,
        last_step: int | None = None,
    ) -> None:
        """`make_core` replaces the core that recorded. Raises CannotCompare when that one cannot be built here."""
        self._life = life
        self.beginning = beginning or Beginning(life.header.first_sequence, False, "")
        self._last_step = last_step
        header = life.header
        self._has_own_core = make_core is not None
        self._core: Decider = make_core(Limits.from_dict(header.limits)) if make_core else recorded_core(header)
        self._as_written = as_written(header.schema)
        self.refusals: list[CannotCompare] = []
        self.num_keyframes = 0
        self.notes: list[str] = []

    @property
    def refusal(self) -> CannotCompare | None:
        """Why some entries could not be compared, the first reason; None when all were."""
        return self.refusals[0] if self.refusals else None

    def turns(self) -> Iterator[Turn]:
        """Every entry with the decisions made again, and each keyframe that differs from the core's state.

        Ends after an event that the core refused.
        """
        entries = moments(self._life, self.beginning, self.refusals.append, self._last_step)
        for moment in entries:
            if isinstance(moment, Resumption):
                if not self._go_on(moment, entries):
                    return
                continue
            if isinstance(moment.event, CoreKeyframe):
                drift = self._drift(moment.event)
                if drift:
                    yield Turn(moment, (), drift=drift)
                self.num_keyframes += 1
                continue
            try:
                decided = tuple(self._core.handle(moment.event, moment.now_ns))
            except Exception as error:  # whatever it is, the recorded run did not raise it
                is_last = next((entry for entry in entries if not _is_keyframe(entry)), None) is None
                yield Turn(moment, (), Raised(f"{type(error).__name__}: {error}"), is_last)
                return
            yield Turn(moment, self._as_written(decided))

    def _go_on(self, resumption: Resumption, entries: Iterator[Entry | Resumption]) -> bool:
        """The core as it was there, or at a later keyframe; False when there is none that can be used."""
        following: Resumption | None = resumption
        while following is not None and not self._has_own_core:
            try:
                self._core = thawed_core(self._life.header, following.keyframe)
            except CannotCompare as refusal:
                self.refusals.append(refusal)
                following = next((_as_resumption(entry) for entry in entries if _is_keyframe(entry)), None)
                continue
            if following.entry.sequence != self.beginning.sequence:
                self.notes.append(f"went on at the keyframe at sequence {following.entry.sequence}")
            return True
        return False

    def _drift(self, keyframe: CoreKeyframe) -> tuple[StateDifference, ...]:
        """The fields in which the core's state is not the recorded one, the first few."""
        if type(self._core) is not Core:
            return ()
        if isinstance(keyframe.state, tuple) and keyframe.state[:1] != (VERSION,):
            self.notes.append(
                f"keyframes of layout {keyframe.state[:1]} cannot be compared: this version knows {VERSION}"
            )
            return ()
        try:
            return tuple(islice(state_differences(keyframe.state, freeze(self._core)), MAX_DIFFERENCES))
        except Exception as error:  # a stranger's values may be wrong in any way
            return (StateDifference("core", f"unreadable: {type(error).__name__}: {error}", None),)


def _is_keyframe(moment: Entry | Resumption) -> bool:
    return isinstance(moment, Resumption) or isinstance(moment.event, CoreKeyframe)


def _as_resumption(moment: Entry | Resumption) -> Resumption | None:
    if isinstance(moment, Resumption):
        return moment
    return Resumption(moment, moment.event) if isinstance(moment.event, CoreKeyframe) else None


def first_mismatch(turn: Turn) -> Mismatch | None:
    """Where the turn's decisions part from the recorded ones, the first decision too many or too few included."""
    expected, got = turn.entry.decisions, turn.decided
    if turn.drift:
        field, then, now = turn.drift[0]
        return Mismatch(0, CoreState(field, then), CoreState(field, now))
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
