"""Fair: the tenant who was served least, by its weight, goes first; within a tenant, the order of arrival.

Every tenant has a counter of the service it got: each prompt token computed at first admission costs
`prefill_token_price`, each emitted token `decode_token_price`, divided by the tenant's weight. Tokens found in the
prefix cache cost nothing, and neither does what a preemption or an engine's death makes the engine compute again: it
is not the tenant's doing. A tenant that has nobody waiting gathers no credit: when its next request arrives, its
counter is lifted to the lowest of those that wait, or, when nobody waits, to that of the tenant who left the queue
last. Under pressure the newest running request of the tenant with the highest counter gives way.

**Bound.** While two tenants both have requests waiting, the counter of either is at most U above the other's,
U = (w_p + w_q n) M / weight, with w_p, w_q the prices, M = max_model_len, n = max_num_seqs: when one of its requests
was last admitted its counter was not the higher one; the admission cost at most w_p M, and what it then had running
emits at most n M tokens. So over any stretch in which both are backlogged the services they get, by weight, differ by
at most 2 U, however many requests either sends (but for what the starvation guard lets through, one admission in
max_passes_over + 1 at most). For a request's own wait and preemptions the theorem in `starvation.py` holds: with O
older live requests at most A = (O + 1) B + O (N + 1) passes admit others first, at most (A + 1) W pass in all, and
nobody is preempted more than N times (B = max_passes_over, N = max_preemptions).

Counters are integers, in units of 1 / `SCALE` of a token's price at weight 1; a charge is rounded by less than one.

Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, algorithm 2 (virtual token counter).
"""

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace, nlargest
from typing import Any

from engine.core.decisions import FinishReason
from engine.core.limits import Limits
from engine.core.policies.interface import Policy
from engine.core.request import Request

SCALE = 1_000_000
MAX_HANDED_OVER = 1_000  # counters that the next engine is told
MAX_IDLE_TENANTS = 10_000  # beyond it the counters of idle tenants are forgotten, the least served first


class FairShare(Policy):
    name = "fair"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.counters: dict[str, int] = {}  # tenant → service, scaled
        self._weights = dict(limits.tenant_weights)
        self._token_costs: dict[str, int] = {}  # tenant → cost of an emitted token
        self._num_waiting: dict[str, int] = {}  # tenants with requests in the queue, and how many
        self._num_live: dict[str, int] = {}
        self._heap: list[
            tuple[int, str]
        ] = []  # (counter when pushed, tenant); counters only rise: re-keyed when on top
        self._in_heap: dict[str, None] = {}
        self._left_last = ""  # the tenant whose request left the queue last

    def lane(self, request: Request) -> str:
        return request.tenant

    def first_lane(self) -> str:
        """The tenant with the least counter of those that wait; among equals the first by name."""
        heap = self._heap
        while True:
            counter, tenant = heap[0]
            current = self.counters[tenant]
            if tenant not in self._num_waiting:
                heappop(heap)
                del self._in_heap[tenant]
            elif counter != current:
                heapreplace(heap, (current, tenant))
            else:
                return tenant

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        return ()

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        return max(running, key=lambda request: (self.counters[request.tenant], request.number))

    def on_arrived(self, request: Request, now_ns: int) -> None:
        tenant = request.tenant
        self._num_live[tenant] = self._num_live.get(tenant, 0) + 1
        if tenant not in self.counters:
            self._meet(tenant)
        if tenant not in self._num_waiting:
            self.counters[tenant] = max(self.counters[tenant], self._floor())

    def take_over(self, before: Policy) -> None:
        """Service counts on, under other weights or prices too: what it cost then, it has cost."""
        if isinstance(before, FairShare):
            for tenant, counter in before.counters.items():
                self._count_from(tenant, counter)
            self._left_last = before._left_last

    def to_hand_over(self) -> tuple[tuple[Any, ...], ...]:
        """The counters of those served most, for whoever was served little loses nothing; who left the queue last
        stands last."""
        most = nlargest(MAX_HANDED_OVER, [(counter, tenant) for tenant, counter in self.counters.items()])
        rows = [(tenant, counter) for counter, tenant in most if tenant != self._left_last]
        if self._left_last in self.counters:
            rows.append((self._left_last, self.counters[self._left_last]))
        return tuple(rows)

    def go_on_from(self, counted: Sequence[tuple[Any, ...]]) -> None:
        for tenant, counter in counted:
            self._count_from(tenant, max(counter, self.counters.get(tenant, 0)))
            self._left_last = tenant

    def on_queued(self, request: Request, now_ns: int) -> None:
        tenant = request.tenant
        if tenant in self._num_waiting:
            self._num_waiting[tenant] += 1
            return
        self._num_waiting[tenant] = 1
        if tenant not in self._in_heap:
            self._in_heap[tenant] = None
            heappush(self._heap, (self.counters[tenant], tenant))

    def on_left_queue(self, request: Request) -> None:
        tenant = self._left_last = request.tenant
        self._num_waiting[tenant] -= 1
        if not self._num_waiting[tenant]:
            del self._num_waiting[tenant]

    def on_admitted(self, request: Request, now_ns: int) -> None:
        if request.num_preemptions == 0 and request.num_output_tokens == 0:
            self._charge(request, self.limits.prefill_token_price * request.num_uncomputed_tokens)

    def on_step(self, emitting: Sequence[Request], step_ns: int, now_ns: int) -> None:
        counters, costs = self.counters, self._token_costs
        for request in emitting:
            counters[request.tenant] += costs[request.tenant]

    def on_finished(self, request: Request, reason: FinishReason) -> None:
        self._num_live[request.tenant] -= 1
        if not self._num_live[request.tenant]:
            del self._num_live[request.tenant]

    def _charge(self, request: Request, price: int) -> None:
        self.counters[request.tenant] += price * SCALE // self._weights.get(request.tenant, 1)

    def _floor(self) -> int:
        """What an idle tenant is lifted to."""
        if self._num_waiting:
            return self.counters[self.first_lane()]
        return self.counters.get(self._left_last, 0)

    def _meet(self, tenant: str) -> None:
        """A tenant not seen before, or forgotten, gets a counter."""
        if len(self.counters) - len(self._num_live) >= MAX_IDLE_TENANTS:
            self._forget_idle()
        self._count_from(tenant, 0)

    def _count_from(self, tenant: str, counter: int) -> None:
        self.counters[tenant] = counter
        self._token_costs[tenant] = self.limits.decode_token_price * SCALE // self._weights.get(tenant, 1)

    def _forget_idle(self) -> None:
        """Forget half of the idle: those that would be lifted anyway first, for they lose nothing."""
        kept = dict.fromkeys((*self._num_live, *self._in_heap, self._left_last))
        idle = sorted((counter, tenant) for tenant, counter in self.counters.items() if tenant not in kept)
        for _counter, tenant in idle[: MAX_IDLE_TENANTS // 2]:
            del self.counters[tenant], self._token_costs[tenant]
