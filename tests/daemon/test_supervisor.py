"""An engine's life in the hands of its supervisor: starts that fail, deaths in a row, an engine that hears nothing."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from daemon.engine_client import EngineClient
from daemon.mailbox import EngineLost, Mailbox
from daemon.progress import Progress
from daemon.supervisor import MAX_QUICK_DEATHS, EngineGaveUp, EngineState
from daemon.urgency import Urgency
from engine.clock import ManualClock, SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.errors import EngineError
from engine.core.events import StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from tests.daemon.scripted_engine import SHORT_LIVED, STUCK, UNLOADABLE


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def client(model: str = "scripted") -> EngineClient:
    return EngineClient(EngineConfig(model), SystemClock(), "tests.daemon.scripted_engine")


def test_a_first_engine_that_says_why_it_cannot_start_is_not_tried_again() -> None:
    async def story() -> None:
        engine = client(UNLOADABLE)
        with pytest.raises(EngineGaveUp, match="the file is no model"):
            await engine.supervisor.run()
        assert engine.supervisor.state is EngineState.FAILED
        assert engine.supervisor.num_restarts == 0

    run(story)


def test_an_engine_that_dies_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.supervisor.FIRST_PAUSE_SECONDS", 0.01)

    async def story() -> None:
        engine = client(SHORT_LIVED)
        with pytest.raises(EngineGaveUp, match=f"died {MAX_QUICK_DEATHS} times in a row"):
            await engine.supervisor.run()
        assert engine.supervisor.num_restarts == MAX_QUICK_DEATHS - 1

    run(story)


def test_an_engine_stuck_in_a_step_is_killed_and_its_requests_are_lost() -> None:
    async def story() -> None:
        engine, mailbox = client(), Mailbox()
        running = asyncio.create_task(engine.supervisor.run())
        await engine.supervisor.became_ready.wait()
        contents = RequestContents((STUCK,))
        engine.send_request("r", 0, Urgency(), 0, 4, SamplingParams(), contents, mailbox)
        await mailbox.take()
        await engine.supervisor.stop("test", 0.2)
        await running
        assert (await mailbox.take(5))[-1] == (0, EngineLost())
        assert engine.supervisor.num_restarts == 0

    run(story)


def test_an_engine_that_is_still_loading_is_stopped_at_once() -> None:
    async def story() -> None:
        engine = client()
        running = asyncio.create_task(engine.supervisor.run())
        while engine.supervisor.pid is None:
            await asyncio.sleep(0)
        await engine.supervisor.stop("test", 60)
        await running
        assert not engine.supervisor.became_ready.is_set()

    run(story)


def test_time_without_progress_counts_only_while_work_waits() -> None:
    clock = ManualClock()
    progress = Progress(clock)
    clock.advance(100_000_000_000)
    assert progress.stalled_seconds == 0
    progress.note_work(1)
    clock.advance(7_000_000_000)
    assert progress.stalled_seconds == 7
    progress.note_work(2)  # another arrives: that is no progress
    assert progress.stalled_seconds == 7
    progress.note_entry(Entry(0, 0, StepCompleted(0, (), (), 0, 0), ()), 2)
    assert progress.stalled_seconds == 0
    clock.advance(1_000_000_000)
    progress.note_work(0)
    assert progress.stalled_seconds == 0


def test_the_policy_is_changed_while_serving_and_what_cannot_be_is_refused() -> None:
    async def story() -> None:
        engine = client()
        running = asyncio.create_task(engine.supervisor.run())
        await engine.supervisor.became_ready.wait()
        await engine.change_policy("fair", (("tenant_weights", (("a", 2),)),))
        with pytest.raises(EngineError, match="'lottery' is not known"):
            await engine.change_policy("lottery")
        with pytest.raises(EngineError, match="num_kv_blocks"):
            await engine.change_policy("fair", (("num_kv_blocks", 3),))
        assert engine.policy == "fair"
        await engine.supervisor.stop("done", 5)
        await running

    run(story)


def test_a_changed_policy_stays_in_charge_when_the_engine_is_started_again() -> None:
    async def story() -> None:
        engine = client()
        running = asyncio.create_task(engine.supervisor.run())
        await engine.supervisor.became_ready.wait()
        assert engine.policy == "fcfs"
        await engine.change_policy("fair", (("decode_token_price", 3),))
        await engine.change_policy("shortest", (("max_preemptions", 2),))
        assert engine.supervisor.pid is not None
        os.kill(engine.supervisor.pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            supervisor = engine.supervisor
            while (supervisor.num_restarts, supervisor.state, engine.policy) != (1, EngineState.READY, "shortest"):
                await asyncio.sleep(0.01)
        await engine.supervisor.stop("done", 5)
        await running

    run(story)
