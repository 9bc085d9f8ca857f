"""Where what the engine says about one call waits for the handler that answers it: one writer side, one reader.

Bounded by what is put in: a request has at most max_model_len tokens and one end, however slowly its client reads.
With a `pacer` the reader wakes when its turn has come.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from daemon.pacer import Pacer
from engine.core.contents import PromptLogprobs, TokenOutput
from engine.core.decisions import RequestFinished, RequestRejected


class Accepted(NamedTuple):
    """The core has queued the request."""


class PromptTold(NamedTuple):
    """What was asked about the prompt; before its first token, or its end.

    token_ids   of the prompt
    """

    token_ids: tuple[int, ...]
    logprobs: PromptLogprobs


class EngineLost(NamedTuple):
    """No engine will go on with the request: the daemon ends, or cannot keep one alive."""


class Blamed(NamedTuple):
    """The engine died on the request again and again; it is not tried any more."""


Item = Accepted | RequestRejected | PromptTold | TokenOutput | RequestFinished | EngineLost | Blamed


class Mailbox:
    """Items of a call's requests, each with the index of its choice, in the order in which the engine decided them."""

    def __init__(self) -> None:
        self._items: deque[tuple[int, Item]] = deque()
        self._waiter: asyncio.Future[None] | None = None  # None also once it has been told
        self.pacer: Pacer | None = None

    def put(self, index: int, item: Item) -> None:
        self._items.append((index, item))
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if self.pacer is None:
            waiter.set_result(None)
        else:
            self.pacer.release(waiter)

    async def take(self, timeout_seconds: float | None = None) -> list[tuple[int, Item]]:
        """All that is there, waiting for the first; empty when nothing came within the time."""
        if not self._items:
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_seconds):
                    await waiter
            except TimeoutError:
                return []
            finally:
                self._waiter = None
        taken = list(self._items)
        self._items.clear()
        return taken
