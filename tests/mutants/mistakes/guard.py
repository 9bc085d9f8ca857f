"""Mistakes in the starvation guard."""

from tests.mutants.mutation import Mutation

_PLANNER = "engine/core/planner.py"
_WAITING = "engine/core/waiting.py"

GUARD = (
    Mutation(
        "a protected request may be preempted",
        _PLANNER,
        "        return [request for request in self.running if not request.is_protected]\n",
        "        return self.running\n",
    ),
    Mutation(
        "protected requests are admitted beyond what they may grow to",
        _PLANNER,
        "if candidate.is_protected and num_reserved > self.limits.num_kv_blocks:",
        "if False:",
    ),
    Mutation(
        "the reservation of a protected request is never given back",
        _PLANNER,
        "                self._num_reserved_blocks -= self._most_blocks(request)\n",
        "                pass\n",
    ),
    Mutation(
        "the guard acts a pass too late",
        "engine/core/starvation.py",
        "return watched.num_passes_over >= self.max_passes_over",
        "return watched.num_passes_over > self.max_passes_over",
    ),
    Mutation(
        "the guard allows a preemption too many",
        "engine/core/starvation.py",
        "return request.num_preemptions >= self.max_preemptions",
        "return request.num_preemptions > self.max_preemptions",
    ),
    Mutation(
        "the youngest is watched instead of the oldest",
        _PLANNER,
        "if watched is None or watched.number > self._step.youngest_admitted:",
        "if watched is None or watched.number < self._step.youngest_admitted:",
    ),
    Mutation(
        "a protected request waits in its lane too",
        _WAITING,
        "        del self._unprotected[request.number]\n        self._leave_lane(request)\n        insort(",
        "        del self._unprotected[request.number]\n        insort(",
    ),
    Mutation(
        "a protected request loses its reservation with its first preemption",
        _PLANNER,
        "            victim.is_protected = True\n",
        "            victim.is_protected = False\n",
    ),
    Mutation(
        "preemptions do not count for the guard",
        _PLANNER,
        "        if self.guard.preempted(victim):\n",
        "        if False:\n",
    ),
)
