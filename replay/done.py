"""What a decision did, without the figures it was made on: for comparing runs whose pools or policies differ.

Block ids, counts of free blocks and reasons for waiting differ as soon as a pool has another size, though everybody is
served as before. What remains here is what a client or an executor could notice: who was refused, admitted, preempted,
which rows a step computed, who got a token, who ended. It knows no recording.
"""

from typing import Any

from engine.core.decisions import (
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)

Done = tuple[Any, ...]


def done_by(decision: Any) -> Done | None:
    """Equal for two decisions that do the same; None for one that only explains."""
    match decision:
        case StepPlanned():
            return ("StepPlanned", decision.step, decision.rows)
        case TokensEmitted():
            return ("TokensEmitted", decision.step, decision.rows)
        case RequestAdmitted():
            return ("RequestAdmitted", decision.request, decision.num_hit_blocks, len(decision.host_blocks))
        case RequestPreempted():
            return ("RequestPreempted", decision.request, str(decision.mode))
        case RequestFinished():
            return ("RequestFinished", decision.request, str(decision.reason), decision.num_output_tokens)
        case RequestRejected():
            return ("RequestRejected", decision.request, str(decision.reason))
    return None


def first_done_otherwise(expected: tuple[Any, ...], got: tuple[Any, ...]) -> tuple[Any, Any] | None:
    """The first two decisions of an entry that do not do the same; None on the side that does nothing more."""
    lefts = [decision for decision in expected if done_by(decision) is not None]
    rights = [decision for decision in got if done_by(decision) is not None]
    for index in range(max(len(lefts), len(rights))):
        left = lefts[index] if index < len(lefts) else None
        right = rights[index] if index < len(rights) else None
        if left is None or right is None or done_by(left) != done_by(right):
            return left, right
    return None
