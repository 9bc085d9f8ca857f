"""The requests that this daemon answers for, and who waits for what the engine decides on them.

A request is here from the moment it is taken in until its end has been read, also after its client has left: so a drain
waits for it, and its id is not given twice. It outlives an engine that dies: what a request was sent with and the
tokens that came back are kept, so that the next engine can go on. It must not know sockets, HTTP or text.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from daemon.mailbox import Accepted, Blamed, EngineLost, Item, Mailbox, PromptTold
from engine.core.contents import PromptLogprobs, TokenOutput
from engine.core.decisions import RequestAdmitted, RequestFinished, RequestRejected, TokensEmitted
from engine.core.events import RequestArrived
from engine.protocol import Arrive, Handled
from recorder.spans.trace_ids import trace_id_of


@dataclass(slots=True)
class LiveRequest:
    """
    arrive           as it was sent first
    mailbox          who reads; None once its client has left
    token_ids        output tokens received from engines
    is_accepted      an engine has queued it
    is_sent          the engine that runs now has it
    is_cancelled     a Cancel has been sent: never a second one
    num_hit_blocks   of its first admission; -1 before
    num_handovers    engines that held it and died
    num_when_sent    tokens received when the engine that has it got it
    prompt           what was asked about its prompt, until its reader is told; is_prompt_told: never a second time
    suspicion        weight of the deaths since an engine last gave a token for it; lone_suspicion: of those for which
                     no other request can have been the cause
    """

    arrive: Arrive
    index: int
    mailbox: Mailbox | None
    token_ids: list[int] = field(default_factory=list)
    is_accepted: bool = False
    is_sent: bool = False
    is_cancelled: bool = False
    has_ended: bool = False
    num_hit_blocks: int = -1
    num_handovers: int = 0
    num_when_sent: int = 0
    suspicion: int = 0
    lone_suspicion: int = 0
    prompt: PromptLogprobs | None = None
    is_prompt_told: bool = False

    @property
    def number(self) -> int:
        """Its number in the engine."""
        return self.arrive.request

    @property
    def request_id(self) -> str:
        return self.arrive.request_id

    @property
    def trace_id(self) -> str:
        """Of its spans, as `recorder/spans/` makes them."""
        arrive = self.arrive
        return f"{trace_id_of(arrive.request_id, arrive.arrival_ns, arrive.trace_context):032x}"

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.arrive.contents.prompt_token_ids)

    @property
    def is_proven(self) -> bool:
        """The engine that has it has given a token for it."""
        return len(self.token_ids) > self.num_when_sent

    def as_lost(self) -> "tuple[int, str, int, int]":
        """As `Restarted` tells of it."""
        return self.number, self.request_id, self.num_prompt_tokens, len(self.token_ids)


class LiveRequests:
    """By number and by id; `apply` takes what the engine has handled to the mailboxes.

    num_tokens   received, over all requests and engines
    on_tokens    told of a request's new token, after its mailbox
    """

    def __init__(self) -> None:
        self._by_number: dict[int, LiveRequest] = {}
        self._numbers_by_id: dict[str, int] = {}
        self._next_number = 0
        self.num_tokens = 0
        self.on_token: Callable[[LiveRequest, TokenOutput], None] | None = None

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._numbers_by_id

    def all(self) -> list[LiveRequest]:
        return list(self._by_number.values())

    def add(self, arrive: Arrive, index: int, mailbox: Mailbox) -> LiveRequest:
        """A new request with the next number, whatever `arrive` says; they go on when an engine is restarted."""
        assert arrive.request_id not in self._numbers_by_id, "the caller looks for duplicates first"
        request = LiveRequest(arrive._replace(request=self._next_number), index, mailbox)
        self._next_number += 1
        self._by_number[request.number] = request
        self._numbers_by_id[request.request_id] = request.number
        return request

    def apply(self, handled: Handled) -> None:
        """Hand one entry's decisions, in their order, to those they concern."""
        event = handled.entry.event
        if type(event) is RequestArrived:
            rejected = any(type(decision) is RequestRejected for decision in handled.entry.decisions)
            if not rejected:
                self._accept(event.request)
        for decision in handled.entry.decisions:
            if type(decision) is TokensEmitted:
                for output in handled.outputs:
                    self._take_token(output)
            elif type(decision) is RequestAdmitted:
                request = self._by_number.get(decision.request)
                if request is not None and request.num_hit_blocks < 0:
                    request.num_hit_blocks = decision.num_hit_blocks
            elif type(decision) is RequestRejected or type(decision) is RequestFinished:
                self.end(decision.request, decision)

    def score(self, prompt: PromptLogprobs) -> None:
        """Its reader is told with what the engine decides on the step: then it is on file."""
        request = self._by_number.get(prompt.request)
        if request is not None:
            request.prompt = prompt

    def lose_all(self) -> None:
        """End every request: no engine will go on with it."""
        for request in self.all():
            self.end(request.number, EngineLost())

    def end(self, number: int, item: RequestRejected | RequestFinished | EngineLost | Blamed) -> None:
        """Nothing more comes for it; without effect when it has ended."""
        request = self._by_number.pop(number, None)
        if request is None:
            return
        del self._numbers_by_id[request.request_id]
        request.has_ended = True
        if type(item) is RequestFinished:
            self._tell_prompt(request)
        self._put(request, item)

    def _accept(self, number: int) -> None:
        request = self._by_number.get(number)
        if request is not None and not request.is_accepted:
            request.is_accepted = True
            self._put(request, Accepted())

    def _take_token(self, output: TokenOutput) -> None:
        request = self._by_number.get(output.request)
        if request is None:  # it ended between two engines
            return
        if request.prompt is not None:
            self._tell_prompt(request)
        request.token_ids.append(output.token_id)
        self.num_tokens += 1
        self._put(request, output)
        if self.on_token is not None:
            self.on_token(request, output)

    def _tell_prompt(self, request: LiveRequest) -> None:
        prompt, request.prompt = request.prompt, None
        if prompt is not None and not request.is_prompt_told:
            request.is_prompt_told = True
            self._put(request, PromptTold(request.arrive.contents.prompt_token_ids, prompt))

    def _put(self, request: LiveRequest, item: Item) -> None:
        if request.mailbox is not None:
            request.mailbox.put(request.index, item)
