"""One call's answer as events with ids, from its beginning, or from where a client stopped reading.

An event's id is the position of the last output token that is told with it; the end and the usage, which tell no
further token, have `.1` and `.2` behind it, for whoever has read the last token has not read these. What an event
tells follows from the tokens alone, so a second stream of the same tokens has the same events under the same ids, and
the rest of an answer is what lies behind the id that a client read last. It must not know HTTP.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from daemon.answer import Delta
from daemon.choices import Choices
from daemon.mailbox import Item, PromptTold
from daemon.streaming import EventStream

Take = Callable[[float | None], Awaitable[list[tuple[int, Item]]]]


class Position(NamedTuple):
    """
    num_tokens   output tokens told so far
    stage        0; 1: the end has been told; 2: and the usage
    """

    num_tokens: int
    stage: int = 0

    def __str__(self) -> str:
        return f"{self.num_tokens}.{self.stage}" if self.stage else f"{self.num_tokens}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Of an event's id; before everything where there is none. Raises ValueError."""
        if not text:
            return BEFORE_ALL
        num_tokens, _, stage = text.partition(".")
        if not (num_tokens.isascii() and num_tokens.isdecimal() and stage in ("", "1", "2")):
            raise ValueError(text)
        return cls(int(num_tokens[:9]), int(stage or 0))


BEFORE_ALL = Position(-1)


class Bodies(Protocol):
    """What an answer's events are made by; `numbers_events`: they have ids."""

    @property
    def numbers_events(self) -> bool: ...

    def opening_chunks(self, num_choices: int) -> list[dict[str, Any]]: ...

    def chunks(self, index: int, delta: Delta, finish_reason: str | None = None) -> list[dict[str, Any]]: ...

    def ending(self, usage: dict[str, Any]) -> list[dict[str, Any]]: ...


class AnswerStream:
    """`write` once. With several choices the events have no ids: a position would not say whose."""

    def __init__(
        self,
        bodies: Bodies,
        choices: Choices,
        num_choices: int,
        keep_alive_seconds: float,
        after: Position = BEFORE_ALL,
    ) -> None:
        self._bodies = bodies
        self._choices = choices
        self._num_choices = num_choices
        self._keep_alive_seconds = keep_alive_seconds
        self._after = after

    async def write(self, take: Take, stream: EventStream) -> set[str]:
        """All events behind `after`, as `take` gives what they are made of; the finish reasons. Raises ApiError."""
        opening = [(Position(0), body) for body in self._bodies.opening_chunks(self._num_choices)]
        await self._send(stream, opening)
        reasons: set[str] = set()
        while not self._choices.are_finished:
            items = await take(self._keep_alive_seconds)
            if not items:
                await stream.keep_alive()
            events: list[tuple[Position, dict[str, Any]]] = []
            try:
                for index, item in items:
                    if type(item) is PromptTold:
                        await self._send(stream, events)
                        events = []
                        await self._tell_prompt(stream, index, item)
                        continue
                    step = self._choices.take(index, item)
                    if step is not None:
                        position = Position(self._choices.num_tokens, 1 if step[1] else 0)
                        events += [(position, body) for body in self._bodies.chunks(index, *step)]
                        reasons |= {step[1]} if step[1] else set()
            finally:
                await self._send(stream, events)  # also what came before an end that is no answer
        position = Position(self._choices.num_tokens, 2)
        await self._send(stream, [(position, body) for body in self._bodies.ending(self._choices.usage())])
        return reasons

    async def _tell_prompt(self, stream: EventStream, index: int, told: PromptTold) -> None:
        """It may be long: made in a thread, so that no other client waits."""
        position = Position(self._choices.num_tokens)

        def make() -> list[tuple[Position, dict[str, Any]]]:
            step = self._choices.take(index, told)
            return [(position, body) for body in self._bodies.chunks(index, *step)] if step else []

        await self._send(stream, await asyncio.to_thread(make), is_long=True)

    async def _send(
        self, stream: EventStream, events: list[tuple[Position, dict[str, Any]]], *, is_long: bool = False
    ) -> None:
        left = [(position, body) for position, body in events if position > self._after]
        has_ids = self._num_choices == 1 and self._bodies.numbers_events
        ids = [str(position) for position, _body in left] if has_ids else []
        await (stream.send_long if is_long else stream.send)([body for _position, body in left], ids)
