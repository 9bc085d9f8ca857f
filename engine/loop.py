"""The main loop: an event in, decisions out, recorded and carried out.

One thread owns the core and the executor. It must not know sockets, files or the clock beyond the interface: messages
come from an inbox, entries go to a record sink and then to `publish`.
"""

from collections.abc import Callable
from typing import Protocol

from engine.clock import Clock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import Decision, RequestRejected, StepPlanned, TokensEmitted
from engine.core.errors import EngineError
from engine.core.events import (
    CancelCause,
    DrainRequested,
    Event,
    ExecutorRestarted,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
    StepLaunched,
    TimerFired,
)
from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.freezing import keyframe_of
from engine.core.kv_mismatch import taken_out, without_rows
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.digests import grammar_digest
from engine.execution.interface import Runner, StepResult
from engine.execution.kv_watch import KVWatch
from engine.log import Logger
from engine.protocol import (
    Arrive,
    Cancel,
    ChangePolicy,
    Drain,
    Message,
    PolicyCounted,
    PolicyRefused,
    PromptScored,
    ProtocolError,
    Restarted,
    Stop,
)
from engine.self_audit import SelfAudit
from engine.steps_ahead import StepsAhead, failed

COUNTED_INTERVAL_NS = 1_000_000_000

log = Logger(__name__)


class Inbox(Protocol):
    """Where the daemon's messages wait, in order."""

    def get(self) -> Message:
        """The next message; waits for one."""
        ...

    def drain(self) -> list[Message]:
        """All messages that are here now."""
        ...


class RecordSink(Protocol):
    """What the loop hands to the recorder. Nothing here waits or raises.

    wants_keyframe   the core's state should be given to `record_keyframe` before the next entry
    """

    @property
    def wants_keyframe(self) -> bool: ...

    def record_keyframe(self, keyframe: Entry) -> None: ...

    def record(self, entry: Entry) -> None: ...

    def record_contents(self, request: int, contents: RequestContents) -> None: ...

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None: ...


class NoRecord:
    """The sink of an engine that records nothing."""

    wants_keyframe = False

    def record_keyframe(self, keyframe: Entry) -> None:
        pass

    def record(self, entry: Entry) -> None:
        pass

    def record_contents(self, request: int, contents: RequestContents) -> None:
        pass

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None:
        pass


class EngineLoop:
    """Ties the core to an executor; `publish(entry, outputs)` gets every entry after it was recorded."""

    def __init__(
        self,
        core: Core,
        runner: Runner,
        clock: Clock,
        sink: RecordSink,
        publish: Callable[[Entry, tuple[TokenOutput, ...]], None],
        reply: Callable[[Message], None] = lambda message: None,
        watch: KVWatch | None = None,
        audit: SelfAudit | None = None,
        digest_key: bytes = b"",
    ) -> None:
        """
        reply   sends the daemon what is no entry: what was refused before it could be an event
        watch   the runner's, where digests of KV blocks are kept
        digest_key   the recording's salt
        audit   has finished requests computed again while there is nothing else to do
        """
        self.core = core
        self.runner = runner
        self._clock = clock
        self._sink = sink
        self._publish = publish
        self._reply = reply
        self._watch = watch
        self._audit = audit
        self._digest_key = digest_key
        self._sequence = 0
        self._plan: StepPlanned | None = None
        self._steps_ahead = StepsAhead(self, runner) if core.limits.async_scheduling else None
        self._carry_out = runner.carry_out if self._steps_ahead is None else self._steps_ahead.carry_out
        self._stop_cause: str | None = None
        self._counted_ns = 0
        self._has_keyframes = True

    def serve(self, inbox: Inbox) -> str:
        """Handle messages and execute steps until a Stop; returns its cause."""
        while self._stop_cause is None:
            if self._audit is None or not self._audit.has_work:
                self.take(inbox.get())
            else:
                self._audit_unless_called(self._audit, inbox)
            while self._plan is not None and self._stop_cause is None:
                if self._steps_ahead is None:
                    self.run_step(inbox)
                else:
                    self._steps_ahead.run_step(inbox)
        return self._stop_cause

    def take(self, message: Message) -> None:
        """Turn one message of the daemon into the core's event."""
        match message:
            case Arrive():
                self._take_arrival(message)
            case Cancel():
                self._handle(RequestCancelled(message.request, CancelCause(message.cause)))
            case ChangePolicy():
                self._change_policy(message)
            case Drain():
                self._handle(DrainRequested())
            case Restarted():
                self._handle(ExecutorRestarted(*message))
            case Stop():
                self._stop_cause = message.cause
            case _:
                raise ProtocolError(f"the engine takes no {type(message).__name__} message")

    def run_step(self, inbox: Inbox) -> None:
        """Execute the planned step. What came in meanwhile is handled before its result, as it happened."""
        plan = self.take_plan()
        result: StepResult | StepFailed
        try:
            result = self.runner.execute(plan)
        except Exception as error:  # whatever a kernel raises ends these requests, never the engine
            result = failed(plan, error)
        self.take_waiting(inbox)
        self.tell_result(result)

    def take_plan(self) -> StepPlanned:
        """The step to be executed now."""
        plan, self._plan = self._plan, None
        assert plan is not None, "no step is planned"
        return plan

    @property
    def plan(self) -> StepPlanned | None:
        """The step to be executed next."""
        return self._plan

    @property
    def may_go_on_at_once(self) -> bool:
        """The next step needs nothing of what the core will say of the result of the one before."""
        return self._watch is None and self._stop_cause is None

    def take_waiting(self, inbox: Inbox) -> None:
        """What has come in while a step ran."""
        for message in inbox.drain():
            self.take(message)
        self._fire_timer()

    def tell_result(self, result: StepResult | StepFailed) -> None:
        """What has come of a step."""
        if isinstance(result, StepFailed):
            self._sink.record_tokens(result.step, ())
            self._handle(result)
        else:
            self._sink.record_tokens(result.completed.step, result.outputs)
            for prompt in result.prompts:
                self._reply(PromptScored(prompt))
            self._handle(result.completed, result.outputs)

    def tell_launch(self, step: int) -> None:
        """The core may plan the next one now."""
        self._handle(StepLaunched(step))

    def _audit_unless_called(self, audit: SelfAudit, inbox: Inbox) -> None:
        """One short step, when nothing has come in."""
        if messages := inbox.drain():
            for message in messages:
                self.take(message)
            return
        for event in audit.run_slice():
            self._handle(event)

    def _fire_timer(self) -> None:
        """Tell the core the time it asked for. While it asks a step is under way, so after each step is soon enough."""
        timer_ns = self.core.next_timer_ns
        if 0 < timer_ns <= self._clock.now_ns():
            self._handle(TimerFired())

    def _take_arrival(self, arrive: Arrive) -> None:
        contents = arrive.contents
        digests = self.runner.prompt_digests(contents)
        event = RequestArrived(
            arrive.request,
            arrive.request_id,
            arrive.tenant,
            arrive.priority,
            arrive.arrival_ns,
            len(contents.prompt_token_ids),
            arrive.max_output_tokens,
            digests,
            arrive.sampling,
            arrive.ttft_target_ms,
            arrive.itl_target_ms,
            arrive.deadline_ns,
            len(contents.output_token_ids),
            arrive.num_handovers,
            arrive.num_cached_tokens,
            arrive.trace_context,
            grammar_digest(contents.grammar, self._digest_key),
            arrive.num_choices,
            arrive.sampling.num_prompt_logprobs >= 0,
            arrive.operation,
            arrive.is_streamed,
        )
        self.runner.add_request(arrive.request, arrive.sampling, contents, digests)
        if self._audit is not None:
            self._audit.arrives(event, contents)
        decisions = self._handle(event)
        if not (decisions and type(decisions[0]) is RequestRejected):
            self._sink.record_contents(arrive.request, contents)

    def _change_policy(self, message: ChangePolicy) -> None:
        event = PolicyChanged(*message)
        try:
            self.core.check_policy_change(event)
        except EngineError as error:
            log.warning("policy change refused", policy=message.policy, error=str(error))
            self._reply(PolicyRefused(message.policy, str(error)))
            return
        self._handle(event)

    def _handle(self, event: Event, outputs: tuple[TokenOutput, ...] = ()) -> list[Decision]:
        now_ns = self._clock.now_ns()
        try:
            decisions = self.core.handle(event, now_ns)
        except Exception:
            self._sink.record(Entry(self._sequence, now_ns, event, ()))  # so that `check` meets the same end
            raise
        entry = Entry(self._sequence, now_ns, event, tuple(decisions))
        self._sequence += 1
        self._sink.record(entry)  # queued for writing before anyone outside can see it
        emitting: frozenset[int] = frozenset()
        for decision in decisions:
            if type(decision) is StepPlanned:
                self._plan = decision
                continue
            if type(decision) is TokensEmitted:
                emitting = frozenset([request for request, _count in decision.rows])
            self._carry_out(decision)
        emitted = tuple([output for output in outputs if output.request in emitting])
        self._publish(entry, emitted)
        if self._audit is not None:
            self._audit.see(entry, emitted)
        if self._watch is not None:
            self._tell_mismatches(self._watch)
        if type(event) is StepCompleted and now_ns - self._counted_ns >= COUNTED_INTERVAL_NS:
            self._tell_counted(now_ns)
        if self._sink.wants_keyframe and self._has_keyframes and self.core.step_ahead is None:
            self._record_keyframe(now_ns)
        return decisions

    def _tell_counted(self, now_ns: int) -> None:
        """Once a second, what the policy has counted: this engine may die."""
        self._counted_ns = now_ns
        counted = self.core.planner.policy.to_hand_over()
        if counted:
            self._reply(PolicyCounted(self.core.limits.scheduling_policy, counted))

    def _tell_mismatches(self, watch: KVWatch) -> None:
        """Of what the core's decisions made the runner look at; before the step is executed that reads it."""
        for mismatch in watch.take():
            log.error("a KV block does not hold what was written to it", **mismatch._asdict())
            plan = self._plan
            decisions = self._handle(mismatch)
            if plan is not None:  # whoever is made right has no row in it any more
                self._plan = without_rows(plan, taken_out(decisions))

    def _record_keyframe(self, now_ns: int) -> None:
        """The state before the next entry, after all that is outside has been served."""
        try:
            keyframe = keyframe_of(self.core)
        except KeyframeError as error:
            self._has_keyframes = False
            log.warning("the recording has no keyframes: it can be replayed from its beginning only", error=str(error))
            return
        self._sink.record_keyframe(Entry(self._sequence, now_ns, keyframe, ()))
