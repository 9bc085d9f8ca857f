"""Mistakes in what those that run get of a step, and in who gives way."""

from tests.mutants.mutation import Mutation

_PLANNER = "engine/core/planner.py"
_AFTER_A_PREEMPTION = (
    "        self.running.remove(victim)\n        self.admission.running_changed()\n        self._step.forget(victim)\n"
)

RUNNING = (
    Mutation(
        "a block too few at a boundary",
        _PLANNER,
        "if num_tokens <= len(request.block_table) * block_size:",
        "if num_tokens <= len(request.block_table) * block_size + 1:",
    ),
    Mutation(
        "blocks are rounded down",
        _PLANNER,
        "return -(-num_tokens // self.limits.block_size)",
        "return num_tokens // self.limits.block_size",
    ),
    Mutation(
        "a victim stays in the step it was placed in",
        _PLANNER,
        "        self._step.forget(victim)\n",
        "",
    ),
    Mutation(
        "a victim's part of the budget is lost",
        _PLANNER,
        "self.prefill_tokens_left += self.rows.pop(request, 0)",
        "self.rows.pop(request, 0)",
    ),
    Mutation(
        "a victim's new blocks stay in the plan",
        _PLANNER,
        "        self.new_blocks.pop(request.number, None)\n",
        "",
    ),
    Mutation(
        "a decode that gave way is placed all the same",
        _PLANNER,
        "            if request.status is not Status.RUNNING:  # it has given way since\n                continue\n",
        "",
    ),
    Mutation(
        "a prefill that gave way is placed all the same",
        _PLANNER,
        "            if request.status is Status.RUNNING:\n                step.place_prefill(request)\n",
        "            step.place_prefill(request)\n",
    ),
    Mutation(
        "decodes are not taken off the budget",
        _PLANNER,
        "min(prefill_tokens, self.limits.max_num_batched_tokens - len(step.rows))",
        "min(prefill_tokens, self.limits.max_num_batched_tokens)",
    ),
    Mutation(
        "a preempted request keeps what it had computed",
        _PLANNER,
        f"        victim.num_computed_tokens = 0\n        victim.num_preemptions += 1\n{_AFTER_A_PREEMPTION}",
        f"        victim.num_preemptions += 1\n{_AFTER_A_PREEMPTION}",
    ),
    Mutation(
        "a preemption is not counted",
        _PLANNER,
        f"        victim.num_preemptions += 1\n{_AFTER_A_PREEMPTION}",
        _AFTER_A_PREEMPTION,
    ),
    Mutation(
        "a cascade's chain is not handed on",
        _PLANNER,
        "            beneficiary.chain, beneficiary.chain_length = chain, chain_length\n",
        "            beneficiary.chain = chain\n",
    ),
    Mutation(
        "a prefill is placed beyond the budget left",
        _PLANNER,
        "min(self.prefill_tokens_left, request.num_uncomputed_tokens)",
        "request.num_uncomputed_tokens",
    ),
    Mutation(
        "nobody computes when the phase on turn cannot",
        _PLANNER,
        "        if not self._step.rows:  # the phase",
        "        if False:  # the phase",
    ),
)
