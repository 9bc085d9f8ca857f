"""Requests of every kind on the real model, each step planned while the one before runs: the same bits as without."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from engine.clock import SystemClock
from engine.core.contents import TokenOutput
from engine.core.decisions import RequestFinished
from engine.core.events import KVMismatch, StepCompleted, StepLaunched
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.build import BuiltRunner, build_runner
from engine.loop import EngineLoop, NoRecord
from tests.integration.test_audits_of_the_default_model import CONFIG, Inbox, requests


class Served(NamedTuple):
    """tokens, bits   of each request, as far as it went; ends: why it ended"""

    entries: list[Entry]
    tokens: dict[int, list[int]]
    bits: dict[int, list[tuple[int, int]]]
    ends: dict[int, str]


@pytest.fixture(scope="module")
def built() -> BuiltRunner:
    return build_runner(CONFIG, bytes(16), SystemClock())


def serve(built: BuiltRunner, *, plans_ahead: bool, kv_digests: bool) -> Served:
    limits = replace(built.limits, async_scheduling=plans_ahead)
    runner = built.runner.emptied(limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
    if not kv_digests:
        runner.watch = None
    served = Served([], {}, {}, {})

    def publish(entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        served.entries.append(entry)
        for output in outputs:
            served.tokens.setdefault(output.request, []).append(output.token_id)
        bits = {row[0]: row[2:] for row in getattr(entry.event, "emitted", ())}
        for output in outputs:
            served.bits.setdefault(output.request, []).append(bits[output.request])
        for decision in entry.decisions:
            if isinstance(decision, RequestFinished):
                served.ends[decision.request] = decision.reason

    loop = EngineLoop(Core(limits), runner, SystemClock(), NoRecord(), publish, watch=runner.watch)
    with capture_logs():
        loop.serve(Inbox(requests(), []))
    assert not any(isinstance(entry.event, KVMismatch) for entry in served.entries)
    return served


@pytest.fixture(scope="module")
def in_turn(built: BuiltRunner) -> Served:
    return serve(built, plans_ahead=False, kv_digests=False)


@pytest.mark.parametrize("kv_digests", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_request_gets_the_tokens_and_bits_that_it_gets_in_turn(
    built: BuiltRunner, in_turn: Served, kv_digests: bool
) -> None:
    ahead = serve(built, plans_ahead=True, kv_digests=kv_digests)
    assert in_turn.ends.pop(5, "cancelled") == ahead.ends.pop(5) == "cancelled"
    assert ahead.ends == in_turn.ends
    for request in ahead.ends:
        assert ahead.tokens[request] == in_turn.tokens[request], request
        assert ahead.bits[request] == in_turn.bits[request], request
    shared = min(len(ahead.bits[5]), len(in_turn.bits[5]))  # it leaves at some step
    assert ahead.bits[5][:shared] == in_turn.bits[5][:shared]
    num_steps = sum(isinstance(entry.event, StepCompleted) for entry in ahead.entries)
    num_ahead = sum(isinstance(entry.event, StepLaunched) and bool(entry.decisions) for entry in ahead.entries)
    assert num_ahead > num_steps // 3
