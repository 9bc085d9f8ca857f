"""`python -m tests.bench.engine_kills [KILLS]`: the engine is killed again and again under W2; what do its clients see?

The same requests are served twice, undisturbed and under kills. To hold: no request fails, all answers are equal.
Reported: the longest silence that a stream had in either run. Takes a few minutes: not part of any suite.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from daemon.bench.workloads import ClosedLoop, PlannedRequest, plan_workload
from tests.integration.client import Client, connect
from tests.integration.daemon_process import DaemonProcess, reprise

NUM_CLIENTS = 16
SECONDS_BETWEEN = (0.5, 4.0)  # from an engine's readiness to its end


class Served(NamedTuple):
    """
    answers     per request: token ids and text, or the error
    stall_s     the longest time between two tokens of a stream
    num_kills   that the run had time for
    """

    answers: list[object]
    stall_s: float
    num_kills: int


async def serve(daemon: DaemonProcess, requests: tuple[PlannedRequest, ...], num_kills: int) -> Served:
    answers: list[object] = [None] * len(requests)
    stalls: list[float] = []
    waiting = list(reversed(requests))

    async def one_after_the_other(client: Client) -> None:
        while waiting:
            planned = waiting.pop()
            draws = random.Random(planned.index)
            prompt = [draws.randrange(1_000, 9_000) for _ in range(planned.num_prompt_tokens)]
            body = {"prompt": prompt, "max_tokens": planned.num_output_tokens, "stream": True, "seed": planned.index}
            body |= {"temperature": planned.index % 2, "return_token_ids": True, "ignore_eos": True}
            stream = await client.send(body).until_end()
            answers[planned.index] = stream.error or (stream.token_ids, stream.text)
            stalls.extend(after - before for before, after in itertools.pairwise(stream.token_times))

    async with connect(daemon.base_url) as client:
        serving = asyncio.gather(*[one_after_the_other(client) for _ in range(NUM_CLIENTS)])
        killing = asyncio.create_task(kill(daemon, num_kills))
        await serving
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    return Served(answers, max(stalls, default=0), daemon.get("/health").json()["num_engine_restarts"])


async def kill(daemon: DaemonProcess, num_kills: int) -> None:
    draws = random.Random(1)
    for _ in range(num_kills):
        while (await asyncio.to_thread(daemon.get, "/ready")).status_code != 200:
            await asyncio.sleep(0.02)
        await asyncio.sleep(draws.uniform(*SECONDS_BETWEEN))
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.engine_kills", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kills", nargs="?", type=int, default=20)
    parser.add_argument("--requests", type=int, default=96)
    arguments = parser.parse_args()
    requests = plan_workload("W2", 1, ClosedLoop(NUM_CLIENTS, arguments.requests)).requests
    served: list[Served] = []
    with tempfile.TemporaryDirectory() as folder:
        for num_kills in (0, arguments.kills):
            directory = Path(folder) / str(num_kills)
            directory.mkdir()
            with DaemonProcess(directory, enable_prefix_caching=False) as daemon:
                served.append(asyncio.run(serve(daemon, requests, num_kills)))
        checked = reprise("check", daemon.recording)
    quiet, disturbed = served
    for answer in disturbed.answers:
        if isinstance(answer, dict):
            print(f"failed: {answer['code']}: {answer['message']}")
    num_failed = sum(isinstance(answer, dict) for answer in disturbed.answers)
    num_different = sum(left != right for left, right in zip(quiet.answers, disturbed.answers, strict=True))
    print(f"{len(requests)} requests, {disturbed.num_kills} kills: {num_failed} failed, {num_different} differ")
    print(f"longest silence of a stream: {quiet.stall_s:.2f} s undisturbed, {disturbed.stall_s:.2f} s under kills")
    print(checked.stdout.splitlines()[0] if checked.stdout else checked.stderr)
    return int(num_failed + num_different + checked.returncode > 0)


if __name__ == "__main__":
    sys.exit(main())
