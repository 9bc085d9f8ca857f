"""Thrashing: when too much of what is computed was computed before, admission is held back until it is not.

Preempted requests compute their tokens again. The share of such tokens is taken over a sliding window of
WINDOW_PARTS × PART_TOKENS computed tokens, in integers, and looked at whenever a part is full:

- above `thrash_bound_permille` it is thrashing (`ThrashingBegan`), and below half of that no more (`ThrashingEnded`):
  between the two nothing changes, so the state does not flicker;
- with each part that finds it thrashing and computed something again, the watermark of free blocks is doubled, from
  FIRST_RAISE_PERMILLE up to MAX_WATERMARK_PERMILLE of the pool; with each part that finds it calm, what was added falls
  by a quarter, until the operator's own watermark stands again (`AdmissionThrottled` says each change).

Whoever is preempted stays out longer then, and those that run come to their ends. It must not know requests.
"""

from collections import deque

from engine.core.decisions import AdmissionThrottled, Decision, ThrashingBegan, ThrashingEnded
from engine.core.limits import Limits

PART_TOKENS = 512
WINDOW_PARTS = 8
FIRST_RAISE_PERMILLE = 50
MAX_WATERMARK_PERMILLE = 500


class ThrashController:
    """
    is_thrashing
    watermark_blocks   to be kept free at an admission
    """

    def __init__(self, limits: Limits) -> None:
        self._bound = limits.thrash_bound_permille
        self._num_kv_blocks = limits.num_kv_blocks
        self._own_watermark = limits.watermark_permille * limits.num_kv_blocks // 1000
        self._parts: deque[tuple[int, int]] = deque(maxlen=WINDOW_PARTS)
        self._computed = 0  # in the part that is being filled
        self._recomputed = 0
        self.is_thrashing = False
        self.watermark_blocks = self._own_watermark

    def computed(self, num_tokens: int, num_recomputed: int) -> list[Decision]:
        """A step computed so many tokens, some of them again. What that changes."""
        self._computed += num_tokens
        self._recomputed += num_recomputed
        if self._computed < PART_TOKENS or self._bound == 0:
            return []
        recomputed_lately = self._recomputed
        self._parts.append((self._computed, self._recomputed))
        self._computed = self._recomputed = 0
        if not any(recomputed for _computed, recomputed in self._parts) and self._is_at_rest:
            return []
        return self._judge(recomputed_lately > 0)

    @property
    def _is_at_rest(self) -> bool:
        return not self.is_thrashing and self.watermark_blocks == self._own_watermark

    def _judge(self, goes_on: bool) -> list[Decision]:
        computed = sum([part[0] for part in self._parts])
        recomputed = sum([part[1] for part in self._parts])
        share = recomputed * 1000 // computed
        decisions: list[Decision] = []
        if not self.is_thrashing and share > self._bound:
            self.is_thrashing = True
            decisions.append(ThrashingBegan(recomputed, computed, self._bound))
        elif self.is_thrashing and 2 * share < self._bound:
            self.is_thrashing = False
            decisions.append(ThrashingEnded(recomputed, computed, self._bound))
        watermark = self._next_watermark(goes_on)
        if watermark != self.watermark_blocks:
            decisions.append(AdmissionThrottled(watermark, self.watermark_blocks, share))
            self.watermark_blocks = watermark
        return decisions

    def _next_watermark(self, goes_on: bool) -> int:
        if not self.is_thrashing:
            return self._own_watermark + (self.watermark_blocks - self._own_watermark) * 3 // 4
        if not goes_on:
            return self.watermark_blocks
        first = self._num_kv_blocks * FIRST_RAISE_PERMILLE // 1000
        most = self._num_kv_blocks * MAX_WATERMARK_PERMILLE // 1000
        return max(self._own_watermark, min(most, max(first, 2 * self.watermark_blocks)))
