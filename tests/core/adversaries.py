"""Loads made to starve somebody, and how near they come to the bounds proved in `engine/core/starvation.py`.

Each adversary keeps the queue full of what its victim's policy prefers, for a thousand steps, in a pool that is too
small, then lets go. The core runs alone, with steps of a millisecond that emit for every row that may.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from engine.core.decisions import (
    Decision,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)
from engine.core.events import Event, RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.starvation import max_admitting_passes, max_wait_in_passes

NUM_STEPS = 1_000
STEP_NS = 1_000_000
LIMITS = Limits(
    block_size=2,
    num_kv_blocks=16,
    max_model_len=24,
    max_num_seqs=3,
    max_num_batched_tokens=8,
    max_num_queued_reqs=12,
    enable_prefix_caching=False,
    priority_aging_ns=10**12,
    ttft_target_ms=1_000,
    itl_target_ms=10,
    max_passes_over=5,
    max_preemptions=2,
    reserve_output="none",  # admission that looks ahead would spare the guard its work
)


@dataclass
class Life:
    """One request's fortune.

    num_older              live requests when it arrived
    num_admitting_passes   that admitted others while it waited
    longest_wait           in passes of any kind
    """

    number: int
    num_older: int
    num_admitting_passes: int = 0
    longest_wait: int = 0
    num_passes_over: int = 0
    num_preemptions: int = 0


class Drive:
    """A core and what its requests live through; each step ends a millisecond after it began."""

    def __init__(self, limits: Limits, *, follow_waiting: bool = True) -> None:
        """`follow_waiting` keeps the lives of those that wait up to date, at a cost for each of them in each pass."""
        self._follow_waiting = follow_waiting
        self.core = Core(limits)
        self.lives: dict[int, Life] = {}
        self.served: Counter[str] = Counter()  # tenant → prompt tokens of its admitted requests, and emitted tokens
        self.tenants: dict[int, str] = {}
        self.prompts: dict[int, int] = {}
        self._plan: StepPlanned | None = None
        self._waiting: set[int] = set()
        self._num_steps = 0
        self.now_ns = 0

    @property
    def num_waiting(self) -> int:
        return len(self.core.planner.waiting)

    def arrive(self, prompt: int, output: int, tenant: str = "t", priority: int = 0, ttft_target_ms: int = 0) -> int:
        number = len(self.lives)
        self.lives[number] = Life(number, len(self.core.requests))
        self.tenants[number] = tenant
        self.prompts[number] = prompt
        self._waiting.add(number)
        digests = tuple(b"%d:%d" % (number, index) for index in range(prompt // self.core.limits.block_size))
        name = f"r{number}"
        sampling = SamplingParams()
        self._handle(
            RequestArrived(
                number, name, tenant, priority, self.now_ns, prompt, output, digests, sampling, ttft_target_ms
            )
        )
        return number

    def step(self) -> bool:
        """Complete the step under way; False when there is none."""
        plan, self._plan = self._plan, None
        if plan is None:
            return False
        self.now_ns += STEP_NS
        size = self.core.limits.block_size
        emitted, filled = [], []
        for number, start, count in plan.rows:
            request = self.core.requests[number]
            first = max(start // size, request.num_prompt_tokens // size)
            filled += [(number, b"%d:%d" % (number, index)) for index in range(first, (start + count) // size)]
            if start + count == request.num_tokens:
                emitted.append((number, "", 0, 0))
        self._handle(StepCompleted(plan.step, tuple(emitted), tuple(filled), STEP_NS, 0))
        self._num_steps += 1
        return True

    def _handle(self, event: Event) -> None:
        decisions = self.core.handle(event, self.now_ns)
        admitted = [decision.request for decision in decisions if isinstance(decision, RequestAdmitted)]
        for decision in decisions:
            self._note(decision)
        if admitted and self._follow_waiting:
            for number in self._waiting:
                self.lives[number].num_admitting_passes += 1

    def _note(self, decision: Decision) -> None:
        match decision:
            case RequestAdmitted():
                life = self.lives[decision.request]
                life.longest_wait = max(life.longest_wait, decision.num_passes)
                if life.num_preemptions == 0:
                    self.served[self.tenants[decision.request]] += self.prompts[decision.request]
                self._waiting.discard(decision.request)
            case TokensEmitted():
                self.served.update(self.tenants[number] for number, _count in decision.rows)
            case RequestPreempted():
                self.lives[decision.request].num_preemptions += 1
                self._waiting.add(decision.request)
            case RequestFinished() | RequestRejected():
                self._waiting.discard(decision.request)
            case StepPlanned():
                self._plan = decision
                if self._follow_waiting:
                    self._count_passes_over()
            case _:
                pass

    def _count_passes_over(self) -> None:
        for number in self._waiting:
            self.lives[number].num_passes_over = self.core.requests[number].num_passes_over


Adversary = Callable[[Drive, random.Random], None]  # called before each step; may let requests arrive


def short_ones(drive: Drive, rng: random.Random) -> None:
    """Endless short requests against now and then a long one."""
    if rng.random() < 0.02:
        drive.arrive(14, 10)
    while drive.num_waiting < 6:
        drive.arrive(rng.randint(1, 2), rng.randint(1, 3))


def urgent_ones(drive: Drive, rng: random.Random) -> None:
    """Endless urgent requests, some of which need the whole pool, against patient ones."""
    if rng.random() < 0.05:
        drive.arrive(rng.randint(1, 8), 10, priority=9, ttft_target_ms=3_600_000)
    while drive.num_waiting < 5:
        drive.arrive(rng.choice([2, 2, 14]), rng.randint(1, 9), priority=rng.randint(0, 3), ttft_target_ms=2)


def flood(drive: Drive, rng: random.Random) -> None:
    """Ever new tenants, none of whom was ever served, against one that was; its own requests are long."""
    if rng.random() < 0.1:
        drive.arrive(12, 12, tenant="old", priority=5)
    while drive.num_waiting < 8:
        drive.arrive(rng.randint(1, 3), rng.randint(1, 4), tenant=f"new{len(drive.lives)}")


def growing_ones(drive: Drive, rng: random.Random) -> None:
    """Short prompts that all grow until the pool is out of blocks: as many preemptions as can be had."""
    while drive.num_waiting < 4:
        drive.arrive(rng.randint(1, 2), rng.randint(8, 22), tenant=rng.choice("abc"), priority=rng.randint(0, 9))


def anything(drive: Drive, rng: random.Random) -> None:
    for _ in range(rng.choice([0, 0, 1, 1, 4])):
        prompt = rng.randint(1, 20)
        output = rng.randint(1, 24 - prompt)
        drive.arrive(prompt, output, rng.choice("abcd"), rng.randint(0, 9), rng.choice([0, 1, 50, 10_000]))


ADVERSARIES: dict[str, Adversary] = {
    adversary.__name__: adversary for adversary in (short_ones, urgent_ones, flood, growing_ones, anything)
}


def attack(policy: str, adversary: Adversary, seed: int, num_steps: int = NUM_STEPS, **limits: Any) -> Drive:
    """The lives of all requests of one attack, each to its end."""
    rng = random.Random(seed)
    drive = Drive(replace(LIMITS, scheduling_policy=policy, **limits))
    for _ in range(num_steps):
        adversary(drive, rng)
        drive.step()
    while drive.step():
        pass
    assert not drive.core.requests
    return drive


@dataclass(frozen=True, slots=True)
class Worst:
    """How near an attack came, each figure with its bound; `wait` is of the life that came nearest to its own."""

    policy: str
    adversary: str
    passes_over: tuple[int, int]
    preemptions: tuple[int, int]
    admitting_passes: tuple[int, int]
    wait: tuple[int, int]


def worst_of(policy: str, name: str, drive: Drive) -> Worst:
    limits, lives = drive.core.limits, list(drive.lives.values())
    admitting = max(lives, key=lambda life: life.num_admitting_passes / max_admitting_passes(limits, life.num_older))
    waiting = max(lives, key=lambda life: life.longest_wait / max_wait_in_passes(limits, life.num_older))
    return Worst(
        policy,
        name,
        (max(life.num_passes_over for life in lives), limits.max_passes_over),
        (max(life.num_preemptions for life in lives), limits.max_preemptions),
        (admitting.num_admitting_passes, max_admitting_passes(limits, admitting.num_older)),
        (waiting.longest_wait, max_wait_in_passes(limits, waiting.num_older)),
    )


def attacks(policies: list[str], num_seeds: int, num_steps: int = NUM_STEPS) -> Iterator[Worst]:
    """Every adversary against every policy, the worst of so many seeds in each field."""
    for policy in policies:
        for name, adversary in ADVERSARIES.items():
            found = [worst_of(policy, name, attack(policy, adversary, seed, num_steps)) for seed in range(num_seeds)]
            yield Worst(
                policy,
                name,
                max(worst.passes_over for worst in found),
                max(worst.preemptions for worst in found),
                max((worst.admitting_passes for worst in found), key=lambda pair: pair[0] / pair[1]),
                max((worst.wait for worst in found), key=lambda pair: pair[0] / pair[1]),
            )
