"""The engine as the rest of the daemon sees it: requests are sent and cancelled, what it handled is read.

Every entry goes to the timeline (metrics) and to the requests it concerns. When the engine process is replaced, callers
notice only the pause (`handover.py`). It must not know HTTP or text.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from daemon import errors
from daemon.call import Call
from daemon.errors import ApiError
from daemon.handover import Aftermath, Handover
from daemon.live_requests import LiveRequest, LiveRequests
from daemon.mailbox import Mailbox
from daemon.pacer import Pacer
from daemon.progress import Progress
from daemon.recorder_totals import RecorderTotals
from daemon.supervisor import ENGINE_MODULE, EngineState, Supervisor
from daemon.urgency import Urgency
from engine.clock import Clock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.errors import EngineError
from engine.core.events import CancelCause, ExecutorRestarted, PolicyChanged
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from engine.protocol import (
    Arrive,
    ChangePolicy,
    Drain,
    Handled,
    Message,
    PolicyCounted,
    PolicyRefused,
    PromptScored,
    Ready,
    RecorderStatus,
)
from recorder.timeline import Timeline

MAX_SENT_PROMPT_TOKENS = 1_000_000  # keeps a request far below the bound of a frame; no context is so long


class Reading(Protocol):
    """A reading of the stream, told of each engine and of each of its entries."""

    def begin_engine(self, info: dict[str, Any]) -> None:
        """`info` as in `Ready`."""

    def apply(self, entry: Entry) -> None: ...


class EngineClient:
    """
    pacer      of all that wakes or comes in great numbers at once
    live       requests that are not ended
    handover   what of these the engine has, and has had
    timeline   what all entries so far add up to; goes on when the engine is restarted
    progress   whether work waits, and since when nothing has moved
    policy     name of the scheduling policy in charge; "" until an engine is ready
    readings   whoever else wants all entries; they must neither raise nor wait
    """

    def __init__(self, config: EngineConfig, clock: Clock, engine_module: str = ENGINE_MODULE) -> None:
        self._clock = clock
        self._is_draining = False
        self.pacer = Pacer()
        self.live = LiveRequests()
        self.handover = Handover(self.live, self._send)
        self.supervisor = Supervisor(config, clock, self._take, self._on_death, self.live.lose_all, engine_module)
        self.timeline = Timeline()
        self.progress = Progress(clock)
        self.recorder = RecorderTotals()
        self.policy = ""
        self.readings: list[Reading] = []
        self.on_ready: Callable[[dict[str, Any]], None] = lambda info: None  # before any request is sent
        self._counted = PolicyCounted("", ())  # what the policy has counted so far: a new engine is told of it
        self._changed_to: ChangePolicy | None = None  # all changes so far as one: a new engine is told of it
        self._policy_changes: deque[tuple[ChangePolicy, asyncio.Future[None]]] = deque()  # not answered yet, in order

    @property
    def counted(self) -> tuple[tuple[Any, ...], ...]:
        """What the policy has counted, as the engine said last."""
        return self._counted.counted

    @property
    def retry_after_seconds(self) -> int:
        return self.supervisor.retry_after_seconds

    def lost_error(self) -> ApiError:
        """What a client is told whose request no engine will go on with."""
        return errors.cut_by_drain() if self._is_draining else errors.engine_lost(self.retry_after_seconds)

    @property
    def max_model_len(self) -> int:
        return int(self.supervisor.info["limits"]["max_model_len"])

    @property
    def block_size(self) -> int:
        return int(self.supervisor.info["limits"]["block_size"])

    @property
    def _max_num_queued(self) -> int:
        return int(self.supervisor.info["limits"]["max_num_queued_reqs"])

    def open_call(self, mailbox: Mailbox | None = None) -> Call:
        mailbox = mailbox or Mailbox()
        mailbox.pacer = self.pacer
        return Call(self, mailbox)

    def take_over(self, arrive: Arrive, token_ids: list[int], num_hit_blocks: int, mailbox: Mailbox) -> LiveRequest:
        """A request of a daemon before this one, before an engine is there: the first one goes on with it."""
        request = self.live.add(arrive, 0, mailbox)
        request.token_ids, request.num_hit_blocks = token_ids, num_hit_blocks
        request.is_accepted, request.num_handovers = True, max(1, arrive.num_handovers)
        return request

    def send_request(
        self,
        request_id: str,
        index: int,
        urgency: Urgency,
        arrival_ns: int,
        max_output_tokens: int,
        sampling: SamplingParams,
        contents: RequestContents,
        mailbox: Mailbox,
        trace_context: str = "",
        num_choices: int = 1,
        operation: str = "text_completion",
        is_streamed: bool = False,
    ) -> LiveRequest:
        """Number the request and send it, now or as soon as an engine is back.

        Raises ApiError: draining, no engine, too many waiting for one, an id in use, a prompt beyond all.
        """
        self.require_serving()
        connection = self.supervisor.connection
        if connection is not None and connection.is_full:
            raise errors.unavailable("the engine reads too slowly to take more requests", "overloaded")
        if request_id in self.live:
            raise errors.duplicate_request_id()
        num_prompt_tokens = len(contents.prompt_token_ids)
        if num_prompt_tokens > MAX_SENT_PROMPT_TOKENS:
            raise errors.prompt_too_long(num_prompt_tokens, self.max_model_len - 1)
        arrive = Arrive(
            0,
            request_id,
            urgency.tenant,
            urgency.priority or 0,
            arrival_ns,
            max_output_tokens,
            sampling,
            contents,
            urgency.ttft_target_ms,
            urgency.itl_target_ms,
            arrival_ns + urgency.queue_timeout_ms * 1_000_000 if urgency.queue_timeout_ms else 0,
            trace_context=trace_context,
            num_choices=num_choices,
            operation=operation,
            is_streamed=is_streamed,
        )
        request = self.live.add(arrive, index, mailbox)
        self.handover.submit(request)
        self.progress.note_work(len(self.live))
        return request

    def require_serving(self) -> None:
        """Raises ApiError 503 unless a new request can be sent, now or, in bounded number, when an engine is back."""
        is_between_engines = self.supervisor.state is EngineState.RESTARTING and bool(self.supervisor.info)
        if is_between_engines and not self._is_draining and self.handover.num_waiting < self._max_num_queued:
            return
        self.require_ready()

    def require_ready(self) -> None:
        """Raises ApiError 503 unless an engine is there."""
        if self._is_draining:
            raise errors.draining()
        if self.supervisor.state is not EngineState.READY:
            state = self.supervisor.state
            raise errors.unavailable(f"the engine is not ready: {state}", "engine_not_ready", self.retry_after_seconds)

    def cancel(self, request: LiveRequest, cause: CancelCause) -> None:
        """End a request early; without effect when it has ended or is being cancelled."""
        if request.has_ended or request.is_cancelled:
            return
        self.handover.cancel(request, cause)
        self.progress.note_work(len(self.live))

    async def change_policy(self, policy: str, parameters: tuple[tuple[str, Any], ...] = ()) -> None:
        """Another policy, or other parameters of it, while serving; returns when the engine has recorded it.

        It stays in charge when the engine dies and another is started.
        parameters   (name, value) of those fields of `Limits` that are to change
        Raises EngineError when the engine refuses it or dies before it answers, ApiError when there is none.
        """
        self.require_ready()
        connection = self.supervisor.connection
        assert connection is not None, "an engine that is ready has a connection"
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        change = ChangePolicy(policy, parameters)
        self._policy_changes.append((change, answer))
        connection.send(change)
        await answer

    def begin_drain(self) -> None:
        """Take no new request; those that are here go on."""
        self._is_draining = True
        self._send(Drain())

    def cut_all(self) -> None:
        """The drain timeout has passed: end what is left."""
        for request in self.live.all():
            self.cancel(request, CancelCause.DRAIN)

    def _send(self, message: Message) -> None:
        connection = self.supervisor.connection
        if connection is not None:
            connection.send(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Handled):
            if type(message.entry.event) is ExecutorRestarted:
                self.handover.announced()
            elif type(message.entry.event) is PolicyChanged:
                self.policy = message.entry.event.policy
                self._answer_policy_change(None)
            self.live.apply(message)
            self.timeline.apply(message.entry)
            for reading in self.readings:
                reading.apply(message.entry)
            self.handover.go_on()
            self.progress.note_entry(message.entry, len(self.live))
        elif isinstance(message, PromptScored):
            self.live.score(message.prompt)
        elif isinstance(message, PolicyCounted):
            self._counted = message
        elif isinstance(message, PolicyRefused):
            self._answer_policy_change(EngineError(message.message))
        elif isinstance(message, Ready):
            limits = Limits.from_dict(message.info["limits"])
            self.timeline.begin_engine(limits)
            self.policy = limits.scheduling_policy
            for reading in self.readings:
                reading.begin_engine(message.info)
            self.on_ready(message.info)
            self.handover.announce(limits.block_size)
            self._restore_policy()
            self.handover.open()
            if self._is_draining:
                self._send(Drain())
        elif isinstance(message, RecorderStatus):
            self.recorder.apply(message)

    def _restore_policy(self) -> None:
        """An engine begins with the policy it was configured with, which has counted nothing."""
        change = self._changed_to or ChangePolicy(self.policy)
        if self._counted.policy == change.policy:
            change = change._replace(counted=self._counted.counted)
        connection = self.supervisor.connection
        if connection is None or not (self._changed_to or change.counted):
            return
        nobody: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        nobody.cancel()
        self._policy_changes.append((change, nobody))
        connection.send(change)

    def _answer_policy_change(self, refusal: EngineError | None) -> None:
        change, answer = self._policy_changes.popleft()
        if refusal is None:
            earlier = self._changed_to.parameters if self._changed_to else ()
            parameters = dict(earlier) | dict(change.parameters)
            self._changed_to = ChangePolicy(change.policy, tuple(parameters.items()))
        if answer.done():  # nobody waits for it any more
            return
        if refusal is None:
            answer.set_result(None)
        else:
            answer.set_exception(refusal)

    def _on_death(self, was_killed: bool) -> Aftermath:
        while self._policy_changes:
            self._answer_policy_change(EngineError("the engine died before it changed its policy"))
        self.recorder.begin_next()
        aftermath = self.handover.died(was_killed=was_killed)
        self.progress.note_work(len(self.live))
        return aftermath
