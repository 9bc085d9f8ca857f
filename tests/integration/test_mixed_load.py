"""The slice's proof: two runs of a mixed load under pressure, each replayed in all three ways, to the last bit.

What clients received, what /metrics counted and what the recording says are three witnesses of one run; and the two
runs, batched and preempted differently, gave every client the same tokens with the same digests.
"""

import asyncio
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted, RequestFinished, RequestPreempted, StepPlanned, TokensEmitted
from engine.core.events import RequestArrived, RequestCancelled, StepCompleted
from engine.core.vocabulary import Entry
from tests.integration.aftermath import entries_of, wait_idle
from tests.integration.client import Stream, connect
from tests.integration.daemon_process import DaemonProcess, reprise
from tests.integration.mixed_load import MAX_PROMPT, NUM_LEAVERS, NUM_REQUESTS, plan_load, run_load

LOAD_SEED = 1
FLAGS = {
    "block_size": 8,
    "num_kv_blocks": 80,
    "reserve_output": "none",
    "watermark_permille": 0,
    "thrash_bound_permille": 0,
    "scheduling_phases": "chunked",  # the two budgets batch the load differently
    "max_num_seqs": 24,
    "max_model_len": MAX_PROMPT + 40,
}
TOKEN_BUDGETS = (128, 100)  # of the two runs: the same load is batched and preempted differently
MIN_PREEMPTIONS = 12  # about 20 where the machine is quick


@dataclass
class LoadedRun:
    """One run: its recording, what clients received, and the metrics at its end."""

    recording: Path
    streams: dict[str, Stream]
    metrics: dict[str, float]
    entries: list[Entry] = field(default_factory=list)

    @property
    def finished(self) -> dict[str, Stream]:
        return {name: stream for name, stream in self.streams.items() if stream.is_done}

    def of_type(self, kind: type[Any]) -> list[Any]:
        return [record for entry in self.entries for record in (entry.event, *entry.decisions) if type(record) is kind]


def run_once(directory: Path, token_budget: int) -> LoadedRun:
    load = plan_load(LOAD_SEED)
    with DaemonProcess(directory, max_num_batched_tokens=token_budget, **FLAGS) as daemon:

        async def clients() -> dict[str, Stream]:
            async with connect(daemon.base_url) as client:
                return await run_load(client, load)

        streams = asyncio.run(clients())
        metrics = wait_idle(daemon)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        recording = daemon.recording
    return LoadedRun(recording, streams, metrics, entries_of(recording))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[LoadedRun]:
    return [run_once(tmp_path_factory.mktemp(f"run{budget}-"), budget) for budget in TOKEN_BUDGETS]


@pytest.mark.timeout(900)
def test_the_load_is_worth_its_name(runs: list[LoadedRun]) -> None:
    for run in runs:
        arrived = run.of_type(RequestArrived)
        assert len(arrived) == NUM_REQUESTS
        assert max(event.num_prompt_tokens for event in arrived) == MAX_PROMPT
        assert min(event.num_prompt_tokens for event in arrived) == 8
        assert len({event.sampling.temperature for event in arrived}) == 2
        assert len(run.of_type(RequestPreempted)) >= MIN_PREEMPTIONS
        assert len(run.of_type(RequestCancelled)) == NUM_LEAVERS
        assert sum(decision.num_hit_blocks for decision in run.of_type(RequestAdmitted)) >= 20
        assert max(len(plan.rows) for plan in run.of_type(StepPlanned)) >= 10
        assert len(run.finished) == NUM_REQUESTS - NUM_LEAVERS


def test_clients_metrics_and_recording_tell_the_same_sums(runs: list[LoadedRun]) -> None:
    for run in runs:
        ids = {event.request: event.request_id for event in run.of_type(RequestArrived)}
        ends = {ids[end.request]: end for end in run.of_type(RequestFinished)}
        assert len(ends) == NUM_REQUESTS
        for name, stream in run.finished.items():
            assert stream.usage is not None
            assert stream.usage["prompt_tokens"] == ends[name].num_prompt_tokens
            assert stream.usage["completion_tokens"] == ends[name].num_output_tokens == len(stream.token_ids)
            assert stream.usage["prompt_tokens_details"]["cached_tokens"] == ends[name].num_cached_tokens
        metrics = run.metrics
        emitted = sum(len(decision.rows) for decision in run.of_type(TokensEmitted))
        assert metrics["vllm:generation_tokens_total"] == emitted
        assert emitted == sum(end.num_output_tokens for end in ends.values())
        assert metrics["vllm:num_preemptions_total"] == len(run.of_type(RequestPreempted))
        assert metrics["vllm:request_success_total"] == NUM_REQUESTS
        aborted = [value for name, value in metrics.items() if "request_success" in name and '"abort"' in name]
        assert sum(aborted) == NUM_LEAVERS
        assert metrics["vllm:kv_cache_usage_perc"] == 0


def test_the_core_decides_the_same_again(runs: list[LoadedRun]) -> None:
    for run in runs:
        checked = reprise("check", run.recording, "--json")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert json.loads(checked.stdout)["result"] == "equal"


@pytest.mark.timeout(900)
def test_the_model_computes_the_same_bits_again(runs: list[LoadedRun]) -> None:
    for run in runs:
        executed = reprise("execute", run.recording, "--json")
        assert executed.returncode == 0, executed.stdout + executed.stderr
        emitted = sum(len(event.emitted) for event in run.of_type(StepCompleted))
        assert json.loads(executed.stdout)["figures"]["tokens"] == emitted > 1_500


@pytest.mark.timeout(900)
def test_every_request_gets_the_same_bits_alone(runs: list[LoadedRun]) -> None:
    isolated = reprise("isolate", runs[0].recording, "--all", "--json")
    assert isolated.returncode == 0, isolated.stdout + isolated.stderr
    emitters = {event[0] for completed in runs[0].of_type(StepCompleted) for event in completed.emitted}
    assert json.loads(isolated.stdout)["figures"]["requests"] == len(emitters) >= NUM_REQUESTS - NUM_LEAVERS


def test_the_second_run_gave_every_client_the_bits_of_the_first(runs: list[LoadedRun]) -> None:
    """So that what isolation proved for the first run holds for the second, which was batched differently."""
    first, second = (digests_by_request(run) for run in runs)
    for name in runs[0].finished:
        assert runs[0].streams[name].token_ids == runs[1].streams[name].token_ids
        assert first[name] == second[name]
    assert [plan.rows for plan in runs[0].of_type(StepPlanned)] != [plan.rows for plan in runs[1].of_type(StepPlanned)]


def digests_by_request(run: LoadedRun) -> dict[str, list[tuple[int, int]]]:
    """request_id → (hidden digest, log-probability bits) per output token."""
    ids = {event.request: event.request_id for event in run.of_type(RequestArrived)}
    digests: dict[str, list[tuple[int, int]]] = {name: [] for name in ids.values()}
    for completed in run.of_type(StepCompleted):
        for request, _flag, hidden, logprob in completed.emitted:
            digests[ids[request]].append((hidden, logprob))
    return digests
