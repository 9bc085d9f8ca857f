"""One KV slot overwritten by another request's, on the real model: the replay verbs find whose, where and when."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.decisions import Decision, RequestAdmitted, StepPlanned
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.build import BuiltRunner, build_runner
from engine.execution.interface import StepResult
from engine.execution.passing_on import PassingOn
from engine.loop import EngineLoop
from engine.protocol import Arrive, Message, Stop
from recorder.header import Header
from recorder.reader import Recording
from recorder.writer import Recorder
from tests.integration.daemon_process import MODEL, reprise

SALT = bytes(range(16))
CONFIG = EngineConfig(
    model=MODEL, num_kv_blocks=24, max_model_len=128, max_num_seqs=4, max_num_batched_tokens=128, record_content=True
)
VICTIM, CULPRIT = 0, 1
NUM_OUTPUT_TOKENS = 12
FAULT_STEP = 6  # the victim, admitted in step 0, has drawn six tokens before
NUM_SOUND_TOKENS = 6


class FaultyRunner(PassingOn):
    """The real runner, but before step FAULT_STEP the culprit's slot 3 is copied over the victim's slot 3."""

    def __init__(self, built: BuiltRunner) -> None:
        super().__init__(built.runner)
        self._kv_store = built.runner.kv_store
        self._block_size = built.limits.block_size
        self._first_block: dict[int, int] = {}

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestAdmitted):
            self._first_block[decision.request] = decision.block_ids[0]
        super().carry_out(decision)

    def execute(self, plan: StepPlanned) -> StepResult:
        if plan.step == FAULT_STEP:
            source, target = (self._first_block[request] * self._block_size + 3 for request in (CULPRIT, VICTIM))
            self._kv_store.copy_slot(source, target)
        return super().execute(plan)


class Inbox:
    """All requests at once, and the end when they are done."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def get(self) -> Message:
        return self._messages.pop(0) if self._messages else Stop("test over")

    def drain(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages


def arrive(number: int) -> Arrive:
    contents = RequestContents(tuple(range(1_000 + 100 * number, 1_020 + 100 * number)))
    sampling = SamplingParams(temperature=0.0, ignore_eos=True)
    return Arrive(number, f"request-{number}", "t", 0, 0, NUM_OUTPUT_TOKENS, sampling, contents)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three requests in company, recorded while the fault strikes the first of them."""
    clock = SystemClock()
    built = build_runner(CONFIG, SALT, clock)
    folder = tmp_path_factory.mktemp("planted") / "run"
    header = Header(salt=SALT, limits=built.limits.to_dict(), config=asdict(CONFIG), environment=built.info)
    recorder = Recorder(folder, header, clock, record_content=True, max_segment_bytes=1 << 26, sync_interval_ms=1000)
    loop = EngineLoop(Core(built.limits), FaultyRunner(built), clock, recorder, lambda entry, outputs: None)
    recorder.close(loop.serve(Inbox([arrive(0), arrive(1), arrive(2)])))
    return folder


def first_difference(path: Path, *arguments: str) -> dict[str, Any]:
    result = reprise(*arguments, path, "--json")
    assert result.returncode == 1, result.stdout + result.stderr
    (divergence,) = json.loads(result.stdout)["divergences"]
    place: dict[str, Any] = divergence
    return place


def test_the_scheduler_cannot_have_noticed(recording: Path) -> None:
    assert reprise("check", recording).returncode == 0
    assert Recording.open(recording).is_complete


def test_execute_names_the_first_wrong_token(recording: Path) -> None:
    divergence = first_difference(recording, "execute")
    assert divergence["request"] == VICTIM
    assert divergence["step"] == FAULT_STEP


def test_isolate_names_the_first_wrong_token_and_clears_the_others(recording: Path) -> None:
    isolated = reprise("isolate", recording, "--all", "--prove", "--json")
    assert isolated.returncode == 1, isolated.stdout + isolated.stderr
    report = json.loads(isolated.stdout)
    (divergence,) = report["divergences"]
    assert divergence["request"] == VICTIM
    assert divergence["step"] == FAULT_STEP
    assert divergence["expected"]["output_index"] == NUM_SOUND_TOKENS
    assert divergence["proof"]["first"] is None, "this build has not the fault"
    assert "the fault was in the run that was recorded" in divergence["proof"]["remark"]
    for bystander in ("request-1", "request-2"):
        assert reprise("isolate", recording, bystander).returncode == 0
