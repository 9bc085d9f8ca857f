"""The load of a seed: limits, and what clients and operators send, in order.

Clients arrive, share prefixes or not, some under the name of another, leave at any moment, some after their end; now
and then an operator changes the policy.
"""

import random
from dataclasses import replace
from typing import Any

from engine.core.admission import RESERVATIONS
from engine.core.contents import RequestContents
from engine.core.limits import Limits
from engine.core.phases.registry import PHASES_NAMES
from engine.core.policies.registry import POLICY_NAMES
from engine.core.sampling_params import SamplingParams
from engine.execution.scripted import SCRIPTED_VOCABULARY
from engine.protocol import Arrive, Cancel, ChangePolicy, Drain, Message, Restarted

MAX_REQUESTS = 30
SWAP_SPACES = (0, 60, 60, 3, 60)


def random_limits(rng: random.Random) -> Limits:
    max_num_seqs = rng.randint(1, 8)
    block_size = rng.choice([1, 2, 3, 4, 8, 16])
    return Limits(
        block_size=block_size,
        num_kv_blocks=max(2, rng.randint(30, 200) // block_size),
        max_model_len=rng.choice([30, 100, 200]),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + rng.choice([0, 1, 5, 30, 200]),
        max_num_queued_reqs=rng.choice([2, 10, 100]),
        max_num_queued_tokens=rng.choice([0] * 7 + [50]),
        max_num_queued_reqs_per_tenant=rng.choice([0] * 7 + [1, 5]),
        max_num_queued_tokens_per_tenant=rng.choice([0] * 7 + [30]),
        scheduling_policy=rng.choice([*POLICY_NAMES, "priority"]),  # it alone preempts for the waiting
        enable_prefix_caching=rng.random() < 0.7,
        priority_aging_ns=rng.choice([1, 1_000_000, 10_000_000_000]),
        tenant_weights=rng.choice([(), (("a", 3), ("b", 1))]),
        ttft_target_ms=rng.choice([1, 20, 2_000]),
        itl_target_ms=rng.choice([1, 200]),
        max_passes_over=rng.choice([1, 3, 64]),
        max_preemptions=rng.choice([1, 2, 5]),
        scheduling_phases=rng.choice(PHASES_NAMES),
        watermark_permille=rng.choice([0, 0, 10, 300]),
        reserve_output=rng.choice(["none", "none", *RESERVATIONS]),
        thrash_bound_permille=rng.choice([0, 1, 100, 300]),
        mixed_step_target_ms=rng.choice([1, 0, 50]),
        min_prefill_tokens=rng.choice([1, 7, 32]),
        prefill_share_permille=rng.choice([1, 300, 500, 999]),
    )


def long_load_limits(rng: random.Random) -> Limits:
    """Most take the greater part of a long load, and every fourth is under pressure as long as it lasts."""
    limits = random_limits(rng)
    if rng.random() < 0.8:
        queue: dict[str, Any] = {
            "max_num_queued_tokens": 0,
            "max_num_queued_reqs_per_tenant": 0,
            "max_num_queued_tokens_per_tenant": 0,
        }
        limits = replace(limits, max_num_queued_reqs=100, max_model_len=rng.choice([100, 200]), **queue)
    if rng.random() < 0.25:
        limits = replace(
            limits,
            num_kv_blocks=max(2, 100 // limits.block_size),
            scheduling_policy=rng.choice([limits.scheduling_policy, "priority"]),
            enable_prefix_caching=rng.random() < 0.9,
            max_num_seqs=8,
            max_num_batched_tokens=rng.choice([12, 40]),
            reserve_output="none",
            watermark_permille=0,
            thrash_bound_permille=rng.choice([0, 50, 200, 300]),
            max_preemptions=rng.choice([2, 5]),
        )
    return limits


def with_swap_space(limits: Limits, seed: int) -> Limits:
    """Four of five seeds have a host pool; which is not drawn, so that nothing else of a seed depends on it."""
    return replace(limits, swap_space_blocks=SWAP_SPACES[seed % len(SWAP_SPACES)])


def random_messages(rng: random.Random) -> list[Message]:
    """In the order in which they reach the engine; a cancel may come for anybody who came before it."""
    prefixes = [
        [rng.randrange(SCRIPTED_VOCABULARY) for _ in range(rng.randint(1, 40))] for _ in range(rng.randint(1, 3))
    ]
    shared_share = rng.choice([0.5, 0.5, 0.95])
    messages: list[Message] = []
    num_arrivals = 0
    if rng.random() < 0.05:
        messages.append(Restarted(((1_000_000, "lost", 9, 3),)))
    for _ in range(rng.randint(1, MAX_REQUESTS)):
        if num_arrivals and rng.random() < 0.2:
            oldest = rng.choice([0, max(0, num_arrivals - 6)])
            messages.append(Cancel(rng.randrange(oldest, num_arrivals), rng.choice(["client", "client", "drain"])))
        elif rng.random() < 0.05:
            bounds = (("max_preemptions", rng.randint(1, 4)), ("tenant_weights", (("c", 2),)))
            messages.append(ChangePolicy(rng.choice([*POLICY_NAMES, "lottery"]), rng.choice([(), bounds])))
        else:
            messages.append(_arrive(rng, num_arrivals, prefixes if rng.random() < shared_share else []))
            num_arrivals += 1
    if rng.random() < 0.05:
        messages.insert(rng.randrange(1, len(messages) + 1), Drain())
    return messages


def _arrive(rng: random.Random, number: int, prefixes: list[list[int]]) -> Arrive:
    shared = rng.choice(prefixes) if prefixes else []
    own = rng.choice([rng.randint(1, 30), 0]) if shared else rng.randint(1, 30)  # without own tokens all may be cached
    prompt = shared + [rng.randrange(SCRIPTED_VOCABULARY) for _ in range(own)]
    max_output_tokens = rng.randint(1, 60)
    named = rng.randrange(number) if number and rng.random() < 0.02 else number
    sampling = SamplingParams(
        seed=rng.randrange(2**63), min_tokens=rng.randint(0, max_output_tokens), ignore_eos=rng.random() < 0.5
    )
    return Arrive(
        number,
        f"request-{named}",
        rng.choice("abc"),
        rng.randint(0, 9),
        0,
        max_output_tokens,
        sampling,
        RequestContents(tuple(prompt), (rng.randrange(SCRIPTED_VOCABULARY),)),
        rng.choice([0, 1, 30]),
        rng.choice([0, 50]),
        rng.choice([0, 0, 0, 1, 500_000_000, 5_000_000_000]),
    )
