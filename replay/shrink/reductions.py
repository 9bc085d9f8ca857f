"""Simpler scenarios than a given one: shorter, closer together, without cancels, under plainer limits.

Each function lists candidates, the simplest first; whoever calls takes the first that still fails. They add nothing.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from engine.core.errors import EngineError
from engine.core.limits import Limits
from engine.core.scheduler import check_limits
from replay.shrink.scenario import Caller, Scenario

_TOWARDS_SMALL = ("num_kv_blocks", "max_num_seqs", "max_num_batched_tokens", "max_num_queued_reqs", "swap_space_blocks")
_KEPT = ("block_size", "max_model_len", *_TOWARDS_SMALL)  # digests go by blocks of this size, positions by this length
_SMALL = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def shorter_prompts(scenario: Scenario, place: int) -> list[Scenario]:
    """Of the caller at `place`: its first tokens, so that what it shares with others stays shared."""
    caller = scenario.callers[place]
    lengths = _shorter(caller.arrived.num_prompt_tokens, scenario.limits.block_size)
    return [_with(scenario, place, _cut_prompt(caller, length, scenario.limits.block_size)) for length in lengths]


def shorter_outputs(scenario: Scenario, place: int) -> list[Scenario]:
    caller = scenario.callers[place]
    lengths = _shorter(caller.arrived.max_output_tokens, scenario.limits.block_size, caller.arrived.num_output_tokens)
    return [_with(scenario, place, _cut_output(caller, length)) for length in lengths]


def all_at_once(scenario: Scenario) -> list[Scenario]:
    first_ns = scenario.callers[0].at_ns
    if all(caller.at_ns == first_ns for caller in scenario.callers):
        return []
    return [replace(scenario, callers=tuple([caller.moved_to(first_ns) for caller in scenario.callers]))]


def closer(scenario: Scenario, place: int) -> list[Scenario]:
    """The caller at `place`, and all behind it, come with the one before; or half as long after it."""
    gap_ns = scenario.callers[place].at_ns - scenario.callers[place - 1].at_ns if place else 0
    candidates = []
    for by_ns in (gap_ns, gap_ns // 2):
        if by_ns > 0:
            moved = [caller.moved_to(caller.at_ns - by_ns) for caller in scenario.callers[place:]]
            candidates.append(replace(scenario, callers=(*scenario.callers[:place], *moved)))
    return candidates


def fewer_interruptions(scenario: Scenario) -> list[Scenario]:
    """Without one of the cancels, or of the drains and changes of policy."""
    candidates = [
        _with(scenario, place, replace(caller, cancels=()))
        for place, caller in enumerate(scenario.callers)
        if caller.cancels
    ]
    notices = scenario.notices
    return candidates + [
        replace(scenario, notices=(*notices[:index], *notices[index + 1 :])) for index in range(len(notices))
    ]


def plainer_callers(scenario: Scenario, place: int) -> list[Scenario]:
    """Nobody in particular: no tenant, class, target or deadline; all of these, or one."""
    caller = scenario.callers[place]
    plain: dict[str, Any] = {"tenant": "", "priority": 0, "ttft_target_ms": 0, "itl_target_ms": 0, "deadline_ns": 0}
    other = {name: value for name, value in plain.items() if getattr(caller.arrived, name) != value}
    choices = [other, *[{name: value} for name, value in other.items()]] if len(other) > 1 else [other]
    return [
        _with(scenario, place, replace(caller, arrived=caller.arrived._replace(**choice)))
        for choice in choices
        if choice
    ]


def plainer_limits(scenario: Scenario) -> Iterator[list[Scenario]]:
    """Groups of candidates, one for each limit that may become the default, or small."""
    defaults, limits = Limits(), scenario.limits
    for field in fields(Limits):
        name, value = field.name, getattr(limits, field.name)
        if name in _TOWARDS_SMALL:
            choices = [small for small in (0, *_SMALL, value // 2) if 0 <= small < value]
        elif name not in _KEPT and value != getattr(defaults, name):
            choices = [getattr(defaults, name)]
        else:
            continue
        if candidates := [changed for choice in choices if (changed := _limited(scenario, name, choice)) is not None]:
            yield candidates


def _limited(scenario: Scenario, name: str, value: Any) -> Scenario | None:
    choice: dict[str, Any] = {name: value}
    limits = replace(scenario.limits, **choice)
    try:
        check_limits(limits)
    except EngineError:
        return None
    return replace(scenario, limits=limits)


def _shorter(length: int, block_size: int, above: int = 0) -> list[int]:
    """Lengths worth a try, the shortest first."""
    tries = {1, 2, block_size, block_size + 1, 2 * block_size, 2 * block_size + 1, length // 2, 3 * length // 4}
    return sorted(each for each in {*tries, length - 1} if above < each < length)


def _cut_prompt(caller: Caller, length: int, block_size: int) -> Caller:
    arrived = caller.arrived._replace(
        num_prompt_tokens=length, prompt_digests=caller.arrived.prompt_digests[: length // block_size]
    )
    contents = caller.contents and caller.contents._replace(prompt_token_ids=caller.contents.prompt_token_ids[:length])
    return replace(caller, arrived=arrived, contents=contents)


def _cut_output(caller: Caller, length: int) -> Caller:
    min_tokens = min(caller.arrived.sampling.min_tokens, length)
    sampling = caller.arrived.sampling._replace(min_tokens=min_tokens)
    arrived = caller.arrived._replace(max_output_tokens=length, sampling=sampling)
    return replace(caller, arrived=arrived, num_own_tokens=min(caller.num_own_tokens, length))


def _with(scenario: Scenario, place: int, caller: Caller) -> Scenario:
    return replace(scenario, callers=(*scenario.callers[:place], caller, *scenario.callers[place + 1 :]))
