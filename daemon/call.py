"""One call of the API while it is worked on: its one or more requests in the engine, from sending to their end.

`close` is the promise to the engine: whatever has not ended by then is cancelled, once. It must not know HTTP.
"""

from typing import TYPE_CHECKING

from daemon import errors
from daemon.live_requests import LiveRequest
from daemon.mailbox import Accepted, Blamed, EngineLost, Item, Mailbox
from daemon.urgency import Urgency
from engine.core.contents import RequestContents
from engine.core.decisions import RequestRejected
from engine.core.events import CancelCause
from engine.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from daemon.engine_client import EngineClient


class Call:
    """Requests are asked with `ask`, waited for with `accepted`, read with `take`, and always ended with `close`."""

    def __init__(self, engine: "EngineClient", mailbox: Mailbox | None = None) -> None:
        self._engine = engine
        self._mailbox = mailbox or Mailbox()
        self._read_early: list[tuple[int, Item]] = []
        self.requests: list[LiveRequest] = []

    def ask(
        self,
        request_id: str,
        urgency: Urgency,
        arrival_ns: int,
        max_output_tokens: int,
        sampling: SamplingParams,
        contents: RequestContents,
    ) -> None:
        """Send one more request; its choice has the next index. Raises ApiError when the engine cannot take it."""
        index = len(self.requests)
        request = self._engine.send_request(
            request_id, index, urgency, arrival_ns, max_output_tokens, sampling, contents, self._mailbox
        )
        self.requests.append(request)

    async def accepted(self) -> None:
        """Wait until the core has queued every request. Raises ApiError when one is refused."""
        num_missing = len(self.requests)
        while num_missing:
            for index, item in await self._mailbox.take():
                if type(item) is Accepted:
                    num_missing -= 1
                elif type(item) is RequestRejected:
                    raise errors.rejected(item, self.requests[index].num_prompt_tokens)
                elif type(item) is EngineLost:
                    raise self._engine.lost_error()
                elif type(item) is Blamed:
                    raise errors.request_kills_engine(self.requests[index].request_id)
                else:
                    self._read_early.append((index, item))

    async def take(self, timeout_seconds: float | None = None) -> list[tuple[int, Item]]:
        """What has come for any choice; waits for something, empty when nothing came within the time."""
        if self._read_early:
            early, self._read_early = self._read_early, []
            return early
        return await self._mailbox.take(timeout_seconds)

    def close(self) -> None:
        """Cancel what has not ended, and listen no longer."""
        for request in self.requests:
            request.mailbox = None
            self._engine.cancel(request, CancelCause.CLIENT)
