"""Many ordinary requests, one after the other, and the memory of daemon and engine as they go.

    python -m tests.load.soak --requests 50000

They are of all kinds that clients send: whole and streamed, with several choices, stop strings, biases and schemas,
some left half-way, some refused. What may grow is the recording, which is bounded, and nothing else: the memory at the
end is held against that after the first fifth, when pools, tables and buffers have their size.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.daemon.scripted_process import ScriptedDaemon

AT_ONCE = 16
NUM_READINGS = 10
MAX_GROWTH_BYTES = 6 << 20  # from the second reading to the last, of either process
OPTIONS: dict[str, Any] = {"max_num_seqs": 32, "record_max_bytes": 64 << 20, "num_kv_blocks": 512}
ENVIRONMENT = {"SCRIPTED_STEP_SECONDS": "0.0005"}


def body_of(seed: int, number: int) -> tuple[str, dict[str, Any], bool]:
    """Path, body, and whether the client leaves before the end."""
    draw = random.Random(f"{seed}/{number}")
    text = "".join(draw.choices("abcdefgh ", k=draw.randrange(4, 60)))
    body: dict[str, Any] = {"max_tokens": draw.randrange(1, 9), "seed": number, "user": f"u{number}"}
    kinds: list[dict[str, Any]] = [
        {},
        {},
        {},
        {"n": 2},
        {"stop": ["ab"]},
        {"logit_bias": {"5": 3}},
        {"temperature": -1},
    ]
    body |= draw.choice([*kinds, {"min_tokens": 2}, {"response_format": {"type": "json_object"}, "max_tokens": 4}])
    if draw.random() < 0.5:
        body |= {"stream": True}
    if draw.random() < 0.5:
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}, draw.random() < 0.05
    return "/v1/completions", {**body, "prompt": text}, draw.random() < 0.05


async def ask_all(base_url: str, seed: int, numbers: Sequence[int]) -> int:
    """Answers other than 200 and 400."""
    left, num_wrong = iter(numbers), 0

    async def go_on(session: aiohttp.ClientSession) -> None:
        nonlocal num_wrong
        for number in left:
            path, body, leaves = body_of(seed, number)
            async with session.post(path, json=body) as response:
                num_wrong += response.status not in (200, 400)
                if leaves:
                    response.close()
                else:
                    await response.read()

    async with aiohttp.ClientSession(base_url) as session:
        await asyncio.gather(*[go_on(session) for _ in range(AT_ONCE)])
    return num_wrong


def soak(folder: Path, seed: int, num_requests: int) -> list[str]:
    """Raises AssertionError where memory or descriptors grow, or an answer is neither whole nor an honest refusal."""
    portion = num_requests // NUM_READINGS
    readings: list[tuple[int, int]] = []
    lines = [f"seed {seed}: requests, memory of daemon and engine in MiB, descriptors"]
    with ScriptedDaemon(folder, ENVIRONMENT, **OPTIONS) as daemon:
        for index in range(NUM_READINGS):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                numbers = range(index * portion, (index + 1) * portion)
                assert runner.run(ask_all(daemon.base_url, seed, numbers)) == 0
            daemon.until_idle()
            readings.append(daemon.resident_bytes())
            memory = "  ".join(f"{each / 2**20:6.1f}" for each in readings[-1])
            lines.append(f"  {(index + 1) * portion:7,}  {memory}   {daemon.num_descriptors()}")
            print(lines[-1], file=sys.stderr, flush=True)
    for settled, last in zip(readings[1], readings[-1], strict=True):
        assert last - settled <= MAX_GROWTH_BYTES, "\n".join(lines)
    assert (daemon.told["num_live"], daemon.told["num_open_calls"]) == (0, 0)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.load.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print(*soak(Path(folder), given.seed, given.requests), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
