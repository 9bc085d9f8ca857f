"""An operator's own policy in the engine process: named by a flag, its digest in the header, its run checked again."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from daemon.engine_client import EngineClient
from daemon.mailbox import Mailbox
from daemon.supervisor import EngineGaveUp
from daemon.urgency import Urgency
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.decisions import RequestFinished
from engine.core.sampling_params import SamplingParams
from engine.own_policy import POLICY_DIGEST, load_own_policy
from recorder.reader import Recording
from replay.check import check
from replay.verdict import Outcome

NAME = "tests.engine.own_policies:Lifo"
NUM_REQUESTS = 4


def client(policy: str, record_dir: Path) -> EngineClient:
    config = EngineConfig("scripted", scheduling_policy=policy, max_num_seqs=1, record_dir=str(record_dir))
    return EngineClient(config, SystemClock(), "tests.daemon.scripted_engine")


async def serve_some(engine: EngineClient) -> None:
    mailbox = Mailbox()
    running = asyncio.create_task(engine.supervisor.run())
    await engine.supervisor.became_ready.wait()
    for number in range(NUM_REQUESTS):
        sampling = SamplingParams(ignore_eos=True)
        engine.send_request(f"r{number}", number, Urgency(), 0, 4, sampling, RequestContents((number + 1,)), mailbox)
    num_ended = 0
    while num_ended < NUM_REQUESTS:
        num_ended += sum(isinstance(item, RequestFinished) for _index, item in await mailbox.take(10))
    await engine.supervisor.stop("done", 5)
    await running


def test_a_run_under_an_own_policy_says_so_in_its_header_and_is_checked_equal(tmp_path: Path) -> None:
    engine = client(NAME, tmp_path / "run")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_some(engine))
    header = Recording.open(tmp_path / "run").header
    assert header.limits["scheduling_policy"] == NAME
    assert header.environment[POLICY_DIGEST] == load_own_policy(NAME).sha256
    verdict = check(tmp_path / "run")
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()


def test_an_own_policy_that_cannot_be_found_keeps_the_engine_from_starting_and_says_why(tmp_path: Path) -> None:
    engine = client("no_such_module:Lifo", tmp_path / "run")
    wanted = pytest.raises(EngineGaveUp, match="no_such_module cannot be imported")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, wanted:
        runner.run(engine.supervisor.run())
