"""Hostile requests by seed against a daemon in a process of its own: `python -m tests.load.fuzz --requests 20000`.

Each request of each seed is made from its own number alone, so that one that goes wrong is made again by
`--seed S --only NUMBER`. Wrong is: a 5xx other than 503 with a Retry-After and 504, an answer that does not end, and
what is left behind: live requests, calls, descriptors, KV blocks.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop

from tests.daemon.scripted_process import ScriptedDaemon
from tests.load.hostile_bodies import hostile_body
from tests.load.hostile_sockets import Attack, hostile_bytes, request

AT_ONCE = 48
HANG_SECONDS = 60.0  # many times --client-timeout
OPTIONS: dict[str, Any] = {"client_timeout": 1.0, "max_num_seqs": 16, "max_body_size": 4 << 20, "audit_rate": 0.0}
MAX_DESCRIPTORS_MORE = 8  # segments of the recording, connections that are just being closed
_BEGINNING = re.compile(rb"HTTP/1\.[01] ")


@dataclass(slots=True)
class Findings:
    """
    num_left   connections that their client closed first, wholly or its half
    statuses   of all answers; 0: the connection was closed without one
    wrong      (number, what) of those that must not be
    """

    num_left: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[tuple[int, str]] = field(default_factory=list)

    def note(self, number: int, answer: bytes, *, has_left: bool) -> None:
        self.num_left += has_left
        heads = [head for head in _BEGINNING.split(answer)[1:] if head[:3].isdigit()]
        for head in heads or ([] if has_left else [b"0"]):
            status = int(head[:3])
            self.statuses[status] += 1
            is_honest = status in (504,) or (status == 503 and b"Retry-After: " in head)
            if status >= 500 and not is_honest:
                self.wrong.append((number, head[:500].decode("latin-1")))


def attack_of(seed: int, number: int, schemas: dict[str, dict[str, Any]]) -> Attack:
    draw = random.Random(f"{seed}/{number}")
    path = draw.choice(sorted(schemas))
    body = hostile_body(draw, schemas[path])
    if draw.random() < 0.5:
        return Attack((request("POST", path, body, []),), leaves=draw.random() < 0.1)
    return hostile_bytes(draw, body)


def body_schemas(base_url: str) -> dict[str, dict[str, Any]]:
    """Path → the schema of what may be posted there, from the API's own document."""
    document = httpx.get(f"{base_url}/openapi.json", timeout=30).json()
    operations = {path: each["post"] for path, each in document["paths"].items() if "post" in each}
    return {path: each["requestBody"]["content"]["application/json"]["schema"] for path, each in operations.items()} | {
        "/incidents": {"properties": {"note": {"type": "string"}}, "required": ["note"]}
    }


async def send(port: int, attack: Attack) -> bytes:
    """All that is answered. Raises TimeoutError where that does not end."""
    async with asyncio.timeout(HANG_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = b""
        try:
            for piece in attack.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if attack.leaves:
                return answer
            if attack.half_ends:
                writer.write_eof()
            while data := await reader.read(65_536):
                answer += data
        except (ConnectionError, OSError):
            pass
        finally:
            writer.close()
        return answer


async def attack_all(port: int, seed: int, numbers: Sequence[int], schemas: dict[str, dict[str, Any]]) -> Findings:
    findings, left = Findings(), iter(numbers)

    async def go_on() -> None:
        for number in left:
            attack = attack_of(seed, number, schemas)
            try:
                findings.note(number, await send(port, attack), has_left=attack.leaves or attack.half_ends)
            except TimeoutError:
                findings.wrong.append((number, f"no end within {HANG_SECONDS:g} s"))

    await asyncio.gather(*[go_on() for _ in range(AT_ONCE)])
    return findings


def fuzz(folder: Path, seed: int, numbers: Sequence[int]) -> list[str]:
    """Raises AssertionError with what is wrong; else a report in lines."""
    with ScriptedDaemon(folder, **OPTIONS) as daemon:
        schemas = body_schemas(daemon.base_url)
        httpx.post(f"{daemon.base_url}/v1/completions", json={"prompt": [1], "max_tokens": 2}, timeout=30)
        descriptors, memory = daemon.num_descriptors(), daemon.resident_bytes()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            findings = runner.run(attack_all(daemon.port, seed, numbers, schemas))
        daemon.until_idle()
        check_nothing_left(daemon, descriptors)
        after = daemon.resident_bytes()
    assert not findings.wrong, f"seed {seed}: {json.dumps(findings.wrong[:5], indent=1)}"
    assert (daemon.told["num_live"], daemon.told["num_open_calls"]) == (0, 0)
    counts = ", ".join(f"{status}: {number}" for status, number in sorted(findings.statuses.items()))
    grown = ", ".join(f"{was >> 20} → {now >> 20} MiB" for was, now in zip(memory, after, strict=True))
    return [
        f"seed {seed}: {len(numbers)} requests, {findings.num_left} left first; answers by status {counts}",
        f"  daemon, engine: {grown}",
    ]


def check_nothing_left(daemon: ScriptedDaemon, descriptors_before: tuple[int, int]) -> None:
    page = httpx.get(f"{daemon.base_url}/metrics", timeout=30).text
    gauges = ("vllm:num_requests_running{", "vllm:num_requests_waiting{", "vllm:kv_cache_usage_perc{")
    held = [line for line in page.splitlines() if line.startswith(gauges) and float(line.rpartition(" ")[2])]
    assert not held, held
    for before, after in zip(descriptors_before, daemon.num_descriptors(), strict=True):
        assert after <= before + MAX_DESCRIPTORS_MORE, (descriptors_before, daemon.num_descriptors())
    answer = httpx.post(f"{daemon.base_url}/v1/completions", json={"prompt": [1], "max_tokens": 2}, timeout=30)
    assert answer.status_code == 200, answer.text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.load.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this one of the seed's requests")
    given = parser.parse_args(arguments)
    numbers = range(given.requests) if given.only is None else [given.only]
    with tempfile.TemporaryDirectory() as folder:
        print(*fuzz(Path(folder), given.seed, numbers), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
