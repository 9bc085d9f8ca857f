"""One call of the API while it is worked on: its one or more requests in the engine, from sending to their end.

`close` is the promise to the engine: whatever has not ended by then is cancelled, once. It must not know HTTP.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from daemon import errors
from daemon.errors import ApiError
from daemon.live_requests import LiveRequest
from daemon.mailbox import Accepted, Blamed, EngineLost, Item, Mailbox, PromptTold
from daemon.urgency import Urgency
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import RequestFinished, RequestRejected
from engine.core.events import CancelCause
from engine.core.sampling_params import SamplingParams
from recorder.spans.trace_ids import context_below

if TYPE_CHECKING:
    from daemon.engine_client import EngineClient


class Call:
    """Requests are asked with `ask`, waited for with `accepted`, read with `take`, and always ended with `close`."""

    def __init__(self, engine: "EngineClient", mailbox: Mailbox | None = None) -> None:
        self._engine = engine
        self._mailbox = mailbox or Mailbox()
        self._read_early: list[tuple[int, Item]] = []
        self.trace_context = ""  # the client's W3C traceparent; once its first request is sent, that of the others
        self.trace_id = ""  # of its first request's spans
        self._held: dict[int, list[Callable[[], None]]] = {}
        self.followers: dict[int, list[int]] = {}  # choices that are told of the same prompt, by the one that asks
        self.requests: dict[int, LiveRequest] = {}  # by the index of their choice

    def ask(
        self,
        index: int,
        request_id: str,
        urgency: Urgency,
        arrival_ns: int,
        max_output_tokens: int,
        sampling: SamplingParams,
        contents: RequestContents,
        num_choices: int = 1,
        operation: str = "text_completion",
        is_streamed: bool = False,
    ) -> None:
        """Send the request of one choice; of several, the first one's span is the parent of the others'.

        num_choices, operation, is_streamed   as in `RequestArrived`
        Raises ApiError when the engine cannot take it.
        """
        request = self._engine.send_request(
            *(request_id, index, urgency, arrival_ns, max_output_tokens, sampling, contents, self._mailbox),
            trace_context=self.trace_context,
            num_choices=num_choices,
            operation=operation,
            is_streamed=is_streamed,
        )
        if not self.requests:
            self.trace_id = request.trace_id
            arrive = request.arrive
            self.trace_context = context_below(arrive.request_id, arrive.arrival_ns, arrive.trace_context)
        self.requests[index] = request

    def hold(self, leader: int, ask: Callable[[], None]) -> None:
        """Call `ask` when choice `leader` has its first token, or has ended without, from within `take`."""
        self._held.setdefault(leader, []).append(ask)

    async def accepted(self) -> None:
        """Wait until the core has queued every request. Raises ApiError when one is refused."""
        num_missing = len(self.requests)
        while num_missing:
            for index, item in await self._mailbox.take():
                if type(item) is Accepted:
                    num_missing -= 1
                elif type(item) is RequestRejected:
                    raise self._refusal(index, item)
                elif type(item) is EngineLost:
                    raise self._engine.lost_error()
                elif type(item) is Blamed:
                    raise errors.request_kills_engine(self.requests[index].request_id)
                else:
                    self._read_early.append((index, item))

    async def take(self, timeout_seconds: float | None = None) -> list[tuple[int, Item]]:
        """What has come for any choice; waits for something, empty when nothing came within the time.

        Raises ApiError when a request that was held is refused.
        """
        items, self._read_early = self._read_early, []
        items = items or await self._mailbox.take(timeout_seconds)
        for index, item in items:
            if type(item) is RequestRejected:
                raise self._refusal(index, item)
            if type(item) in (TokenOutput, RequestFinished):
                for ask in self._held.pop(index, ()):
                    ask()
        return self._shared(items) if self.followers else items

    def _shared(self, items: list[tuple[int, Item]]) -> list[tuple[int, Item]]:
        """With what is told of a prompt told to all of its choices."""
        shared: list[tuple[int, Item]] = []
        for index, item in items:
            shared.append((index, item))
            if type(item) is PromptTold:
                shared += [(follower, item) for follower in self.followers.get(index, ())]
        return shared

    @property
    def has_ended(self) -> bool:
        """The engine works on none of its requests any more; true also before anything has been asked."""
        return not self._held and all(request.has_ended for request in self.requests.values())

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far, of those requests that were accepted."""
        accepted = [request for request in self.requests.values() if request.is_accepted]
        return sum(request.num_prompt_tokens + len(request.token_ids) for request in accepted)

    def close(self, cause: CancelCause = CancelCause.CLIENT) -> None:
        """Cancel what has not ended, and listen no longer."""
        self._held.clear()
        for request in self.requests.values():
            request.mailbox = None
            self._engine.cancel(request, cause)

    def _refusal(self, index: int, decision: RequestRejected) -> ApiError:
        return errors.rejected(decision, self.requests[index].num_prompt_tokens)
