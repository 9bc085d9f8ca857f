"""Mistakes in the policies and in the ways to mix phases."""

from tests.mutants.mutation import Mutation

_POLICIES = "engine/core/policies"
_PLANNER = "engine/core/planner.py"

POLICIES = (
    Mutation(
        "aging works backwards",
        f"{_POLICIES}/priority.py",
        "request.arrival_ns + request.priority * self.limits.priority_aging_ns",
        "request.arrival_ns - request.priority * self.limits.priority_aging_ns",
    ),
    Mutation(
        "the urgent preempt their own class",
        f"{_POLICIES}/priority.py",
        "if r.priority > candidate.priority and",
        "if r.priority >= candidate.priority and",
    ),
    Mutation(
        "an idle tenant saves up credit",
        f"{_POLICIES}/fair.py",
        "            self.counters[tenant] = max(self.counters[tenant], self._floor())\n",
        "            pass\n",
    ),
    Mutation(
        "emitted tokens cost nothing",
        f"{_POLICIES}/fair.py",
        "            counters[request.tenant] += costs[request.tenant]\n",
        "            pass\n",
    ),
    Mutation(
        "what is computed again is charged again",
        f"{_POLICIES}/fair.py",
        "        if request.num_preemptions == 0",
        "        if True or request.num_preemptions == 0",
    ),
    Mutation(
        "lengths are never learned",
        f"{_POLICIES}/shortest.py",
        "        if reason in _OWN_ENDS:\n",
        "        if False:\n",
    ),
    Mutation(
        "nobody is demoted",
        f"{_POLICIES}/deadline.py",
        "            if expected_ns > due_ns:\n",
        "            if False:\n",
    ),
    Mutation(
        "a prefill takes no longer than the steps beside it",
        f"{_POLICIES}/deadline.py",
        "return num_steps * beside_ns + step_times.prefill_ns(request.num_swapped_tokens, num_uncomputed)",
        "return num_steps * beside_ns",
    ),
    Mutation(
        "steps are predicted from a single sample",
        f"{_POLICIES}/deadline.py",
        "        if not step_times.is_reliable:\n",
        "        if False:\n",
    ),
    Mutation(
        "who lies in the host pool is expected to compute it all",
        f"{_POLICIES}/deadline.py",
        "num_uncomputed = request.num_uncomputed_tokens - request.num_swapped_tokens",
        "num_uncomputed = request.num_uncomputed_tokens",
    ),
    Mutation(
        "the stream that is due first gives way",
        f"{_POLICIES}/deadline.py",
        "return max(running, key=lambda request: (self.due_ns(request), request.number))",
        "return min(running, key=lambda request: (self.due_ns(request), request.number))",
    ),
    Mutation(
        "every next token is due when the first is",
        f"{_POLICIES}/deadline.py",
        "(ttft_ms + request.num_output_tokens * itl_ms)",
        "(ttft_ms + itl_ms)",
    ),
    Mutation(
        "the most patient stream sets the step",
        "engine/core/phases/adaptive.py",
        "return min([request.itl_target_ms",
        "return max([request.itl_target_ms",
    ),
    Mutation(
        "a stream's own target is ignored",
        "engine/core/phases/adaptive.py",
        "request.itl_target_ms or default_ms",
        "default_ms",
    ),
    Mutation(
        "a change of parameters does not reach the phases",
        _PLANNER,
        "        self.phases.change_limits(limits)\n",
        "",
    ),
    Mutation(
        "a change of parameters forgets the service",
        _PLANNER,
        "            policy.take_over(before)\n",
        "            pass\n",
    ),
    Mutation(
        "who left the queue last is forgotten with the parameters",
        f"{_POLICIES}/fair.py",
        "            self._left_last = before._left_last\n",
        "",
    ),
    Mutation(
        "a demotion outlives the wait",
        f"{_POLICIES}/deadline.py",
        "        self._demoted.pop(request.number, None)\n",
        "        pass\n",
    ),
    Mutation(
        "the floor of a chunk is forgotten",
        "engine/core/phases/adaptive.py",
        "return StepShare(max(self._limits.min_prefill_tokens, num_tokens))",
        "return StepShare(num_tokens)",
    ),
    Mutation(
        "prefill's share is decode's",
        "engine/core/phases/pools.py",
        "max(1, step_ns) * (1000 - self._prefill_share)",
        "max(1, step_ns) * self._prefill_share",
    ),
    Mutation(
        "a weight may be negative",
        "engine/core/step_time.py",
        "weights[i] = max(0, weights[i] + rest // products[i])",
        "weights[i] = weights[i] + rest // products[i]",
    ),
)
