"""`State`: what can be read of the core behind one entry. Nothing in it may be changed; it is the reader's own copy."""

import sqlite3
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.core.decisions import StepPlanned
from engine.core.limits import Limits
from engine.core.policies.interface import PolicyFactory
from engine.core.request import Request
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from replay.time_machine.blocks import Block, Pool, blocks, pool
from replay.time_machine.tenants import Tenant, tenants
from replay.time_machine.waiting import Waiting, waiting


class Thrashing(NamedTuple):
    """
    watermark_blocks     kept free at an admission
    computed, recomputed tokens in the window
    """

    is_thrashing: bool
    watermark_blocks: int
    computed: int
    recomputed: int


@dataclass(frozen=True)
class State:
    """
    life, sequence   behind this entry of this engine process, counted from 1
    step             planned last; -1 before the first
    now_ns           the entry's; opened_ns: that the recording's times count from
    entry            None at a life's beginning
    core             to be read only
    """

    life: int
    sequence: int
    step: int
    now_ns: int
    opened_ns: int
    entry: Entry | None
    core: Core
    first_limits: Limits
    make_policy: PolicyFactory
    database: sqlite3.Connection

    @property
    def time_s(self) -> float:
        """Since the recording was opened."""
        return (self.now_ns - self.opened_ns) / 1e9

    @property
    def limits(self) -> Limits:
        """Those in force."""
        return self.core.limits

    @property
    def step_under_way(self) -> StepPlanned | None:
        return self.core.step_under_way

    @property
    def running(self) -> list[Request]:
        """In order of admission."""
        return list(self.core.planner.running)

    @property
    def requests(self) -> dict[int, Request]:
        """All live ones, by number; each has its `block_table`."""
        return self.core.requests

    def waiting(self) -> list[Waiting]:
        """In the order in which they would be admitted, each with its reason."""
        return waiting(self.core, self.first_limits, self.make_policy, self.database, self.life, self.sequence)

    def blocks(self) -> list[Block]:
        return blocks(self.core, self.database, self.life, self.sequence, max(self.step, 0))

    def pool(self) -> Pool:
        """The free list, the evictable blocks and the prefix index."""
        return pool(self.core)

    def tenants(self) -> list[Tenant]:
        return tenants(self.core)

    def thrashing(self) -> Thrashing:
        controller = self.core.planner.admission.thrash
        parts = vars(controller)["_parts"]
        computed, recomputed = (sum(part[place] for part in parts) for place in (0, 1))
        return Thrashing(controller.is_thrashing, controller.watermark_blocks, computed, recomputed)

    def find(self, name: str) -> Request | None:
        """A live request by its id, else by its number."""
        for request in self.requests.values():
            if request.request_id == name:
                return request
        return self.requests.get(int(name)) if name.isdecimal() else None

    def as_values(self) -> dict[str, Any]:
        """The scheduler's state in plain values, blocks in counts."""
        held, free = pool(self.core), self.core.pool.num_free
        under_way = self.step_under_way
        return {
            "life": self.life,
            "sequence": self.sequence,
            "step": self.step,
            "now_ns": self.now_ns,
            "time_s": self.time_s,
            "policy": self.limits.scheduling_policy,
            "running": [request.number for request in self.running],
            "waiting": [each.request for each in self.waiting()],
            "step_under_way": None if under_way is None else under_way._asdict(),
            "step_ahead": None if self.core.step_ahead is None else self.core.step_ahead._asdict(),
            "num_blocks": held.num_blocks,
            "num_blocks_free": free,
            "num_blocks_cached": len(held.evictable),
            "num_digests": len(held.block_of),
            "num_host_blocks_free": self.core.planner.swapping.host.num_free,
            "thrashing": self.thrashing()._asdict(),
            "tenants": [each._asdict() for each in self.tenants()],
            "limits": self.limits.to_dict(),
        }
