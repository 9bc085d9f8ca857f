"""An answer that outlives its connection: all that was said about it is kept, and told again from where a client wants.

It must not know HTTP or files.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daemon.answer import Answer
from daemon.call import Call
from daemon.mailbox import Item, Mailbox
from daemon.response_bodies import ResponseBodies
from engine.text.text_model import TextModel


class AnswerLog(Mailbox):
    """A mailbox of one choice that forgets nothing; `rewind` begins a reading anew.

    on_item   told of every item, once
    """

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Item] = []
        self.on_item: Callable[[Item], None] | None = None

    def put(self, index: int, item: Item) -> None:
        self.items.append(item)
        super().put(index, item)
        if self.on_item is not None:
            self.on_item(item)

    def rewind(self) -> None:
        self._items = deque([(0, item) for item in self.items])


@dataclass(frozen=True, slots=True)
class Telling:
    """How an answer's tokens become events: what a journal must keep of the question. `answer` as for `Answer`."""

    bodies: ResponseBodies
    answer: dict[str, Any]
    headers: dict[str, str]

    def new_answer(self, text_model: TextModel) -> Answer:
        settings = {**self.answer, "stop_strings": tuple(self.answer["stop_strings"])}
        return Answer(text_model, **settings)


@dataclass(slots=True, eq=False)
class Resumable:
    """
    seconds   that it waits for a client to come back, and is kept after its end
    reader    the handler that tells it now
    """

    request_id: str
    tenant: str
    seconds: float
    telling: Telling
    log: AnswerLog
    call: Call
    journal_name: str = ""
    reader: asyncio.Task[Any] | None = None
    expiry: asyncio.TimerHandle | None = field(default=None, repr=False)
