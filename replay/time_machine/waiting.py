"""Who waits, in the order in which they would be admitted as things stand, and why each of them still does."""

import copy
import json
import sqlite3
from typing import Any, NamedTuple

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.freezing import freeze
from engine.core.keyframes.thawing import thaw
from engine.core.limits import Limits
from engine.core.policies.interface import PolicyFactory
from engine.core.request import Request
from engine.core.scheduler import Core
from engine.core.waiting import WaitingQueue


class Waiting(NamedTuple):
    """One who waits.

    place             1: the head of the queue
    reason            DeferReason it was last told; "" when no pass has looked at it yet
    since_sequence, since_ns, since_step   when it was told that; -1 when it was not
    num_blocks_needed, num_blocks_free     as found then; 0 where the reason is not one of blocks
    behind            the request that stood before it then; -1
    num_blocks_kept   as in RequestDeferred
    num_passes        planning passes since then
    num_passes_over   passes that admitted a younger one while it was the oldest; is_protected: by the starvation guard
    """

    place: int
    request: int
    request_id: str
    tenant: str
    status: str
    reason: str
    since_sequence: int
    since_ns: int
    since_step: int
    num_blocks_needed: int
    num_blocks_free: int
    behind: int
    num_blocks_kept: int
    num_passes: int
    num_passes_over: int
    num_preemptions: int
    is_protected: bool


def waiting(
    core: Core, limits: Limits, make_policy: PolicyFactory, database: sqlite3.Connection, life: int, sequence: int
) -> list[Waiting]:
    """
    limits, make_policy   those that the core began with
    life, sequence        of the last entry that the core was given: what it was told until then
    """
    num_passes = vars(core.planner)["_num_passes"]
    return [
        _waiting(place, request, num_passes, _told(database, life, sequence, request))
        for place, request in enumerate(in_order(core, limits, make_policy), 1)
    ]


def in_order(core: Core, limits: Limits, make_policy: PolicyFactory) -> list[Request]:
    """The protected by age, then as the policy takes lane after lane while nothing else changes."""
    queue = vars(core.planner.waiting)
    protected, lanes = queue["_protected"], queue["_lanes"]
    if len(lanes) <= 1:
        return [*protected, *[request for lane in lanes.values() for request in lane]]
    numbers: list[int] = []
    own_queue = _copied(core, limits, make_policy)  # taking one out changes what the policy counts
    while (head := own_queue.head) is not None:
        numbers.append(head.number)
        own_queue.remove(head)
    return [core.requests[number] for number in numbers]


def _copied(core: Core, limits: Limits, make_policy: PolicyFactory) -> WaitingQueue:
    try:
        return thaw(limits, make_policy, freeze(core)).planner.waiting
    except KeyframeError:  # an operator's own policy
        return copy.deepcopy(core.planner.waiting)


def _told(database: sqlite3.Connection, life: int, sequence: int, request: Request) -> Any:
    """The last deferral of the request until then; None when it was not told anything since it waits."""
    if request.deferral is None:
        return None
    return database.execute(
        "SELECT sequence, now_ns, step, detail_json FROM decisions WHERE life = ? AND request = ? AND sequence <= ? "
        "AND kind = 'RequestDeferred' ORDER BY sequence DESC, at DESC LIMIT 1",
        (life, request.number, sequence),
    ).fetchone()


def _waiting(place: int, request: Request, num_passes: int, told: Any) -> Waiting:
    detail = json.loads(told["detail_json"]) if told is not None else {}
    since_pass = request.queued_pass if request.deferral is None else request.deferral[1]
    return Waiting(
        place=place,
        request=request.number,
        request_id=request.request_id,
        tenant=request.tenant,
        status=str(request.status),
        reason="" if request.deferral is None else str(request.deferral[0]),
        since_sequence=-1 if told is None else told["sequence"],
        since_ns=-1 if told is None else told["now_ns"],
        since_step=-1 if told is None else told["step"],
        num_blocks_needed=detail.get("num_blocks_needed", 0),
        num_blocks_free=detail.get("num_blocks_free", 0),
        behind=detail.get("behind", -1),
        num_blocks_kept=detail.get("num_blocks_kept", 0),
        num_passes=num_passes - since_pass,
        num_passes_over=request.num_passes_over,
        num_preemptions=request.num_preemptions,
        is_protected=request.is_protected,
    )
