"""s05: a client that leaves the queue ends its own request and nobody else's."""

import asyncio
import itertools
import statistics
from collections.abc import Iterator

import pytest

from engine.core.decisions import FinishReason
from engine.core.events import StepCompleted
from tests.integration.client import Stream, completion
from tests.integration.served import Served, serve
from tests.integration.trace import Trace, until_ended, until_recorded

MIN_ACTIVE, MAX_ACTIVE = 24, 200  # output tokens of the active request: what a second gives, whatever the speed
ACTIVE_SECONDS = 1.0
LEAVERS_COME_AT = 3  # tokens of the active request
MAX_SILENCE_NS = 1_000_000_000


@pytest.fixture(scope="module")
def one_seat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("one_seat"), max_num_seqs=1) as served:
        yield served


@pytest.fixture(scope="module")
def reference(one_seat: Served) -> Stream:
    """The active request alone, long enough for others to come and go beside it."""

    async def alone() -> Stream:
        async with one_seat.connect() as client:
            short = await client.ask(active_body(MIN_ACTIVE))
            seconds = statistics.median(b - a for a, b in itertools.pairwise(short.token_times))
            num_tokens = min(int(ACTIVE_SECONDS / seconds), MAX_ACTIVE)
            return short if num_tokens <= MIN_ACTIVE else await client.ask(active_body(num_tokens))

    return asyncio.run(alone())


def active_body(num_tokens: int) -> dict[str, object]:
    return completion(20, 1, output=num_tokens, stream=True)


@pytest.mark.parametrize(
    ("num_leavers", "streams"),
    [
        pytest.param(1, True, id="one-streaming"),
        pytest.param(1, False, id="one-not-streaming"),
        pytest.param(10, True, id="ten-at-once"),
    ],
)
def test_a_client_that_leaves_the_queue_does_not_touch_the_running_request(
    one_seat: Served, reference: Stream, num_leavers: int, streams: bool
) -> None:
    name = f"{num_leavers}-{'streaming' if streams else 'whole'}"
    leaver_ids = [f"leaver-{index}-of-{name}" for index in range(num_leavers)]

    num_tokens = len(reference.token_ids)

    async def case() -> Trace:
        async with one_seat.connect() as client:
            active = client.send(active_body(num_tokens), headers={"X-Request-Id": f"active-{name}"})
            await active.until_tokens(LEAVERS_COME_AT)
            leavers = [
                client.send(completion(20, 2 + index, output=80, stream=streams), headers={"X-Request-Id": request_id})
                for index, request_id in enumerate(leaver_ids)
            ]
            await until_recorded(one_seat.daemon, lambda trace: trace.lives.keys() >= set(leaver_ids))
            await active.until_tokens(num_tokens // 3)
            await asyncio.gather(*[leaver.leave() for leaver in leavers])
            await active.until_tokens(num_tokens // 2)
            following = client.send(completion(12, 20, output=8), headers={"X-Request-Id": f"next-{name}"})
            await active.until_end()
            assert active.finish_reason == "length"
            assert (active.text, active.token_ids) == (reference.text, reference.token_ids)
            await following.until_end()
            assert following.status == 200
            assert len(following.token_ids) == 8
            trace = await until_ended(one_seat.daemon, f"next-{name}", *leaver_ids)
            check_pace(trace, active, f"active-{name}")
            return trace

    trace = asyncio.run(case())
    for request_id in leaver_ids:
        leaver = trace[request_id]
        assert leaver.finish.reason == FinishReason.CANCELLED
        assert leaver.finish.num_output_tokens == 0
        assert leaver.rows == []
        assert leaver.ended_at < trace[f"active-{name}"].ended_at, "it left too late: the run proves nothing"


def check_pace(trace: Trace, active: Stream, request_id: str) -> None:
    """A token in every step, each step its own alone; the engine and the daemon are never silent beside the steps.

    The time that a step computes is left out: it says how busy the machine is, not what the daemon did.
    """
    life = trace[request_id]
    first, last = life.token_steps[0], life.token_steps[-1]
    assert life.token_steps == list(range(first, last + 1))
    assert all(len(plan.rows) == 1 for _position, plan in trace.plans if first <= plan.step <= last)
    computing_ns = {
        entry.event.step: entry.event.execute_ns + entry.event.sample_ns
        for entry in trace.entries
        if isinstance(entry.event, StepCompleted)
    }
    for index in range(1, len(life.token_times)):
        gap_ns = life.token_times[index] - life.token_times[index - 1]
        assert gap_ns - computing_ns[life.token_steps[index]] < MAX_SILENCE_NS
    for received, emitted_ns in zip(active.token_times, life.token_times, strict=True):  # one clock for all processes
        assert received * 1e9 - emitted_ns < MAX_SILENCE_NS
