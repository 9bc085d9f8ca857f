"""Clients that leave between two prefill chunks (s06), by the hundreds (s07), all at once (s08).

Only the request of the client that left ends, at once, and nothing of it is left behind: no block, no gauge, no
descriptor. One daemon serves the three cases: four seats, a small pool, small steps.
"""

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.core.decisions import FinishReason
from engine.core.events import RequestCancelled, StepCompleted
from tests.integration.aftermath import num_finished, wait_idle
from tests.integration.client import Client, completion, connect
from tests.integration.daemon_process import DaemonProcess
from tests.integration.served import Served, serve
from tests.integration.trace import Trace, check_steps, limits_of, trace_of, until_ended, until_recorded

BLOCK_SIZE, NUM_BLOCKS, NUM_SEATS, STEP_TOKENS = 16, 64, 4, 16
FLAGS = {
    "block_size": BLOCK_SIZE,
    "num_kv_blocks": NUM_BLOCKS,
    "reserve_output": "none",
    "max_model_len": 1024,
    "max_num_seqs": NUM_SEATS,
    "max_num_batched_tokens": STEP_TOKENS,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("cancel"), **FLAGS) as served:
        yield served
        check_steps(trace_of(served.daemon), limits_of(served.daemon))


# ── s06: between two prefill chunks ──────────────────────────────────────────────────────────────────────────────────

NUM_PIECES = 10
LONG_PROMPT, FULL_PROMPT = 900, 900  # 57 steps: time to leave between two of them, however fast they are


def test_a_client_that_leaves_during_a_chunked_prefill_frees_all_of_its_blocks(served: Served) -> None:
    assert served.daemon.metrics()["reprise:kv_blocks_free"] == NUM_BLOCKS
    asyncio.run(leave_between_pieces(served))
    metrics = wait_idle(served.daemon)
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    assert metrics["reprise:kv_blocks_free"] == NUM_BLOCKS
    trace = asyncio.run(fill_the_pool(served))
    for number in range(NUM_PIECES):
        check_left_in_time(trace, f"long-{number}", min_prefilled=(number + 1) * STEP_TOKENS)
    assert trace["full"].preemptions == []


async def leave_between_pieces(served: Served) -> None:
    async with served.connect() as client:
        for number in range(NUM_PIECES):
            name, prefilled = f"long-{number}", (number + 1) * STEP_TOKENS
            body = completion(LONG_PROMPT, number, output=8, stream=number % 2 == 0)
            long = client.send(body, headers={"X-Request-Id": name})
            await until_recorded(served.daemon, has_computed(name, prefilled))
            await long.leave()
            await asyncio.to_thread(wait_idle, served.daemon, 3.0)


async def fill_the_pool(served: Served) -> Trace:
    """A request that needs nearly the whole pool."""
    assert NUM_BLOCKS - 8 < -(-(FULL_PROMPT + 8 - 1) // BLOCK_SIZE) <= NUM_BLOCKS
    async with served.connect() as client:
        full = await client.send(completion(FULL_PROMPT, 70, output=8), headers={"X-Request-Id": "full"}).until_end()
        assert full.status == 200
        assert len(full.token_ids) == 8
    return await until_ended(served.daemon, "full")


def has_computed(request_id: str, num_tokens: int) -> Callable[[Trace], bool]:
    """Have steps been completed that computed so many of the request's prompt tokens?"""

    def is_there(trace: Trace) -> bool:
        if request_id not in trace.lives:
            return False
        completed = {entry.event.step for entry in trace.entries if isinstance(entry.event, StepCompleted)}
        rows = trace[request_id].rows
        return sum(count for _position, step, _start, count in rows if step in completed) >= num_tokens

    return is_there


def check_left_in_time(trace: Trace, request_id: str, min_prefilled: int) -> None:
    life = trace[request_id]
    assert min_prefilled <= sum(count for _position, _step, _start, count in life.rows) < LONG_PROMPT, (
        "it did not leave between its first and its last chunk: the run proves nothing"
    )
    assert life.finish.reason == FinishReason.CANCELLED
    assert life.finish.num_output_tokens == 0
    last_planned_at, last_step = life.rows[-1][:2]
    assert last_planned_at < life.ended_at
    steps_after_its_last = [plan.step for position, plan in trace.plans if last_planned_at < position < life.ended_at]
    assert len(steps_after_its_last) <= 1, f"{steps_after_its_last} came between step {last_step} and the end"
    cancel = trace.entries[life.ended_at - trace.entries[0].sequence]
    assert isinstance(cancel.event, RequestCancelled), "the cancel itself ends it"


# ── s07: by the hundreds ─────────────────────────────────────────────────────────────────────────────────────────────

NUM_READERS, NUM_NON_READERS, AT_A_TIME = 200, 50, 8
NUM_PROBES, MAX_SLOWDOWN, NUM_TRIES = 7, 1.5, 3
MAX_NEW_DESCRIPTORS, MAX_GROWTH_BYTES = 5, 50 * 1024 * 1024


def test_hundreds_of_streams_that_are_closed_early_leave_nothing_behind(served: Served, tmp_path: Path) -> None:
    asyncio.run(probe(served.daemon))
    pids = processes_of(served.daemon.pid)
    descriptors_before, bytes_before = num_descriptors(pids), resident_bytes(pids)
    cancelled_before = num_finished(served.daemon.metrics(), FinishReason.CANCELLED)

    asyncio.run(storm(served))
    metrics = wait_idle(served.daemon, 5.0)
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    assert num_finished(metrics, FinishReason.CANCELLED) - cancelled_before == NUM_READERS + NUM_NON_READERS
    assert num_descriptors(pids) <= descriptors_before + MAX_NEW_DESCRIPTORS
    assert resident_bytes(pids) - bytes_before < MAX_GROWTH_BYTES
    with DaemonProcess(tmp_path, **FLAGS) as fresh:
        check_speed(served.daemon, fresh)

    trace = trace_of(served.daemon)
    leavers = [life for request_id, life in trace.lives.items() if request_id.startswith("leaver-")]
    assert len(leavers) == NUM_READERS + NUM_NON_READERS
    for life in leavers:
        assert life.finish.reason == FinishReason.CANCELLED
        assert life.finish.num_output_tokens == len(life.counts)
        assert life.finish.num_output_tokens >= life.arrival.request_id.startswith("leaver-read")


async def storm(served: Served) -> None:
    """Eight at a time: 200 leave after the first chunk of text, 50 when they were taken in, before any chunk."""
    async with served.connect() as client:
        kinds = [True] * NUM_READERS + [False] * NUM_NON_READERS
        numbers = iter(range(len(kinds)))

        async def one_client() -> None:
            for number in numbers:
                await leave_early(client, number, reads=kinds[number])

        await asyncio.gather(*[one_client() for _ in range(AT_A_TIME)])


async def leave_early(client: Client, number: int, *, reads: bool) -> None:
    body = completion(STEP_TOKENS // NUM_SEATS, 100 + number, output=200, stream=True)
    name = f"leaver-{'read' if reads else 'shut'}-{number}"
    leaver = client.send(body, headers={"X-Request-Id": name})
    await (leaver.until_tokens(1) if reads else leaver.until_accepted())
    assert leaver.status == 200
    await leaver.leave()
    assert not leaver.is_done


async def probe(daemon: DaemonProcess) -> float:
    """The latency of one small request, in seconds."""
    async with connect(daemon.base_url) as client:
        stream = await client.ask(completion(12, 1, output=6))
        assert stream.status == 200
        return stream.ended_at - stream.started_at


def check_speed(stormed: DaemonProcess, fresh: DaemonProcess) -> None:
    """The median latency is at most 1.5 times that of a daemon that never saw the storm, probed in turns with it.

    So a busy machine slows both; if it slows one by chance, a further try shows it, for what a storm left would stay.
    """
    asyncio.run(probe(fresh))
    figures = []
    for _ in range(NUM_TRIES):
        pairs = [(asyncio.run(probe(stormed)), asyncio.run(probe(fresh))) for _ in range(NUM_PROBES)]
        after, usual = (statistics.median(latencies) for latencies in zip(*pairs, strict=True))
        figures.append(f"{after:.3f} s against {usual:.3f} s")
        if after <= MAX_SLOWDOWN * usual:
            return
    raise AssertionError(f"the storm left the daemon slower than a fresh one: {figures}")


def processes_of(pid: int) -> list[int]:
    """The daemon and its children: the engine."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    return [pid, *map(int, children)]


def num_descriptors(pids: list[int]) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def resident_bytes(pids: list[int]) -> int:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


# ── s08: all at once ─────────────────────────────────────────────────────────────────────────────────────────────────

NUM_CROWD = 12
IDS = [f"r-{index}" for index in range(NUM_CROWD)]
COUNTER_SUFFIXES = ("_total", "_count", "_sum", "_bucket")


def test_gauges_fall_to_zero_when_all_clients_leave_at_once(served: Served) -> None:
    daemon = served.daemon
    readings = [daemon.metrics()]
    readings.append(asyncio.run(crowd(served)))
    assert readings[-1]["vllm:num_requests_running"] == NUM_SEATS
    assert readings[-1]["vllm:num_requests_waiting"] == NUM_CROWD - NUM_SEATS
    assert readings[-1]["vllm:kv_cache_usage_perc"] > 0

    readings.append(wait_idle(daemon, 3.0))
    assert readings[-1]["vllm:kv_cache_usage_perc"] == 0
    assert sum(value for name, value in readings[-1].items() if "waiting_by_reason" in name) == 0
    assert (
        num_finished(readings[-1], FinishReason.CANCELLED) - num_finished(readings[0], FinishReason.CANCELLED)
        == NUM_CROWD
    )
    time.sleep(1.0)
    readings.append(daemon.metrics())
    assert readings[-1]["vllm:num_requests_running"] == readings[-1]["vllm:num_requests_waiting"] == 0
    assert readings[-1]["vllm:generation_tokens_total"] == readings[-2]["vllm:generation_tokens_total"] > 0
    for earlier, later in itertools.pairwise(readings):
        for name, value in earlier.items():
            if name.partition("{")[0].endswith(COUNTER_SUFFIXES):
                assert later[name] >= value, f"{name} fell"

    trace = trace_of(daemon)
    ends = [trace[request_id].finish for request_id in IDS]
    assert {end.reason for end in ends} == {FinishReason.CANCELLED}
    assert sum(end.num_output_tokens == 0 for end in ends) == NUM_CROWD - NUM_SEATS
    assert sum(end.num_output_tokens for end in ends) == (
        readings[-1]["vllm:generation_tokens_total"] - readings[0]["vllm:generation_tokens_total"]
    )


async def crowd(served: Served) -> dict[str, float]:
    """Twelve come, four run, all leave at once; the metrics just before that."""
    async with served.connect() as client:
        body = completion(output=300, stream=True)
        streams = [
            client.send(body | {"prompt": completion(12, 400 + index)["prompt"]}, headers={"X-Request-Id": request_id})
            for index, request_id in enumerate(IDS)
        ]
        await asyncio.gather(*[stream.until_accepted() for stream in streams])
        running = [stream for stream in streams if stream.token_ids]
        while len(running) < NUM_SEATS:
            await asyncio.sleep(0.02)
            running = [stream for stream in streams if stream.token_ids]
        await asyncio.gather(*[stream.until_tokens(3) for stream in running])
        metrics = await asyncio.to_thread(served.daemon.metrics)
        await asyncio.gather(*[stream.leave() for stream in streams])
    await until_ended(served.daemon, *IDS)
    return metrics
