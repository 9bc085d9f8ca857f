"""Stories: events in, the exact decisions out, told with names instead of numbers.

    story = Story(num_blocks=4, block_size=2)
    story.arrives("a", prompt=3)                    # → the decisions, which `expect` compares
    story.expect(Admitted("a", blocks=[0, 1]), Planned(a=(0, 3)))

A story keeps a twin of the executor's bookkeeping only as far as StepCompleted needs it: which rows emit.
"""

from collections.abc import Callable, Iterable
from typing import Any

from engine.core.decisions import (
    AdmissionThrottled,
    Decision,
    PrefixIndexDropped,
    RequestAdmitted,
    RequestDeferred,
    RequestDemoted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StarvationSeen,
    StepPlanned,
    ThrashingBegan,
    ThrashingEnded,
    TokensEmitted,
)
from engine.core.events import (
    CancelCause,
    DrainRequested,
    Event,
    FinishFlag,
    KVMismatch,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
    StepLaunched,
    TimerFired,
)
from engine.core.kv_mismatch import taken_out, without_rows
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core


class Story:
    """One core, its requests by name, and the decisions of the last event."""

    def __init__(self, *, step_ns: Callable[[StepPlanned], int] = lambda plan: 0, **limits: Any) -> None:
        """`step_ns` says how long a planned step takes; the limits are those of a tiny engine, where not given."""
        defaults: dict[str, Any] = {"watermark_permille": 0, "reserve_output": "none", "thrash_bound_permille": 0}
        defaults |= {"block_size": 2, "num_kv_blocks": 8, "max_model_len": 64, "max_num_seqs": 8}
        self.limits = Limits(**{**defaults, "max_num_batched_tokens": 16, **limits})
        self.core = Core(self.limits)
        self.numbers: dict[str, int] = {}
        self.decisions: list[Decision] = []
        self.history: list[Decision] = []  # the decisions of all events
        self._step_ns = step_ns
        self._now_ns = 0
        self._plan: StepPlanned | None = None
        self._ahead: StepPlanned | None = None
        self._drawing: frozenset[int] | None = None  # of a launched step: the core counts its tokens already

    def arrives(
        self,
        name: str,
        *,
        prompt: int | str,
        output: int = 8,
        priority: int = 0,
        request_id: str = "",
        arrival_ns: int | None = None,
        tenant: str = "default",
        ttft_target_ms: int = 0,
        itl_target_ms: int = 0,
        deadline_ns: int = 0,
        wants_prompt_logprobs: bool = False,
    ) -> None:
        """A request of so many prompt tokens. A text prompt has one letter per token: equal beginnings share blocks."""
        number = self.numbers[name] = len(self.numbers)
        num_prompt_tokens = prompt if isinstance(prompt, int) else len(prompt)
        text = f"{name}" * num_prompt_tokens if isinstance(prompt, int) else prompt
        size = self.limits.block_size
        digests = tuple(text[:end].encode() for end in range(size, num_prompt_tokens + 1, size))
        arrival = self._now_ns if arrival_ns is None else arrival_ns
        self.on(
            RequestArrived(
                number,
                request_id or name,
                tenant,
                priority,
                arrival,
                num_prompt_tokens,
                output,
                digests,
                SamplingParams(),
                ttft_target_ms,
                itl_target_ms,
                deadline_ns,
                wants_prompt_logprobs=wants_prompt_logprobs,
            )
        )

    def cancels(self, name: str, cause: CancelCause = CancelCause.CLIENT) -> None:
        self.on(RequestCancelled(self.numbers[name], cause))

    def timer_fires(self, at_ns: int) -> None:
        """As the loop does it: when the core asked to be told."""
        self._now_ns = max(self._now_ns, at_ns - 1_000_000)
        self.on(TimerFired())

    def drains(self) -> None:
        self.on(DrainRequested())

    def changes_policy(self, policy: str, **parameters: Any) -> None:
        self.on(PolicyChanged(policy, tuple(parameters.items())))

    def waits(self, milliseconds: int) -> None:
        """Time passes; each event takes one millisecond more."""
        self._now_ns += milliseconds * 1_000_000

    def completes(
        self,
        *,
        stop: Iterable[str] = (),
        error: Iterable[str] = (),
        execute_ms: int | None = None,
        swap_ms: int = 0,
    ) -> None:
        """The step under way is done; those in `stop` drew a stop token, those in `error` had logits not finite."""
        assert self._plan is not None, "no step is under way"
        flags = {self.numbers[name]: FinishFlag.STOP for name in stop}
        flags |= {self.numbers[name]: FinishFlag.ERROR for name in error}
        plan = self._plan
        drawing = self._drawing_of(plan) if self._drawing is None else self._drawing
        execute_ns = self._step_ns(plan) if execute_ms is None else execute_ms * 1_000_000
        emitted, filled = [], []
        for number, start, count in plan.rows:
            request = self.core.requests.get(number)
            if request is None:  # cancelled while the step was under way
                continue
            size = self.limits.block_size
            first = max(start // size, request.num_prompt_tokens // size)
            filled += [(number, f"{number}:{index}".encode()) for index in range(first, (start + count) // size)]
            if number in drawing:
                emitted.append((number, flags.get(number, FinishFlag.NONE), 0, 0))
        self.on(StepCompleted(plan.step, tuple(emitted), tuple(filled), execute_ns, 0, swap_ms * 1_000_000))

    def launches(self) -> None:
        """The step under way goes to the device: the core may plan the next one."""
        assert self._plan is not None, "no step is under way"
        self._drawing = self._drawing_of(self._plan)
        self.on(StepLaunched(self._plan.step))

    def _drawing_of(self, plan: StepPlanned) -> frozenset[int]:
        """Whose rows reach their last known token."""
        live = self.core.requests
        return frozenset([n for n, start, count in plan.rows if n in live and start + count == live[n].num_tokens])

    def fails(self) -> None:
        assert self._plan is not None, "no step is under way"
        self.on(StepFailed(self._plan.step, "boom"))

    def on(self, event: Event) -> None:
        self._now_ns += 1_000_000
        if isinstance(event, StepCompleted | StepFailed):
            self._plan, self._ahead, self._drawing = self._ahead, None, None
        self.decisions = self.core.handle(event, self._now_ns)
        self.history += self.decisions
        if isinstance(event, KVMismatch) and self._plan is not None:
            self._plan = without_rows(self._plan, taken_out(self.decisions))
        for decision in self.decisions:
            if isinstance(decision, StepPlanned) and isinstance(event, StepLaunched):
                self._ahead = decision
            elif isinstance(decision, StepPlanned):
                self._plan = decision
        self.core.check_invariants()

    def runs_until_idle(self, max_steps: int = 500) -> list[Decision]:
        """Complete step after step; all decisions of all of them."""
        decisions: list[Decision] = []
        for _ in range(max_steps):
            if self._plan is None:
                return decisions
            self.completes()
            decisions += self.decisions
        raise AssertionError(f"still busy after {max_steps} steps")

    def all_told(self) -> list[str]:
        """The decisions of the last event, a line each."""
        return [self.told(decision) for decision in self.decisions]

    def expect(self, *expected: str) -> None:
        """The decisions of the last event, told as `told` tells them, are exactly these."""
        actual = self.all_told()
        assert actual == list(expected), "\n".join(["expected:", *expected, "decided:", *actual])

    def told(self, decision: Decision) -> str:
        """One line per decision, with names, reasons and figures."""
        name = {number: name for name, number in self.numbers.items()}
        match decision:
            case RequestRejected():
                return f"rejected {name[decision.request]}: {decision.reason} {decision.asked}/{decision.limit}"
            case RequestDeferred():
                behind = f" {name[decision.behind]}" if decision.behind >= 0 else ""
                blocks = f" {decision.num_blocks_needed}/{decision.num_blocks_free}" if not behind else ""
                kept = f" kept {decision.num_blocks_kept}" if decision.num_blocks_kept else ""
                return f"deferred {name[decision.request]}: {decision.reason}{behind}{blocks}{kept}"
            case RequestAdmitted():
                hits = f" hits {decision.num_hit_blocks}" if decision.num_hit_blocks else ""
                evicted = f" evicting {list(decision.evicted_blocks)}" if decision.evicted_blocks else ""
                copied = f" from host {list(decision.host_blocks)}" if decision.host_blocks else ""
                return f"admitted {name[decision.request]}: {list(decision.block_ids)}{hits}{copied}{evicted}"
            case RequestPreempted():
                return (
                    f"preempted {name[decision.request]} for {name[decision.for_request]}: {decision.reason}, "
                    f"{decision.num_blocks_freed} blocks, {decision.num_tokens_lost} tokens, chain {decision.chain}"
                    + (f" link {decision.chain_length}" if decision.chain_length > 1 else "")
                    + (f", to host {list(decision.host_blocks)}" if decision.host_blocks else "")
                )
            case StepPlanned():
                rows = " ".join(f"{name[number]}[{start}:{start + count}]" for number, start, count in decision.rows)
                new = "".join(f" {name[number]}+{block}" for number, block in decision.new_blocks)
                evicted = f" evicting {list(decision.evicted_blocks)}" if decision.evicted_blocks else ""
                return f"step {decision.step}: {rows}{new}{evicted}"
            case ThrashingBegan() | ThrashingEnded():
                what = "began" if isinstance(decision, ThrashingBegan) else "ended"
                return f"thrashing {what}: {decision.num_recomputed} of {decision.num_computed} tokens again"
            case AdmissionThrottled():
                return f"throttled: {decision.watermark_before} to {decision.watermark_blocks} blocks kept free"
            case PrefixIndexDropped():
                return f"index dropped for {decision.block}: {decision.num_blocks} blocks"
            case StarvationSeen():
                return (
                    f"starved {name[decision.request]}: {decision.cause}, {decision.num_passes_over} passes over, "
                    f"{decision.num_preemptions} preemptions, bound {decision.bound}"
                )
            case RequestDemoted():
                return f"demoted {name[decision.request]}: {decision.expected_ms}/{decision.target_ms} ms"
            case TokensEmitted():
                return "tokens " + " ".join(f"{name[number]}={count}" for number, count in decision.rows)
            case RequestFinished():
                return (
                    f"finished {name[decision.request]}: {decision.reason}, "
                    f"{decision.num_prompt_tokens}+{decision.num_output_tokens} tokens"
                )
