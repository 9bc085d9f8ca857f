"""The engine process dies under a real server: the clients notice a pause, the recording tells each token once."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from daemon.supervisor import EngineState
from engine.core.events import ExecutorRestarted, PolicyChanged, RequestArrived
from recorder.incidents import Incident, pins_of
from recorder.reader import Recording
from recorder.timeline import Timeline
from replay.check import check
from replay.figures import read_timeline
from replay.lives import Run
from replay.request_story import story as story_of
from tests.daemon.scripted_engine import FATAL, POISON
from tests.daemon.served import Served, completion, serving

Story = Callable[[Served], Coroutine[Any, Any, None]]
NUM_TOKENS = 120


def tell(story: Story, record_dir: Path | None = None, **options: Any) -> None:
    async def run() -> None:
        async with serving(record_dir, **options) as served:
            await story(served)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def kill_engine(served: Served) -> None:
    """As soon as it is ready; returns when the next one is."""
    supervisor = served.service.engine.supervisor
    await served.until(lambda: supervisor.state is EngineState.READY, 30)
    num_restarts = supervisor.num_restarts
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await served.until(lambda: supervisor.num_restarts > num_restarts and supervisor.state is EngineState.READY, 30)


async def until_tokens(served: Served, count: int) -> None:
    await served.until(lambda: served.service.engine.live.num_tokens >= count, 30)


def bodies(**fields: Any) -> list[dict[str, Any]]:
    """Greedy and seeded, long and short prompts; more than run at a time."""
    return [
        completion(prompt=[5 + number] * (3 + 11 * number), max_tokens=NUM_TOKENS, seed=number, **fields)
        for number in range(5)
    ]


async def ask_all(served: Served, *, stream: bool) -> list[Any]:
    options = {"stream_options": {"include_usage": True}, "return_token_ids": True} if stream else {}
    asking = [
        served.events("/v1/completions", {**body, **options})
        if stream
        else served.post("/v1/completions", {**body, "return_token_ids": True})
        for body in bodies()
    ]
    return list(await asyncio.gather(*asking))


def told(answers: list[Any], *, stream: bool) -> list[tuple[list[int], str, Any]]:
    """Token ids, text and usage of each."""
    found = []
    for answer in answers:
        chunks = [json.loads(line) for line in answer if line != "[DONE]"] if stream else [answer[1]]
        assert not any("error" in chunk for chunk in chunks), chunks[-1]
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        token_ids = [token_id for choice in choices for token_id in choice["token_ids"]]
        found.append((token_ids, "".join(choice["text"] for choice in choices), chunks[-1]["usage"]))
    return found


def test_answers_and_usage_are_those_of_an_engine_that_never_died(tmp_path: Path) -> None:
    expected: list[Any] = []

    async def undisturbed(served: Served) -> None:
        expected.extend(told(await ask_all(served, stream=True), stream=True))
        assert told(await ask_all(served, stream=False), stream=False) == expected

    async def killed_twice(served: Served) -> None:
        for stream in (True, False):
            before = served.service.engine.live.num_tokens
            asking = asyncio.create_task(ask_all(served, stream=stream))
            await until_tokens(served, before + 60)
            await kill_engine(served)
            await kill_engine(served)  # perhaps before anybody got another token
            assert told(await asking, stream=stream) == expected
        assert served.service.engine.handover.num_blamed == 0
        async with served.session.get("/metrics") as response:
            assert "reprise:requests_handed_over_total" in await response.text()
        live = served.service.engine.timeline
        assert live.totals.generation_tokens == 2 * 5 * NUM_TOKENS
        assert (live.num_running, live.num_waiting, live.num_blocks_free) == (0, 0, live.num_kv_blocks)

    limits: dict[str, Any] = {"max_num_seqs": 3, "enable_prefix_caching": False}
    tell(undisturbed, **limits)
    tell(killed_twice, tmp_path / "run", record_content=True, **limits)
    check_books(tmp_path / "run", 2 * sum(usage["completion_tokens"] for _ids, _text, usage in expected))


def check_books(recording: Path, num_tokens: int) -> None:
    """Each token counts once in the sums, also those that a dead engine recorded and did not deliver."""
    verdict = check(recording)
    assert verdict.exit_code == 0, verdict
    timeline = read_timeline(Run.open(recording))
    totals = timeline.totals
    assert totals.generation_tokens == num_tokens
    assert totals.finished == {"length": 10}
    assert totals.num_requests == 10
    assert totals.num_handovers >= 10
    assert not timeline.live
    for span in timeline.spans.values():
        assert span.num_output_tokens == len(span.token_times_ns or ()) == NUM_TOKENS
    without_spans = Timeline()
    for entry in Recording.open(recording).entries():
        without_spans.apply(entry)
    assert without_spans.totals.generation_tokens == num_tokens
    assert without_spans.totals.finished == {"length": 10}
    contents = Recording.open(recording).contents()
    assert {len(contents.outputs(number)) for number in timeline.spans} == {NUM_TOKENS}
    lines = [line.text for line in story_of(Run.open(recording), 0)]
    assert any("handed over with" in line for line in lines)


def test_a_request_that_kills_the_engine_fails_alone_and_is_kept(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        engine = served.service.engine
        alone = await served.complete(max_tokens=400)
        streaming = asyncio.create_task(served.events("/v1/completions", completion(max_tokens=400)))
        plain = asyncio.create_task(served.complete(max_tokens=400))
        await until_tokens(served, engine.live.num_tokens + 20)
        headers = {"X-Request-Id": "poison"}
        status, answer = await served.post("/v1/completions", completion(prompt=[POISON]), headers=headers)
        assert (status, answer["error"]["code"]) == (500, "request_kills_engine")
        assert "poison" in answer["error"]["message"]
        assert (await plain)[1]["choices"] == alone[1]["choices"]
        text = "".join(json.loads(line)["choices"][0]["text"] for line in (await streaming)[:-1])
        assert text == alone[1]["choices"][0]["text"]
        lines = await served.events("/v1/completions", completion(prompt=[FATAL]))
        assert json.loads(lines[-2])["error"]["code"] == "request_kills_engine"
        assert (await served.complete())[0] == 200
        assert engine.handover.num_blamed == 2

    tell(story, tmp_path / "run")
    assert check(tmp_path / "run").exit_code == 0
    segments = Recording.open(tmp_path / "run").segments
    reasons = {pin.reason for segment in segments for pin in pins_of(segment.path)}
    assert Incident.REQUEST_KILLS_ENGINE in reasons
    restarts = [e.event for e in Recording.open(tmp_path / "run").entries() if isinstance(e.event, ExecutorRestarted)]
    assert [event.blamed for event in restarts if event.blamed] != []


def test_new_requests_wait_for_the_next_engine_and_readiness_says_so() -> None:
    async def story(served: Served) -> None:
        engine = served.service.engine
        assert engine.supervisor.pid is not None
        os.kill(engine.supervisor.pid, signal.SIGKILL)
        await served.until(lambda: engine.supervisor.state is EngineState.RESTARTING)
        asking = asyncio.create_task(served.complete())
        left = asyncio.create_task(served.complete())
        await served.until(lambda: len(engine.live) == 2)
        async with served.session.get("/ready") as response:
            assert response.status == 503
        async with served.session.get("/health") as response:
            assert (await response.json())["engine"] == "restarting"
        left.cancel()
        status, answer = await served.complete(max_tokens=1)
        assert status == 200, answer
        assert (await asking)[0] == 200
        await served.until(lambda: len(engine.live) == 0)

    tell(story)


def test_what_waits_for_an_engine_is_bounded() -> None:
    async def story(served: Served) -> None:
        engine = served.service.engine
        assert engine.supervisor.pid is not None
        os.kill(engine.supervisor.pid, signal.SIGKILL)
        await served.until(lambda: engine.supervisor.state is EngineState.RESTARTING)
        waiting = [asyncio.create_task(served.complete()) for _ in range(2)]
        await served.until(lambda: len(engine.live) == 2)
        status, answer = await served.complete()
        assert (status, answer["error"]["code"]) == (503, "engine_not_ready")
        await asyncio.gather(*waiting)

    tell(story, max_num_queued_reqs=2)


def test_a_drain_waits_for_handed_over_requests(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        running = asyncio.create_task(served.complete(max_tokens=200))
        await until_tokens(served, 5)
        draining = asyncio.create_task(served.drained())
        await served.until(lambda: served.service.is_draining)
        await kill_engine(served)
        status, answer = await running
        assert (status, answer["usage"]["completion_tokens"]) == (200, 200)
        await draining

    tell(story, tmp_path / "run", drain_timeout=30.0)
    arrivals = [e.event for e in Recording.open(tmp_path / "run").entries() if isinstance(e.event, RequestArrived)]
    assert [event.num_handovers for event in arrivals] == [0, 1]
    assert arrivals[1].num_output_tokens > 0


def test_what_tenants_were_served_is_counted_on_after_a_death_and_the_decisions_can_be_checked(tmp_path: Path) -> None:
    async def killed(served: Served) -> None:
        engine = served.service.engine
        assert (await served.complete(max_tokens=4))[0] == 200
        await served.until(lambda: engine.counted)
        await kill_engine(served)
        await served.until(lambda: engine.supervisor.state is EngineState.READY)
        assert (await served.complete(max_tokens=4))[0] == 200

    tell(killed, tmp_path / "run", scheduling_policy="fair")
    events = [entry.event for entry in Recording.open(tmp_path / "run").entries()]
    (changed,) = [event for event in events if isinstance(event, PolicyChanged)]
    assert (changed.policy, changed.parameters) == ("fair", ())
    ((tenant, counter),) = changed.counted
    assert (tenant, counter > 0) == ("default", True)
    assert check(tmp_path / "run").exit_code == 0
