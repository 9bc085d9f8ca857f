"""One seeded run of the whole engine without weights: real loop, real core, scripted executor, random load.

Clients arrive, in bursts or one by one, before or during a step, share prefixes or not, leave at any moment; now and
then a step raises. Every entry is checked as it is published. Two runs of one seed are equal, so a failing seed is a
bug report.
"""

import random
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.core.admission import RESERVATIONS
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import (
    RequestAdmitted,
    RequestDemoted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StarvationSeen,
    StepPlanned,
    TokensEmitted,
)
from engine.core.events import FinishFlag, PolicyChanged, RequestCancelled, StepCompleted, StepFailed
from engine.core.limits import Limits
from engine.core.phases.registry import PHASES_NAMES
from engine.core.policies.registry import POLICY_NAMES
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.interface import StepResult
from engine.execution.scripted import SCRIPTED_VOCABULARY, ScriptedRunner
from engine.loop import EngineLoop, RecordSink
from engine.protocol import Arrive, Cancel, ChangePolicy, Drain, Message, Stop

DIGEST_KEY = b"simulated-salt--"


@dataclass
class Run:
    """What a simulated run left behind."""

    limits: Limits
    core: Core
    entries: list[Entry] = field(default_factory=list)
    arrivals: dict[int, Arrive] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)  # as clients received them
    digests: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, list[RequestFinished | RequestRejected]] = field(default_factory=dict)
    num_preemptions: int = 0
    num_hits: int = 0
    num_cancelled_in_step: int = 0
    num_failed_steps: int = 0
    num_policy_changes: int = 0
    num_starved: int = 0
    num_demoted: int = 0


def random_limits(rng: random.Random) -> Limits:
    max_num_seqs = rng.randint(1, 8)
    block_size = rng.choice([1, 2, 3, 4, 8, 16])
    return Limits(
        block_size=block_size,
        num_kv_blocks=max(2, rng.randint(30, 200) // block_size),
        max_model_len=rng.choice([30, 100, 200]),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + rng.choice([0, 1, 5, 30, 200]),
        max_num_queued_reqs=rng.choice([2, 10, 100]),
        scheduling_policy=rng.choice(POLICY_NAMES),
        enable_prefix_caching=rng.random() < 0.7,
        priority_aging_ns=rng.choice([1, 1_000_000, 10_000_000_000]),
        tenant_weights=rng.choice([(), (("a", 3), ("b", 1))]),
        ttft_target_ms=rng.choice([1, 20, 2_000]),
        itl_target_ms=rng.choice([1, 200]),
        max_passes_over=rng.choice([1, 3, 64]),
        max_preemptions=rng.choice([1, 2, 5]),
        scheduling_phases=rng.choice(PHASES_NAMES),
        watermark_permille=rng.choice([0, 0, 10, 300]),
        reserve_output=rng.choice(["none", "none", *RESERVATIONS]),
        thrash_bound_permille=rng.choice([0, 1, 100]),
        max_num_queued_tokens=rng.choice([0, 0, 60]),
        max_num_queued_reqs_per_tenant=rng.choice([0, 0, 2]),
        max_num_queued_tokens_per_tenant=rng.choice([0, 0, 40]),
        mixed_step_target_ms=rng.choice([1, 5, 50]),
        min_prefill_tokens=rng.choice([1, 7, 32]),
        prefill_share_permille=rng.choice([1, 300, 500, 999]),
    )


def random_messages(rng: random.Random, limits: Limits) -> list[Message]:
    """Arrivals and cancels in a random order; a cancel may come for anybody who came before it."""
    prefixes = [[rng.randrange(SCRIPTED_VOCABULARY) for _ in range(rng.randint(1, 40))] for _ in range(3)]
    messages: list[Message] = []
    num_arrivals = 0
    for _ in range(rng.randint(1, 30)):
        if num_arrivals and rng.random() < 0.2:
            messages.append(Cancel(rng.randrange(num_arrivals), rng.choice(["client", "client", "drain"])))
            continue
        if rng.random() < 0.05:
            bounds = (("max_preemptions", rng.randint(1, 4)), ("tenant_weights", (("c", 2),)))
            messages.append(ChangePolicy(rng.choice([*POLICY_NAMES, "lottery"]), rng.choice([(), bounds])))
            continue
        shared = rng.choice(prefixes) if rng.random() < 0.5 else []
        prompt = shared + [rng.randrange(SCRIPTED_VOCABULARY) for _ in range(rng.randint(1, 30))]
        max_output_tokens = rng.randint(1, 60)
        contents = RequestContents(tuple(prompt), (rng.randrange(SCRIPTED_VOCABULARY),))
        sampling = SamplingParams(
            seed=rng.randrange(2**63), min_tokens=rng.randint(0, max_output_tokens), ignore_eos=rng.random() < 0.5
        )
        messages.append(
            Arrive(
                num_arrivals,
                f"request-{num_arrivals}",
                rng.choice("abc"),
                rng.randint(0, 9),
                0,
                max_output_tokens,
                sampling,
                contents,
                rng.choice([0, 1, 30]),
                rng.choice([0, 50]),
                rng.choice([0, 0, rng.randrange(1, 200_000_000)]),
            )
        )
        num_arrivals += 1
    return messages


class _Faulty(ScriptedRunner):
    """Raises now and then, before anything is computed."""

    def __init__(self, rng: random.Random, fault_rate: float, limits: Limits) -> None:
        super().__init__(limits.num_kv_blocks, limits.block_size, DIGEST_KEY)
        self._rng = rng
        self._fault_rate = fault_rate

    def execute(self, plan: StepPlanned) -> StepResult:
        if self._rng.random() < self._fault_rate:
            raise RuntimeError("simulated fault")
        result = super().execute(plan)
        num_tokens = sum(count for _request, _start, count in plan.rows)
        step_ns = num_tokens * self._rng.choice([0, 100_000, 100_000, 120_000, 5_000_000])
        return result._replace(completed=result.completed._replace(execute_ns=step_ns))


class _SimulatedInbox:
    """Messages come one by one while the engine is idle, and in random handfuls while a step runs."""

    def __init__(self, rng: random.Random, messages: list[Message], clock: ManualClock) -> None:
        self._rng = rng
        self._messages = [*messages, Drain()]
        self._clock = clock

    def get(self) -> Message:
        self._clock.advance(self._rng.randrange(1, 5_000_000))
        return self._messages.pop(0) if self._messages else Stop("the load is done")

    def drain(self) -> list[Message]:
        self._clock.advance(self._rng.randrange(1, 5_000_000))
        count = self._rng.choice([0, 0, 0, 1, 2, 8])
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken


class _Checks:
    """The record sink and subscriber of a run: checks each entry against the core's state and the promises."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._under_way: set[int] = set()

    def record(self, entry: Entry) -> None:
        self._run.entries.append(entry)

    def record_contents(self, request: int, contents: RequestContents) -> None:
        pass

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None:
        pass

    def publish(self, entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        run = self._run
        self._check_blocks()
        emitted = [row for d in entry.decisions if isinstance(d, TokensEmitted) for row in d.rows]
        assert [output.request for output in outputs] == [request for request, _count in emitted]
        if isinstance(entry.event, StepCompleted | StepFailed):
            self._under_way = set()
        run.num_policy_changes += isinstance(entry.event, PolicyChanged)
        digests = {row[0]: row for row in getattr(entry.event, "emitted", ())}
        for output, (request, count) in zip(outputs, emitted, strict=True):
            tokens = run.tokens.setdefault(request, [])
            tokens.append(output.token_id)
            run.digests.setdefault(request, []).append(digests[request][2])
            assert len(tokens) == count
        for decision in entry.decisions:
            match decision:
                case RequestFinished() | RequestRejected():
                    run.ends.setdefault(decision.request, []).append(decision)
                    in_step = isinstance(entry.event, RequestCancelled) and decision.request in self._under_way
                    run.num_cancelled_in_step += in_step
                case RequestPreempted():
                    run.num_preemptions += 1
                case StarvationSeen():
                    run.num_starved += 1
                case RequestDemoted():
                    run.num_demoted += 1
                case RequestAdmitted():
                    run.num_hits += decision.num_hit_blocks
                case StepPlanned():
                    self._check_plan(decision, {d.request for d in entry.decisions if isinstance(d, RequestPreempted)})

    def _check_blocks(self) -> None:
        """No block lost, none owned by more requests than it is counted for."""
        core = self._run.core
        core.pool.check_invariants()
        held: dict[int, int] = {}
        for request in core.requests.values():
            assert len(set(request.block_table)) == len(request.block_table)
            for block in request.block_table:
                held[block] = held.get(block, 0) + 1
        assert held == {b: c for b, c in enumerate(core.pool._reference_counts) if c > 0}

    def _check_plan(self, plan: StepPlanned, preempted: set[int]) -> None:
        limits, core = self._run.limits, self._run.core
        counts = {request: count for request, _start, count in plan.rows}
        assert len(counts) == len(plan.rows) <= limits.max_num_seqs
        assert sum(counts.values()) + plan.token_budget_left == limits.max_num_batched_tokens
        assert plan.token_budget_left >= 0
        assert not preempted & set(counts), "a step lists a request that it preempts"
        decoding = {r.number for r in core.planner.running if r.num_uncomputed_tokens == 1}
        if limits.scheduling_phases in ("adaptive", "chunked"):
            assert decoding <= set(counts), "a running decode is left out of a step"
        for request, start, count in plan.rows:
            held = core.requests[request]
            assert count >= 1
            assert start == held.num_computed_tokens
            assert len(held.block_table) * limits.block_size >= start + count
        self._under_way = set(counts)


def simulate(seed: int, *, fault_rate: float = 0.01, runner: ScriptedRunner | None = None) -> Run:
    """Run the load of `seed` to its end, checking every entry. Raises AssertionError on a broken promise."""
    rng = random.Random(seed)
    limits = random_limits(rng)
    core = Core(limits)
    run = Run(limits, core)
    checks = _Checks(run)
    sink: RecordSink = checks
    clock = ManualClock()
    messages = random_messages(rng, limits)
    run.arrivals = {message.request: message for message in messages if isinstance(message, Arrive)}
    executor = runner or _Faulty(rng, fault_rate, limits)
    with capture_logs():  # simulated faults are logged, as real ones are
        EngineLoop(core, executor, clock, sink, checks.publish).serve(_SimulatedInbox(rng, messages, clock))
    run.num_failed_steps = sum(type(entry.event).__name__ == "StepFailed" for entry in run.entries)
    check_ends(run)
    return run


def check_ends(run: Run) -> None:
    """Every request that arrived has exactly one end; nothing is left in the core."""
    assert dict.fromkeys(run.arrivals, 1) == {request: len(ends) for request, ends in run.ends.items()}
    assert run.core.is_drained
    assert run.core.pool.num_free == run.limits.num_kv_blocks
    for request, (end,) in run.ends.items():
        if isinstance(end, RequestFinished):
            assert end.num_output_tokens == len(run.tokens.get(request, []))


def solo_tokens(run: Run, request: int) -> tuple[list[int], list[int]]:
    """Tokens and digests of a request that has the engine to itself: a pool of its own, one prefill, no cache."""
    arrive = run.arrivals[request]
    num_tokens = len(arrive.contents.prompt_token_ids) + arrive.max_output_tokens
    runner = ScriptedRunner(num_tokens, 1, DIGEST_KEY)
    runner.add_request(0, arrive.sampling, arrive.contents)
    runner.carry_out(RequestAdmitted(0, tuple(range(num_tokens)), 0, (), num_tokens, 0))
    tokens: list[int] = []
    digests: list[int] = []
    start, count = 0, len(arrive.contents.prompt_token_ids)
    for step in range(arrive.max_output_tokens):
        completed, outputs = runner.execute(StepPlanned(step, ((0, start, count),), (), (), 1, 0, 0, 0))
        tokens.append(outputs[0].token_id)
        digests.append(completed.emitted[0][2])
        if completed.emitted[0][1] != FinishFlag.NONE:
            break
        start, count = start + count, 1
    return tokens, digests
