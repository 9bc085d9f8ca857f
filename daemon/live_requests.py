"""The requests that the engine holds for this daemon, and who waits for what is decided on them.

A request is here from the moment it is sent until its end has been read, also after its client has left: so a drain
waits for it, and its id is not given twice. It must not know sockets, HTTP or text.
"""

from dataclasses import dataclass

from daemon.mailbox import Accepted, EngineLost, Item, Mailbox
from engine.core.decisions import RequestFinished, RequestRejected, TokensEmitted
from engine.core.events import RequestArrived
from engine.protocol import Handled


@dataclass(slots=True)
class LiveRequest:
    """
    number          its number in the engine
    mailbox         who reads; None once its client has left
    num_delivered   output tokens received from the engine
    is_cancelled    a Cancel has been sent: never a second one
    """

    number: int
    request_id: str
    index: int
    num_prompt_tokens: int
    mailbox: Mailbox | None
    num_delivered: int = 0
    is_cancelled: bool = False
    has_ended: bool = False


Lost = tuple[tuple[int, str, int, int], ...]


class LiveRequests:
    """By number and by id; `apply` takes what the engine has handled to the mailboxes."""

    def __init__(self) -> None:
        self._by_number: dict[int, LiveRequest] = {}
        self._numbers_by_id: dict[str, int] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._numbers_by_id

    def all(self) -> list[LiveRequest]:
        return list(self._by_number.values())

    def add(self, request_id: str, index: int, num_prompt_tokens: int, mailbox: Mailbox) -> LiveRequest:
        """A new request with the next number; numbers go on when the engine is restarted."""
        assert request_id not in self._numbers_by_id, "the caller looks for duplicates first"
        request = LiveRequest(self._next_number, request_id, index, num_prompt_tokens, mailbox)
        self._next_number += 1
        self._by_number[request.number] = request
        self._numbers_by_id[request_id] = request.number
        return request

    def apply(self, handled: Handled) -> None:
        """Hand one entry's decisions, in their order, to those they concern."""
        event = handled.entry.event
        if type(event) is RequestArrived:
            rejected = any(type(decision) is RequestRejected for decision in handled.entry.decisions)
            if not rejected:
                self._put(event.request, Accepted())
        for decision in handled.entry.decisions:
            if type(decision) is TokensEmitted:
                for output in handled.outputs:
                    self._put(output.request, output)
            elif type(decision) is RequestRejected or type(decision) is RequestFinished:
                self._end(decision.request, decision)

    def lose_all(self) -> Lost:
        """End every request, for its engine is gone; returns them in order, as `Restarted` tells the next engine."""
        lost = tuple([(r.number, r.request_id, r.num_prompt_tokens, r.num_delivered) for r in self.all()])
        for request in self.all():
            self._end(request.number, EngineLost())
        return lost

    def _put(self, number: int, item: Item) -> None:
        request = self._by_number.get(number)
        if request is None:  # lost with an engine before this one
            return
        request.num_delivered += type(item) is not Accepted
        if request.mailbox is not None:
            request.mailbox.put(request.index, item)

    def _end(self, number: int, item: RequestRejected | RequestFinished | EngineLost) -> None:
        request = self._by_number.pop(number, None)
        if request is None:
            return
        del self._numbers_by_id[request.request_id]
        request.has_ended = True
        if request.mailbox is not None:
            request.mailbox.put(request.index, item)
