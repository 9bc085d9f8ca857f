"""One request fewer, the others rearranged: for failures in which some are there only to fill a gap between others.

A request is left out, and of what is left some answers grow into the tokens that it gave up, some clients leave at
another moment, and the pool may have another size. What a draw does follows from its number and the scenario, so a
search finds the same each time. It knows neither predicates nor who performs it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from engine.core.errors import EngineError
from engine.core.scheduler import check_limits
from replay.shrink.scenario import Caller, Scenario

_DRAW_BYTES = 4


def rearranged(scenario: Scenario, num_draws: int) -> Iterator[Scenario]:
    """That many draws, each with one caller fewer and no more tokens than the scenario has."""
    for number in range(num_draws):
        drawn = _drawn(scenario, _Draws(f"{len(scenario.callers)}/{number}"))
        try:
            check_limits(drawn.limits)
        except EngineError:
            continue
        yield drawn


class _Draws:
    """Numbers that follow from a seed, one after the other."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._num_drawn = 0

    def below(self, bound: int) -> int:
        self._num_drawn += 1
        digest = hashlib.blake2b(f"{self._seed}/{self._num_drawn}".encode(), digest_size=_DRAW_BYTES).digest()
        return int.from_bytes(digest, "little") % bound


def _drawn(scenario: Scenario, draws: _Draws) -> Scenario:
    callers = list(scenario.callers)
    gone = callers.pop(draws.below(len(callers))).arrived
    num_spare = gone.num_prompt_tokens + gone.max_output_tokens
    for place, caller in enumerate(callers):
        if not draws.below(3):
            num_more = min(draws.below(num_spare + 1), scenario.limits.max_model_len - _num_tokens(caller))
            caller = _grown(caller, max(0, num_more))
            num_spare -= max(0, num_more)
        if caller.cancels and draws.below(2):
            cancels = tuple([(delay_ns * draws.below(2_000) // 1_000, event) for delay_ns, event in caller.cancels])
            caller = replace(caller, cancels=cancels)
        callers[place] = caller
    limits = scenario.limits
    if draws.below(2):
        limits = replace(limits, num_kv_blocks=1 + draws.below(2 * limits.num_kv_blocks))
    return replace(scenario, callers=tuple(callers), limits=limits)


def _num_tokens(caller: Caller) -> int:
    return caller.arrived.num_prompt_tokens + caller.arrived.max_output_tokens


def _grown(caller: Caller, num_more: int) -> Caller:
    """Its answer goes on for so long, and then its limit ends it."""
    if not num_more:
        return caller
    arrived = caller.arrived._replace(max_output_tokens=caller.arrived.max_output_tokens + num_more)
    return replace(caller, arrived=arrived, num_own_tokens=0)
