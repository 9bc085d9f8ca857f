"""Adaptive chunks: prefill gets what the streams beside it can spare of their target gap between two tokens.

Every decode has its token in every step. The prefill beside them is as large as the step-time model says fits into the
shortest ITL target among them (their own, or `itl_target_ms`), but never less than `min_prefill_tokens`, so that a
prompt comes to its end in a bounded number of steps however slow the machine is or hasty a stream; where the decodes
alone take the target or more, that floor is what makes the gap longer. Until a prefill has been measured the whole
budget is given, as `chunked` does.
"""

from collections.abc import Sequence

from engine.core.limits import Limits
from engine.core.phases.interface import Phases, StepShare
from engine.core.request import Request
from engine.core.step_time import StepTimeModel

_NS_PER_MS = 1_000_000


class Adaptive(Phases):
    name = "adaptive"

    def __init__(self, limits: Limits, step_times: StepTimeModel) -> None:
        self._limits = limits
        self._step_times = step_times

    def share(self, decodes: Sequence[Request], prefills: Sequence[Request], token_budget: int) -> StepShare:
        step_times = self._step_times
        if not step_times.knows_prefill:
            return StepShare(token_budget)
        decode_context = sum([request.num_computed_tokens for request in decodes]) + len(decodes)
        spare_ns = self._target_ns(decodes) - step_times.decode_ns(len(decodes), decode_context)
        start = prefills[0].num_computed_tokens if prefills else 0
        num_tokens = step_times.prefill_tokens_within(spare_ns, start, token_budget)
        return StepShare(max(self._limits.min_prefill_tokens, num_tokens))

    def change_limits(self, limits: Limits) -> None:
        self._limits = limits

    def _target_ns(self, decodes: Sequence[Request]) -> int:
        """What the most hasty of the streams allows a step."""
        if self._limits.mixed_step_target_ms:
            return self._limits.mixed_step_target_ms * _NS_PER_MS
        default_ms = self._limits.itl_target_ms
        return min([request.itl_target_ms or default_ms for request in decodes]) * _NS_PER_MS
