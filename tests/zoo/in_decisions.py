"""Bugs in what is decided: seen in the entries alone, so the executor without weights serves the load."""

from tests.zoo.bug import Bug, limits, patch
from tests.zoo.loads import Load

_PLANNER = "engine/core/planner.py"
_SCHEDULER = "engine/core/scheduler.py"
_DEADLINES = "engine/core/deadlines.py"
_OVERTAKEN = (
    "expr:next((a.request for a in requests for b in requests if a.priority == b.priority and a.request < b.request "
    "and b.first_admitted_ns and any(type(d).__name__ == 'RequestPreempted' and t < b.first_admitted_ns and not "
    "any(type(e).__name__ == 'RequestAdmitted' and t < u <= b.first_admitted_ns for u, e in a.history) "
    "for t, d in a.history)), False)"
)


IN_DECISIONS = (
    Bug(
        "priority-preemption-loses-its-place",
        "a preempted request is ranked as if it had arrived when it was preempted",
        "vllm#41951, vllm#56843",
        (
            patch(
                _PLANNER,
                "        victim.chain, victim.chain_length = -1, 0\n",
                "        victim.chain, victim.chain_length = -1, 0\n        victim.arrival_ns = self._now_ns\n",
            ),
        ),
        Load(
            limits(scheduling_policy="priority", num_kv_blocks=34, priority_aging_ns=100_000_000),
            num_requests=30,
            gap_ms=12,
            classes=3,
            output=(8, 30),
        ),
        False,
        _OVERTAKEN,
        "show {rec} --request {request}",
        "check",
        "Some long answers stall for seconds while requests of the same class that came later are served.",
        "The request's story shows it preempted and then waiting behind requests of its class with higher numbers. A "
        "build with the mistake mended decides otherwise on the shrunk recording, and `check` says where.",
    ),
    Bug(
        "clock-dependent-timeout",
        "whether a request has waited too long is decided by the process's own clock, not by the time of the event",
        "sglang#27221",
        (
            patch(
                _DEADLINES,
                "from heapq import heappop, heappush\n",
                "import time\nfrom heapq import heappop, heappush\n",
            ),
            patch(
                _DEADLINES,
                "            heappush(self._heap, (request.deadline_ns, request.number, request))\n",
                "            heappush(self._heap, (request.deadline_ns, request.number, request))\n"
                "            if not hasattr(self, 'ahead_ns'):\n"
                "                self.ahead_ns = request.arrival_ns - time.monotonic_ns()\n",
            ),
            patch(
                _DEADLINES,
                "        while 0 < self.next_ns <= now_ns:\n",
                "        while 0 < self.next_ns <= time.monotonic_ns() + self.ahead_ns:\n",
            ),
        ),
        Load(limits(max_num_seqs=2), num_requests=24, gap_ms=16, deadline_ms=60, output=(4, 16)),
        False,
        "diverges",
        "check {rec}",
        "diverging check",
        "Two replicas with the same requests part ways: one times a request out, the other serves it.",
        "A core that is a function of its events repeats itself. This one does not: fed the same events, at once "
        "instead of over a second, it lets the request live. `check` stops at that very decision.",
        at_pace=True,
    ),
    Bug(
        "order-of-a-set",
        "who computes first, and so takes the last block, is the order of a set of names, which each process shuffles",
        "",
        (
            patch(
                _PLANNER,
                "        for request in self.running:\n            (decodes if",
                "        by_name = {request.request_id: request for request in self.running}\n"
                "        for request in [by_name[name] for name in set(by_name)]:\n            (decodes if",
            ),
        ),
        Load(limits(), num_requests=16, gap_ms=40, output=(1, 8)),
        False,
        "diverges",
        "check {rec}",
        "diverging check",
        "The same load has other victims under pressure after each restart.",
        "`check` is another process, with another hash seed, and so orders the set otherwise: it names the step and "
        "its rows. Any two requests that run together are enough.",
    ),
    Bug(
        "admission-stops-for-good",
        "blocks reserved for a request that may not be preempted again are not given back when its client leaves",
        "vllm#53130",
        (
            patch(
                _PLANNER,
                "            if request.is_protected:\n                self._num_reserved_blocks -= self._most",
                "            if request.is_protected and reason is not FinishReason.CANCELLED:\n"
                "                self._num_reserved_blocks -= self._most",
            ),
            patch(_PLANNER, " assert num_left == 0, ", " assert num_left == 0 or not self.running, "),
        ),
        Load(
            limits(num_kv_blocks=16, max_num_seqs=4, max_preemptions=1),
            num_requests=40,
            gap_ms=30,
            leaving=25,
            leaves_ms=120,
            output=(8, 40),
        ),
        False,
        "invariant-broken",
        "show {rec} --request {request}",
        "check",
        "Running 0, waiting 14, the KV cache all but empty, /health 200: after some days nothing is admitted any more, "
        "and only a restart helps.",
        "The head of the queue is told reserved_blocks while nobody runs who could have them. Shrinking leaves whoever "
        "took them: a request that had been preempted, came back, and left.",
    ),
    Bug(
        "over-admission",
        "cached blocks that a request is about to share count as free for it, too",
        "sglang#39271",
        (
            patch(
                _PLANNER,
                "num_taken = num_blocks - len(hits) + self.pool.num_evictable_among(hits)",
                "num_taken = num_blocks - len(hits)",
            ),
        ),
        Load(limits(num_kv_blocks=30, max_num_seqs=4), num_requests=20, gap_ms=30, prefix=40, prompt=(1, 40)),
        False,
        "engine-dies",
        "check {rec}",
        "check",
        "The engine dies now and then with a KeyError out of the block pool, under a load that it has served a hundred "
        "times.",
        "The recording ends with the event that killed it, and `check` dies of the same. What is left is a request "
        "whose prefix is cached, and so few other free blocks that the cached ones had to count twice.",
    ),
    Bug(
        "lost-wake-up",
        "a step of which nothing came, since its clients had left, does not wake those who wait",
        "vllm#45414",
        (
            patch(
                _SCHEDULER,
                "        if self._step_under_way is None:\n            self._plan(decisions, now_ns)\n",
                "        is_news = decisions or self.planner.running or type(event) is not StepCompleted\n"
                "        if self._step_under_way is None and is_news:\n            self._plan(decisions, now_ns)\n",
            ),
        ),
        Load(limits(max_num_seqs=2), num_requests=30, gap_ms=20, leaving=45, leaves_ms=25, output=(4, 20)),
        False,
        "invariant-broken",
        "show {rec} --request {request}",
        "check",
        "At night, with little traffic, a request sometimes hangs until the next one comes.",
        "The waiting request's story ends with a deferral, and no step follows. What is left after shrinking: those "
        "who ran and left during one step, and the one who waited.",
    ),
)
