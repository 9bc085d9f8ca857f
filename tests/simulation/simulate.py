"""One seeded run of the whole engine without weights: real loop, real core, an executor that fails, random load.

Clients arrive, in bursts or one by one, before or during a step; whoever reads the answers is slow now and then, so
that time passes between an entry and the next. Every entry is checked as it is published. Two runs of one seed are
equal, so a failing seed is a bug report: `python -m tests.simulation --seed N --mode MODE` performs it again.

    safety     faults come as long as there are steps: no promise may break
    liveness   faults end with the load: whoever is left must end within a bounded number of steps
"""

import random
from dataclasses import replace

from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.core.contents import TokenOutput
from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.events import FinishFlag
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.interface import Runner
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop
from engine.protocol import Arrive, Cancel, Drain, Message, Restarted, Stop
from tests.simulation.checks import Checks, Run, check_ends
from tests.simulation.faults import DIGEST_KEY, CountingRunner, Faults, FaultyRunner, LateWritingRunner
from tests.simulation.load import long_load_limits, random_limits, random_messages, with_swap_space

MODES = ("safety", "liveness")
NUM_LOADS = (2, 8, 8, 120)  # of a long run
FAULT_RATES = (0.0, 0.01, 0.01, 0.1)
HANDFULS = ((0, 0, 0, 1, 2, 8), (0, 0, 0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 8))  # messages that come in during a step
MOST_PREEMPTIONS = 6  # of a request: the highest bound that a load sets, and one more where it was lowered meanwhile
_SOLO_BLOCK_SIZE = 64


class SimulatedInbox:
    """Messages come one by one while the engine is idle, and in random handfuls while a step runs."""

    def __init__(self, rng: random.Random, messages: list[Message], clock: ManualClock, faults: Faults) -> None:
        self._rng = rng
        self._messages = [*messages, Drain()]
        self._clock = clock
        self._faults = faults
        self._handful = rng.choice(HANDFULS)
        self.faults_end = False

    def get(self) -> Message:
        self._clock.advance(self._rng.randrange(1, 5_000_000))
        return self._take(1)[0] if self._messages else Stop("the load is done")

    def drain(self) -> list[Message]:
        self._clock.advance(self._rng.randrange(1, 5_000_000))
        return self._take(self._rng.choice(self._handful))

    def _take(self, count: int) -> list[Message]:
        taken, self._messages = self._messages[:count], self._messages[count:]
        if not self._messages and self.faults_end:
            self._faults.rate = 0
        return taken


def simulate(
    seed: int,
    mode: str = "safety",
    *,
    fault_rate: float | None = None,
    runner: ScriptedRunner | None = None,
    plans_ahead: bool = False,
) -> Run:
    """Run the load of `seed` to its end, checking every entry. Raises AssertionError on a broken promise."""
    rng = random.Random(seed)
    limits = replace(with_swap_space(random_limits(rng), seed), async_scheduling=plans_ahead)
    messages = random_messages(rng)
    faults = Faults(rng, rng.choice(FAULT_RATES) if fault_rate is None else fault_rate)
    make = LateWritingRunner if plans_ahead else FaultyRunner
    executor = runner or make(limits.num_kv_blocks, limits.block_size, faults)
    return _run(rng, limits, messages, faults, executor, mode)


def simulate_counts(seed: int, mode: str = "safety", *, plans_ahead: bool = False) -> Run:
    """The same without contents and with a longer load: more steps a second, and nothing said about tokens."""
    rng = random.Random(f"counts/{seed}")
    limits = replace(with_swap_space(long_load_limits(rng), seed), async_scheduling=plans_ahead)
    messages: list[Message] = []
    for load in range(rng.choice(NUM_LOADS)):
        messages += _renumbered(random_messages(rng), len([m for m in messages if isinstance(m, Arrive)]), load)
    faults = Faults(rng, rng.choice(FAULT_RATES))
    return _run(rng, limits, messages, faults, CountingRunner(limits.block_size, faults), mode, blocks_every=16)


def _run(
    rng: random.Random,
    limits: Limits,
    messages: list[Message],
    faults: Faults,
    executor: Runner,
    mode: str,
    blocks_every: int = 1,
) -> Run:
    core, clock = Core(limits), ManualClock()
    run = Run(limits, core)
    run.arrivals = {message.request: message for message in messages if isinstance(message, Arrive)}
    checks = Checks(run, blocks_every)
    inbox = SimulatedInbox(rng, messages, clock, faults)
    inbox.faults_end = mode == "liveness"
    bound = _StepBound(run, faults) if mode == "liveness" else None

    def publish(entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        checks.publish(entry, outputs)
        if bound is not None:
            bound.count()
        if entry.sequence % 32 == 0:
            clock.advance(rng.choice((0, 1_000_000, 200_000_000)))  # a slow reader

    with capture_logs():  # simulated faults are logged, as real ones are
        EngineLoop(core, executor, clock, checks, publish).serve(inbox)
    check_ends(run)
    return run


class _StepBound:
    """Steps that may follow the last fault: each computes a token, and none is computed more often than its request
    is preempted and admitted. A step planned ahead may be of ended requests alone: one for each of them."""

    def __init__(self, run: Run, faults: Faults) -> None:
        self._run = run
        self._faults = faults
        self._last_step: int | None = None

    def count(self) -> None:
        if self._faults.rate > 0:
            return
        run = self._run
        if self._last_step is None:
            num_tokens = sum(len(a.contents.prompt_token_ids) + a.max_output_tokens for a in run.arrivals.values())
            num_futile = len(run.arrivals) if run.limits.async_scheduling else 0
            self._last_step = run.num_steps + num_tokens * (MOST_PREEMPTIONS + 1) + num_futile
        assert run.num_steps <= self._last_step, "no progress although the faults have ended"


def _renumbered(messages: list[Message], first: int, load: int) -> list[Message]:
    """A further load's messages, their requests numbered from `first` on; its engine is neither fresh nor drained."""
    renumbered: list[Message] = []
    for message in messages:
        if isinstance(message, Arrive):
            name = f"{message.request_id}-{load}"
            renumbered.append(message._replace(request=first + message.request, request_id=name))
        elif isinstance(message, Cancel):
            renumbered.append(message._replace(request=first + message.request))
        elif load == 0 or not isinstance(message, Restarted | Drain):
            renumbered.append(message)
    return renumbered


def solo_tokens(run: Run, request: int) -> tuple[list[int], list[int]]:
    """Tokens and digests of a request that has the engine to itself: a pool of its own, one prefill, no cache."""
    arrive = run.arrivals[request]
    num_tokens = len(arrive.contents.prompt_token_ids) + arrive.max_output_tokens
    num_blocks = -(-num_tokens // _SOLO_BLOCK_SIZE)
    runner = ScriptedRunner(num_blocks, _SOLO_BLOCK_SIZE, DIGEST_KEY)
    runner.add_request(0, arrive.sampling, arrive.contents)
    runner.carry_out(RequestAdmitted(0, tuple(range(num_blocks)), 0, (), num_blocks, 0))
    tokens: list[int] = []
    digests: list[int] = []
    start, count = 0, len(arrive.contents.prompt_token_ids)
    for step in range(arrive.max_output_tokens):
        completed, outputs, *_ = runner.execute(StepPlanned(step, ((0, start, count),), (), (), 1, 0, 0, 0))
        tokens.append(outputs[0].token_id)
        digests.append(completed.emitted[0][2])
        if completed.emitted[0][1] != FinishFlag.NONE:
            break
        start, count = start + count, 1
    return tokens, digests
