"""A block that does not hold what was written to it: whom it may have reached, and how they are made right.

Nobody finds cached blocks any more: what was computed from the block may lie in any of them, and the core does not
know which. Of the requests that hold it, one that has emitted nothing is computed again, from blocks of its own. One
that has emitted tokens ends as failed: some of them may have come from the block, and a client cannot be asked to give
tokens back. When the block went wrong on its way back from the host pool nothing was emitted from it, so all are
computed again. A request that only once held the block is left alone: `reprise execute` and the self-audit tell.
"""

from collections.abc import Callable, Container, Iterable, Mapping

from engine.core.decisions import Decision, PrefixIndexDropped, RequestFinished, RequestPreempted, StepPlanned
from engine.core.events import KVMismatch, KVNoticed
from engine.core.kv_cache import BlockPool
from engine.core.planner import Planner
from engine.core.request import Request, Status


def make_right(
    event: KVMismatch,
    requests: Mapping[int, Request],
    planner: Planner,
    pool: BlockPool,
    fail: Callable[[Request], RequestFinished],
) -> list[Decision]:
    """Drop the prefix index and take the block's holders out of whatever they are at; `fail` ends one."""
    suspects = _holders(event, requests)
    decisions: list[Decision] = [PrefixIndexDropped(event.block, pool.drop_index())]
    for request in suspects:
        if request.num_output_tokens > 0 and event.noticed != KVNoticed.SWAP_IN:
            decisions.append(fail(request))
        elif request.status is Status.RUNNING:
            decisions.append(planner.recompute(request))
        else:
            planner.swapping.give_up(request)
    return decisions


def without_rows(plan: StepPlanned, requests: Container[int]) -> StepPlanned:
    """What is left to execute of a planned step when `requests` have been taken out of it."""
    num_tokens = sum(count for number, _start, count in plan.rows if number in requests)
    return plan._replace(
        rows=tuple([row for row in plan.rows if row[0] not in requests]),
        new_blocks=tuple([new for new in plan.new_blocks if new[0] not in requests]),
        token_budget_left=plan.token_budget_left + num_tokens,
    )


def taken_out(decisions: Iterable[object]) -> frozenset[int]:
    """The requests that `make_right` took out of the step under way."""
    return frozenset([each.request for each in decisions if isinstance(each, RequestPreempted | RequestFinished)])


def _holders(event: KVMismatch, requests: Mapping[int, Request]) -> list[Request]:
    """Noticed when it was swapped out, the block may be another's by now: then only those with its contents count."""
    at_swap_out = requests.get(event.request) if event.noticed == KVNoticed.SWAP_OUT else None
    if at_swap_out is None:
        return [request for request in requests.values() if event.block in request.block_table]
    contents = _contents(at_swap_out, event.block_index)
    sharing = [
        request
        for request in requests.values()
        if event.block in request.block_table
        and contents is not None
        and _contents(request, request.block_table.index(event.block)) == contents
    ]
    return [at_swap_out, *[request for request in sharing if request is not at_swap_out]]


def _contents(request: Request, index: int) -> bytes | None:
    """Digest of its tokens up to the end of block `index`, where they are known."""
    return request.block_digests[index] if index < len(request.block_digests) else None
