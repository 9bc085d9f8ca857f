"""The mixed load of the slice's proof: everything that makes a batch hard to bring back, from one seed.

64 requests, greedy and sampled, prompts of 8 to 600 tokens, 8 shared prefixes, 10 clients that leave at random
moments; meant for a pool so small that many requests are preempted.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from tests.integration.client import Client, Stream, completion

NUM_REQUESTS = 64
NUM_LEAVERS = 10
NUM_PREFIXES = 8
NUM_CLIENTS = 24
LEAVER_OUTPUT, MOST_READ = 200, 30  # so long that a client has left before the end, though it be slow to
MIN_PROMPT, MAX_PROMPT = 8, 600


@dataclass(frozen=True)
class Planned:
    """One request of the load.

    leaves_after     output tokens it reads before it closes; None stays to the end
    leaves_within    0, or the seconds after which it closes though it may still wait or be prefilled
    """

    request_id: str
    body: dict[str, Any]
    leaves_after: int | None
    leaves_within: float


def plan_load(seed: int) -> list[Planned]:
    rng = random.Random(seed)
    prefixes = [[rng.randrange(300, 40_000) for _ in range(rng.choice([16, 48, 96]))] for _ in range(NUM_PREFIXES)]
    leavers = set(rng.sample(range(2, NUM_REQUESTS), NUM_LEAVERS))
    load = []
    for index in range(NUM_REQUESTS):
        prompt = _prompt(rng, index, prefixes)
        output = LEAVER_OUTPUT if index in leavers else 24 if index < 2 else rng.choice([12, 24, 36, 48, 60])
        body = completion(output=output, prompt=prompt, stream=True, stream_options={"include_usage": True})
        if index % 2:
            body |= {"temperature": 0.8, "top_p": 0.95, "seed": rng.randrange(2**32)}
        if index % 8 == 3:
            body |= {"presence_penalty": 0.5, "repetition_penalty": 1.1, "top_k": 40}
        leaves_after = rng.randrange(1, MOST_READ) if index in leavers else None
        leaves_within = rng.uniform(0.05, 0.3) if index in leavers and rng.random() < 0.3 else 0.0
        load.append(Planned(f"load-{index}", body, leaves_after, leaves_within))
    return load


def _prompt(rng: random.Random, index: int, prefixes: list[list[int]]) -> list[int]:
    if index == 0:
        length = MIN_PROMPT
    elif index == 1:
        length = MAX_PROMPT
    else:
        length = rng.choice([rng.randint(8, 40), rng.randint(8, 40), rng.randint(40, 80), rng.randint(80, 160)])
    shared = prefixes[index % NUM_PREFIXES] if index % 3 and length > 30 else []
    return (shared + [rng.randrange(300, 40_000) for _ in range(length)])[: max(length, len(shared) + 4)]


async def run_load(client: Client, load: list[Planned]) -> dict[str, Stream]:
    """A closed loop of NUM_CLIENTS clients; returns every stream, ended or left."""
    streams: dict[str, Stream] = {}
    queue = list(reversed(load))

    async def one_client() -> None:
        while queue:
            planned = queue.pop()
            stream = client.send(planned.body, headers={"X-Request-Id": planned.request_id})
            streams[planned.request_id] = stream
            if planned.leaves_after is None:
                await stream.until_end()
                continue
            if planned.leaves_within:
                await asyncio.sleep(planned.leaves_within)
            else:
                await stream.until_tokens(planned.leaves_after)
            await stream.leave()

    await asyncio.gather(*[one_client() for _ in range(NUM_CLIENTS)])
    return streams
