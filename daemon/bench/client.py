"""One streaming request, measured: when its tokens came, how many they were, and what went wrong.

Nothing that a server does raises here: a failure is a result, kept with what had come before it.
"""

from dataclasses import dataclass, field

import aiohttp

from daemon.bench.endpoint import Endpoint
from daemon.bench.events import Event, Usage, parse_event
from daemon.bench.workloads import PlannedRequest
from engine.clock import Clock

_DONE = b"[DONE]"
_MAX_ERROR_CHARACTERS = 300


@dataclass(slots=True)
class Answer:
    """What became of one request. Times are monotonic; `sent_ns` and `due_ns` count from the start of the drive.

    due_ns      when an open loop wanted it sent; None in a closed loop
    chunk_ns    after `sent_ns`: the arrival of each chunk that carried output, which may be several tokens
    ended_ns    after `sent_ns`: the end of the answer, or of the hope for one
    token_ids   where the server gives them, else empty
    usage       as the server counts; None if it does not say
    error       "" if the answer came whole
    """

    index: int
    kind: str
    num_prompt_tokens_planned: int
    max_output_tokens: int
    due_ns: int | None
    sent_ns: int = 0
    chunk_ns: list[int] = field(default_factory=list)
    ended_ns: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    error: str = ""

    @property
    def num_output_tokens(self) -> int:
        """By the server's usage, else by its token ids, else one for each chunk."""
        return self.usage.num_output_tokens if self.usage else len(self.token_ids) or len(self.chunk_ns)

    @property
    def counted_by(self) -> str:
        return "usage" if self.usage else "token ids" if self.token_ids else "chunks"

    @property
    def num_prompt_tokens(self) -> int:
        """By the server's usage, else as planned."""
        return self.usage.num_prompt_tokens if self.usage else self.num_prompt_tokens_planned

    def take(self, event: Event, now_ns: int) -> None:
        """An event that has just come."""
        if event.is_output:
            self.chunk_ns.append(now_ns)
            self.text += event.text
            self.token_ids += event.token_ids
        self.finish_reason = event.finish_reason or self.finish_reason
        self.usage = event.usage or self.usage
        self.error = event.error or self.error


async def measure(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    request: PlannedRequest,
    path: str,
    body: bytes,
    clock: Clock,
    start_ns: int,
) -> Answer:
    """Send `body` and read the stream to its end.

    session    its total timeout is the request's
    start_ns   of the drive, by `clock`
    """
    due_ns = None if request.due_s is None else int(request.due_s * 1e9)
    answer = Answer(request.index, request.kind, request.num_prompt_tokens, request.num_output_tokens, due_ns)
    headers = {"Content-Type": "application/json", **endpoint.headers}
    sent_ns = clock.now_ns()
    answer.sent_ns = sent_ns - start_ns
    try:
        async with session.post(endpoint.url + path, data=body, headers=headers) as response:
            if response.status == 200:
                is_done = await _read(response, answer, clock, sent_ns)
                answer.error = answer.error or _what_is_missing(answer, is_done, response.content_type)
            else:
                answer.error = f"HTTP {response.status}: {await response.text(errors='replace')}"
    except TimeoutError:
        answer.error = f"no end after {session.timeout.total:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    answer.ended_ns = clock.now_ns() - sent_ns
    answer.error = " ".join(answer.error.split())[:_MAX_ERROR_CHARACTERS]
    return answer


async def _read(response: aiohttp.ClientResponse, answer: Answer, clock: Clock, sent_ns: int) -> bool:
    """Take events until the stream ends; whether it ended with [DONE]."""
    async for line in response.content:
        if not line.startswith(b"data:"):  # an empty line between events, a comment that keeps the connection open
            continue
        data = line[len(b"data:") :].strip()
        if data == _DONE:
            return True
        answer.take(parse_event(data), clock.now_ns() - sent_ns)
    return False


def _what_is_missing(answer: Answer, is_done: bool, content_type: str) -> str:
    if not answer.chunk_ns:
        return "no output came" if content_type == "text/event-stream" else f"no stream came, but {content_type}"
    return "" if is_done or answer.finish_reason else "the stream was cut: neither [DONE] nor a finish reason came"
