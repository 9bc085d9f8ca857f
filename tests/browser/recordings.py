"""Recordings worth looking at: a load with preemptions, cascades and thrashing, on virtual time, without a model."""

import random
from pathlib import Path

from engine.core.limits import Limits
from replay.simulate.arrivals import Arrival
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost

NS_PER_S = 1_000_000_000
TENANTS = (("chat", 3), ("search", 5), ("batch", 0))
CROWDED = Limits(
    block_size=16,
    num_kv_blocks=400,
    max_model_len=2048,
    max_num_seqs=32,
    max_num_batched_tokens=256,
    reserve_output="none",  # so that blocks run out: preemptions, and then thrashing
    scheduling_policy="priority",
)


def crowded_load(num_requests: int = 72, seed: int = 7) -> list[Arrival]:
    """Three tenants; halfway a burst that wants three times the pool."""
    draw = random.Random(seed)
    arrivals = []
    for number in range(num_requests):
        tenant, priority = TENANTS[draw.randrange(3)]
        burst = num_requests // 3 <= number < num_requests * 2 // 3
        at_s = 6.0 + draw.random() * 2 if burst else draw.random() * 26
        shared = tuple(range(4)) if tenant == "chat" else ()
        prompt = draw.randrange(80, 400)
        output = draw.randrange(150, 420) if burst else draw.randrange(20, 160)
        ids = (*shared, *(1_000 * number + index for index in range((prompt + 15) // 16 - len(shared))))
        arrivals.append(
            Arrival(
                int(at_s * NS_PER_S),
                prompt,
                output,
                tenant=tenant,
                priority=priority,
                prefix_ids=ids,
                tokens_per_id=16,
                max_output_tokens=output,
                name=f"{tenant}-{number:03d}",
            )
        )
    return sorted(arrivals, key=lambda arrival: arrival.at_ns)


def record_crowded(directory: Path, limits: Limits = CROWDED, num_requests: int = 72) -> Path:
    run_simulation(limits, crowded_load(num_requests), StepCost(), record_dir=directory, trace="crowded")
    return directory
