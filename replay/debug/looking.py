"""The state here, in words and values: the scheduler at large, who runs, who waits, blocks, tenants, limits."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.core.request import Request
from replay.debug.answer import Answer
from replay.time_machine.blocks import CACHED, FREE, OWNED, SHARED
from replay.time_machine.state import State
from replay.time_machine.waiting import Waiting

if TYPE_CHECKING:
    from replay.debug.session import Session

_MANY = 40  # lines of a table; the values have all


def headline(state: State) -> str:
    """Where and when it is, and how things stand there."""
    core = state.core
    where = f"step {state.step}, sequence {state.sequence}, {state.time_s:.6f} s"
    life = f" of process {state.life}" if state.life > 1 else ""
    return (
        f"{where}{life}: {len(core.planner.running)} running, {len(core.planner.waiting)} waiting, "
        f"{core.pool.num_free} of {core.pool.num_blocks} blocks free"
    )


def show_state(session: "Session", argument: str) -> Answer:
    state = session.state
    values, thrash, plan = state.as_values(), state.thrashing(), state.step_under_way
    lines = [
        headline(state),
        f"  policy      {state.limits.scheduling_policy}, phases {state.limits.scheduling_phases}",
    ]
    if plan is None:
        lines.append("  under way   no step")
    else:
        rows = " ".join(f"{request}:{start}+{count}" for request, start, count in plan.rows)
        lines.append(f"  under way   step {plan.step}: rows {rows}; {plan.token_budget_left} tokens of the budget left")
    lines.append(f"  blocks      {values['num_blocks_cached']} cached, {values['num_digests']} can be found")
    is_thrashing = "thrashing" if thrash.is_thrashing else "calm"
    lines.append(
        f"  admission   {thrash.watermark_blocks} blocks stay free; {is_thrashing}: "
        f"{thrash.recomputed} of {thrash.computed} tokens computed again lately"
    )
    lines += [f"  running     {_request_line(request)}" for request in state.running[:_MANY]]
    lines += [f"  waiting     {_waiting_line(each)}" for each in state.waiting()[:_MANY]]
    return Answer(tuple(lines), values)


def show_waiting(session: "Session", argument: str) -> Answer:
    found = session.state.waiting()
    lines = [_waiting_line(each) for each in found[:_MANY]] or ["nobody waits"]
    return Answer((*lines, *_rest(found)), {"waiting": [each._asdict() for each in found]})


def show_running(session: "Session", argument: str) -> Answer:
    found = session.state.running
    lines = [_request_line(request) for request in found[:_MANY]] or ["nobody runs"]
    return Answer((*lines, *_rest(found)), {"running": [request_values(request) for request in found]})


def show_tenants(session: "Session", argument: str) -> Answer:
    found = session.state.tenants()
    lines = [
        f"{each.name or '(none)'}: {each.num_running} running, {each.num_waiting} waiting, {each.num_queued_tokens} "
        f"queued tokens" + (f", served {each.service:,.0f} at weight {each.weight}" if each.service is not None else "")
        for each in found
    ] or ["no tenant has requests"]
    return Answer(tuple(lines), {"tenants": [each._asdict() for each in found]})


def show_blocks(session: "Session", argument: str) -> Answer:
    found, held = session.state.blocks(), session.state.pool()
    counts = Counter(block.state for block in found)
    told = {name: counts[name] for name in (FREE, CACHED, OWNED, SHARED)}
    lines = [", ".join(f"{count} {name}" for name, count in told.items())]
    lines.append(f"next to be allocated: {_numbers(held.free) or 'none is free'}")
    lines.append(f"next to be evicted:   {_numbers(held.evictable) or 'none is cached'}")
    values = {"blocks": [block._asdict() for block in found], "free": held.free, "evictable": held.evictable}
    return Answer(tuple(lines), {**told, **values, "prefix_index": held.block_of})


def show_limits(session: "Session", argument: str) -> Answer:
    values = session.state.limits.to_dict()
    return Answer(tuple(f"{name} {value}" for name, value in values.items()), {"limits": values})


def request_values(request: Request) -> dict[str, Any]:
    """A live request in plain values."""
    return {
        "request": request.number,
        "request_id": request.request_id,
        "tenant": request.tenant,
        "priority": request.priority,
        "status": str(request.status),
        "num_prompt_tokens": request.num_prompt_tokens,
        "num_output_tokens": request.num_output_tokens,
        "max_output_tokens": request.max_output_tokens,
        "num_computed_tokens": request.num_computed_tokens,
        "num_cached_tokens": max(0, request.num_cached_tokens),
        "num_preemptions": request.num_preemptions,
        "is_protected": request.is_protected,
        "block_table": list(request.block_table),
        "host_blocks": list(request.host_blocks),
    }


def _request_line(request: Request) -> str:
    return (
        f"{request.number} {request.request_id}: {request.num_computed_tokens} of {request.num_tokens} computed, "
        f"{request.num_output_tokens} of {request.max_output_tokens} emitted, {len(request.block_table)} blocks"
        + (f", preempted {request.num_preemptions}×" if request.num_preemptions else "")
        + (", protected" if request.is_protected else "")
    )


def _waiting_line(each: Waiting) -> str:
    return (
        f"{each.place}. {each.request} {each.request_id} ({each.status}): {reason_of(each)}"
        + (f", preempted {each.num_preemptions}×" if each.num_preemptions else "")
        + (", protected" if each.is_protected else "")
    )


def reason_of(each: Waiting) -> str:
    """Why it waits, with the figures it was told."""
    if not each.reason:
        return "no pass has looked at it yet"
    figures = f", needs {each.num_blocks_needed} blocks, {each.num_blocks_free} were free"
    if each.reason == "behind_another":
        figures = f" ({each.behind})"
    return f"{each.reason}{figures}, since step {each.since_step}, {each.num_passes} passes"


def _rest(found: list[Any]) -> list[str]:
    return [f"… and {len(found) - _MANY} more"] if len(found) > _MANY else []


def _numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers[:16])) + (" …" if len(numbers) > 16 else "")
