"""Many streams at once: whole answers for who reads, honest refusals beyond the queue, and who reads nothing is let go.

The small form of `tests/bench/many_streams.py`: states only, no times.
"""

import asyncio
from pathlib import Path
from typing import Any

import uvloop

from engine.core.events import CancelCause, RequestCancelled
from recorder.reader import Recording
from tests.daemon.scripted_process import ScriptedDaemon
from tests.daemon.served import Served, completion
from tests.daemon.test_server import tell_alone
from tests.load.many_streams import ENDLESS_TOKENS, Load, overload
from tests.load.raw_client import Answer, Pace, ask

LOAD = Load(num_held=20, num_queued=30, num_beyond=10, num_slow=2, num_never=2, held_tokens=60, queued_tokens=4)
ENOUGH_BLOCKS = 20 * 8 + 2 * ENDLESS_TOKENS // 16


def test_who_reads_gets_all_who_does_not_is_dropped_and_the_rest_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "max_num_seqs": LOAD.num_held,
        "max_num_queued_reqs": LOAD.num_queued,
        "max_model_len": ENDLESS_TOKENS + 16,
        "num_kv_blocks": ENOUGH_BLOCKS,
        "client_timeout": 2.0,
        "audit_rate": 0.0,
    }
    with (
        ScriptedDaemon(tmp_path, {"SCRIPTED_STEP_SECONDS": "0.02"}, **options) as daemon,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        books = runner.run(overload(daemon.port, LOAD))
        daemon.until_idle()
    books.check()
    assert (daemon.told["num_live"], daemon.told["num_open_calls"]) == (0, 0)
    cancels = [each.event for each in Recording.open(tmp_path / "run").entries()]
    causes = {each.cause for each in cancels if isinstance(each, RequestCancelled)}
    assert causes <= {CancelCause.SLOW_CLIENT, CancelCause.CLIENT}
    assert causes, "those that read nothing were dropped while the engine worked for them"


def test_connections_beyond_the_bound_are_told_so_and_probes_are_answered() -> None:
    async def story(served: Served) -> None:
        port = int(served.base_url.rpartition(":")[2])
        body = completion(stream=True, max_tokens=2_000)
        answers, leave = [Answer() for _ in range(2)], asyncio.Event()
        held = [asyncio.create_task(ask(port, body, Pace.NEVER, answer, leave)) for answer in answers]
        await asyncio.gather(*[answer.has_begun.wait() for answer in answers])
        status, answer = await served.complete()
        assert (status, answer["error"]["code"]) == (503, "too_many_connections")
        async with served.session.get("/health") as response:
            assert response.status == 200
        for task in held:
            task.cancel()
        await asyncio.wait(held)
        await served.until(lambda: not len(served.service.engine.live))
        status, _ = await served.complete()
        assert status == 200

    tell_alone(story, max_connections=2, max_model_len=4096, num_kv_blocks=1024)
