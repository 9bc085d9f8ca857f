"""A row for each decision but plans and tokens, which are a step's, and one more for each preemption."""

import json
from typing import Any

from engine.core.decisions import RequestAdmitted, RequestPreempted, RequestRejected, StepPlanned, TokensEmitted
from engine.core.vocabulary import UnknownRecord
from replay.index.moment import Moment
from replay.index.sink import Sink

_NOT_TOLD = (StepPlanned, TokensEmitted, UnknownRecord)


def tell_decision(sink: Sink, moment: Moment, at: int, decision: Any) -> None:
    if sink.is_shut or isinstance(decision, _NOT_TOLD):
        return
    request = getattr(decision, "request", -1)
    other = getattr(decision, "for_request", getattr(decision, "behind", -1))
    place = (moment.life, moment.sequence, at, moment.now_ns, moment.step)
    detail = json.dumps(decision._asdict(), separators=(",", ":"))
    kind, reason = type(decision).__name__, _reason(decision)
    sink.add("decisions", *place, kind, request, other, reason, *_blocks(decision), detail)
    if reason:
        sink.count_reason(moment.life, kind, reason, moment.now_ns, moment.step)
    if isinstance(decision, RequestPreempted):
        why = (str(decision.reason), str(decision.mode), decision.num_tokens_lost, decision.num_blocks_freed)
        sink.add("preemptions", *place, request, other, *why, decision.chain, decision.chain_length)


def _reason(decision: Any) -> str:
    return str(getattr(decision, "reason", getattr(decision, "cause", "")))


def _blocks(decision: Any) -> tuple[int | None, int | None]:
    """Blocks needed and free; of a refusal the figure and its bound."""
    if isinstance(decision, RequestRejected):
        return decision.asked, decision.limit
    if isinstance(decision, RequestAdmitted):
        return len(decision.block_ids) - decision.num_hit_blocks, decision.num_blocks_free
    return getattr(decision, "num_blocks_needed", None), getattr(decision, "num_blocks_free", None)
