"""64 requests of 128 + 400 tokens in 700 blocks of 16, a third of the need: by hand and looking ahead."""

from typing import Any

from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from tests.simulation.oversubscribed import NUM_REQUESTS, POOL, all_at_once, run

WATERMARKS = (0, 10, 50, 100, 200, 300, 400, 500, 600, 650, 700)
ALONE: dict[str, Any] = {"reserve_output": "none", "thrash_bound_permille": 0}


def report(num_requests: int = NUM_REQUESTS) -> list[str]:
    lines = [
        "oversubscription, on virtual time (a peer: 51 % extra tokens, one preempted 7 times; goals 10 %, twice)",
        f"  {'':34} {'preempted':>9} {'worst':>5} {'extra tokens':>12} {'output tok/s':>12}",
    ]
    for watermark in WATERMARKS:
        lines.append(
            _line(f"watermark {watermark / 10:g} % by hand", num_requests, watermark_permille=watermark, **ALONE)
        )
    lines.append(_line("thrash controller alone", num_requests, reserve_output="none"))
    for policy in POLICY_NAMES:
        lines.append(_line(f"as by default, {policy}", num_requests, scheduling_policy=policy))
    return lines


def _line(label: str, num_requests: int, **limits: Any) -> str:
    outcome = run(Limits(**{**POOL, **limits}), all_at_once()[:num_requests])
    return (
        f"  {label:34} {sum(outcome.num_preempted.values()):>9} {outcome.most_preempted:>5} "
        f"{outcome.extra_share:>12.1%} {outcome.goodput:>12.0f}"
    )
