"""How near the worst attacks come to the bounds on waits and preemptions that `engine/core/starvation.py` proves."""

from engine.core.policies.registry import POLICY_NAMES
from tests.core.adversaries import ADVERSARIES, LIMITS, NUM_STEPS, attacks

NUM_SEEDS = 3


def report(num_steps: int = NUM_STEPS) -> list[str]:
    """Per policy and adversary, the worst of all seeds against its bound."""
    lines = [
        f"starvation: worst of {NUM_SEEDS} seeds of {num_steps} steps against its bound; "
        f"B = {LIMITS.max_passes_over}, N = {LIMITS.max_preemptions}, n = {LIMITS.max_num_seqs}, "
        f"M = {LIMITS.max_model_len}",
        f"  {'policy':10} {'adversary':14} {'passed over':>12} {'preempted':>10} {'admitting':>12} {'passes':>12}",
    ]
    for worst in attacks(POLICY_NAMES, NUM_SEEDS, num_steps):
        over, preempted, admitting, wait = (
            f"{seen} / {bound}"
            for seen, bound in (worst.passes_over, worst.preemptions, worst.admitting_passes, worst.wait)
        )
        lines.append(f"  {worst.policy:10} {worst.adversary:14} {over:>12} {preempted:>10} {admitting:>12} {wait:>12}")
    assert len(lines) == 2 + len(POLICY_NAMES) * len(ADVERSARIES)
    return lines
