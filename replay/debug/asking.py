"""Why, who and through which chain: questions about a request or a block, as of the place where one stands."""

from typing import TYPE_CHECKING, Any

from engine.core.request import Request
from replay.debug.answer import Answer, BadCommand
from replay.debug.looking import reason_of, request_values
from replay.debug.moving import number
from replay.time_machine.histories import EVER, BlockWrite, Preemption
from replay.time_machine.state import State

if TYPE_CHECKING:
    from replay.debug.session import Session

_LAST_EVENTS = 12


def why(session: "Session", argument: str) -> Answer:
    """What a request is waiting for, or what it is at."""
    request, name = _number(session, argument), argument.strip()
    state, histories = session.state, session.histories
    live = state.requests.get(request)
    if live is None:
        changes = histories.changes(request, state.sequence)
        if not changes:
            return Answer((f"{name} has not arrived yet",), {"request": request, "status": "not_arrived"})
        end = changes[-1]
        line = f"{name} is {end.status} since step {end.step} (sequence {end.sequence}): {end.reason or 'gone'}"
        return Answer((line,), {"request": request, "status": end.status, "reason": end.reason, "step": end.step})
    values: dict[str, Any] = {"request": request, "status": str(live.status)}
    queue = state.waiting()
    mine = next((each for each in queue if each.request == request), None)
    if mine is None:
        line = f"{name} runs: {live.num_computed_tokens} of {live.num_tokens} tokens computed"
        return Answer((line,), {**values, "num_computed_tokens": live.num_computed_tokens})
    ahead = [each.request for each in queue[: mine.place - 1]]
    lines = [f"{name} waits ({mine.status}): {reason_of(mine)}", f"  place {mine.place} of {len(queue)}"]
    if ahead:
        lines[-1] += f", behind {' '.join(map(str, ahead[:20]))}" + (" …" if len(ahead) > 20 else "")
    now = _blocks_now(state, live)
    lines.append(
        f"  now it needs {now['needed_now']} blocks beside {now['hits_now']} found in the cache; {now['free_now']} are "
        f"free, {now['own_hits_among_free']} of them those found"
    )
    lines.append(
        f"  passed over {mine.num_passes_over} of {state.limits.max_passes_over} times, preempted "
        f"{mine.num_preemptions} of {state.limits.max_preemptions}: {'' if mine.is_protected else 'not '}protected"
    )
    last = histories.preemptions(request, state.sequence)[-1:]
    lines += [f"  {_preemption_line(each)}" for each in last]
    return Answer(tuple(lines), {**values, **mine._asdict(), **now, "ahead": ahead})


def _blocks_now(state: State, live: Request) -> dict[str, int]:
    """What an admission would need: the blocks it would find are free too while nobody has them, and are no gain."""
    size, pool = state.limits.block_size, state.core.pool
    hits = pool.find_prefix(live.block_digests, (live.num_tokens - 1) // size)
    return {
        "needed_now": -(-live.num_tokens // size) - len(hits),
        "hits_now": len(hits),
        "free_now": pool.num_free,
        "own_hits_among_free": pool.num_evictable_among(hits),
    }


def preempted(session: "Session", argument: str) -> Answer:
    """Who gave way for whom, whenever this request did, and through which chain."""
    request = _number(session, argument)
    histories, here = session.histories, session.state.sequence
    found = histories.preemptions(request, here)
    num_later = len(histories.preemptions(request)) - len(found)
    lines, told = list[str](), list[dict[str, Any]]()
    for each in found:
        chain = [link for link in histories.chain(each.chain, here) if link.chain_length <= each.chain_length]
        lines.append(_preemption_line(each))
        if len(chain) > 1:
            links = ", then ".join(f"{link.victim} for {link.beneficiary} (step {link.step})" for link in chain)
            lines.append(f"  chain {each.chain}: {links}")
        told.append({**each._asdict(), "links": [link._asdict() for link in chain]})
    if not found:
        lines.append(f"{argument.strip()} was not preempted until here")
    if num_later:
        lines.append(f"{num_later} more after this place")
    return Answer(tuple(lines), {"request": request, "preemptions": told, "num_later": num_later})


def block(session: "Session", argument: str) -> Answer:
    """Who has a block, who wrote into it last, who has read what lies in it, and what happened to it."""
    wanted = number(argument, "a block")
    state, histories = session.state, session.histories
    if wanted >= state.core.pool.num_blocks:
        raise BadCommand(f"there is no block {wanted}", f"the pool has {state.core.pool.num_blocks}, counted from 0")
    here = state.blocks()[wanted]
    under_way = state.step_under_way
    bound = under_way.step if under_way else state.step + 1  # what is under way has not been written yet
    writer, readers = histories.last_writer(wanted, bound), histories.readers(wanted, bound, state.sequence)
    events = histories.block_events(wanted, state.sequence, _LAST_EVENTS)
    owners = " ".join(map(str, here.owners)) or "nobody"
    lines = [f"block {wanted}: {here.state}, held by {owners} ({here.num_references} references)"]
    lines.append(f"  contents   {here.digest or 'cannot be found by their digest'}")
    lines.append(f"  written    {_write_line(writer)}")
    lines += [
        f"  {each.kind:<10} by {each.request} in step {each.from_step}"
        + ("" if each.until_step is None else f", given up in step {each.until_step}")
        for each in readers
    ]
    lines.append(f"  its last {len(events)} events:" if events else "  nothing has happened to it")
    events = [each._replace(to_step=min(each.to_step, bound - 1)) if each.to_step else each for each in events]
    lines += [
        f"    step {each.step}{'' if each.to_step in (None, each.step) else f'–{each.to_step}'}: {each.kind}"
        + (f" by {each.request}" if each.request >= 0 else "")
        for each in events
    ]
    values = {
        **here._asdict(),
        "last_writer": None if writer is None else writer._asdict(),
        "readers": [each._asdict() for each in readers],
        "events": [each._asdict() for each in events],
    }
    return Answer(tuple(lines), values)


def request(session: "Session", argument: str) -> Answer:
    """A request here, and when its status changed."""
    wanted = _number(session, argument)
    state = session.state
    changes = session.histories.changes(wanted, state.sequence)
    live = state.requests.get(wanted)
    values: dict[str, Any] = {"request": wanted} if live is None else request_values(live)
    lines = []
    if live is not None:
        lines.append(
            f"{live.number} {live.request_id}: {live.status}, prompt {live.num_prompt_tokens}, "
            f"{live.num_output_tokens} of {live.max_output_tokens} emitted, {live.num_computed_tokens} computed"
        )
        lines.append(f"  blocks     {' '.join(map(str, live.block_table)) or 'none'}")
    else:
        lines.append(f"{argument.strip()} does not live here" + ("" if changes else ": it has not arrived yet"))
    lines += [
        f"  {(each.now_ns - state.opened_ns) / 1e9:>12.6f} s  sequence {each.sequence}: {each.status} ({each.by}"
        + (f": {each.reason})" if each.reason else ")")
        for each in changes
    ]
    return Answer(tuple(lines), {**values, "changes": [each._asdict() for each in changes]})


def _number(session: "Session", argument: str) -> int:
    """Raises BadCommand when nobody is called that."""
    name = argument.strip()
    found = session.histories.number_of(name) if name else None
    if found is None or not (session.histories.changes(found, EVER) or found in session.state.requests):
        raise BadCommand(f"no request {name!r} is in this recording", "reprise show REC --requests lists them")
    return found


def _preemption_line(each: Preemption) -> str:
    for_whom = "gave way to all" if each.beneficiary == each.victim else f"for {each.beneficiary}"
    return (
        f"preempted in step {each.step} (sequence {each.sequence}) {for_whom}: {each.reason}, by {each.mode}; "
        f"{each.blocks_freed} blocks freed, {each.tokens_lost} tokens lost"
    )


def _write_line(writer: BlockWrite | None) -> str:
    if writer is None:
        return "by nobody until here"
    since = "" if writer.first_step == writer.step else f", in every step since {writer.first_step}"
    return f"by {writer.request} in step {writer.step}{since}"
