"""The runner carries decisions out to the letter: which rows emit, what fills, what a preempted request computes."""

import numpy as np
import pytest
import torch

from engine.clock import ManualClock
from engine.core.contents import RequestContents
from engine.core.decisions import (
    FinishReason,
    PreemptMode,
    PreemptReason,
    RejectReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import FinishFlag, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.execution.interface import StepResult
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.execution.weights.safetensors import read_folder
from engine.text.model_source import ModelSource
from engine.text.text_model import TextModel, load_text_model
from kernels.backend import Backend
from kernels.reference import ReferenceBackend
from tests.execution.model_files import random_model, save_folder
from tests.kernels.cuda_device import loaded_on_gpu

KEY = bytes(range(16))
BLOCK_SIZE = 4
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
PROMPT = tuple(range(10, 20))  # two full blocks and a half


@pytest.fixture(scope="module", params=["reference", "cuda"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """A tiny random model with 300 tokens."""
    parameters = read_folder(save_folder(random_model("llama3"), tmp_path_factory.mktemp("tiny"))).parameters
    if request.param == "cuda":
        return loaded_on_gpu(parameters, max_positions=128)
    backend = ReferenceBackend(num_threads=2)
    backend.load(parameters, 128)
    return backend


@pytest.fixture(scope="module")
def text_model(default_source: ModelSource) -> TextModel:
    return load_text_model(default_source)


@pytest.fixture
def runner(backend: Backend, text_model: TextModel) -> ModelRunner:
    return ModelRunner(backend, KVStore.allocate(backend, 32, BLOCK_SIZE), text_model, KEY, ManualClock())


def admit(runner: ModelRunner, request: int, *blocks: int, num_hit_blocks: int = 0) -> None:
    runner.carry_out(RequestAdmitted(request, blocks, num_hit_blocks, (), 0, 0))


def start(
    runner: ModelRunner, request: int, *blocks: int, sampling: SamplingParams = GREEDY, prompt: tuple[int, ...] = PROMPT
) -> None:
    runner.add_request(request, sampling, RequestContents(prompt))
    admit(runner, request, *blocks)


def execute(
    runner: ModelRunner, *rows: tuple[int, int, int], step: int = 0, new_blocks: tuple[tuple[int, int], ...] = ()
) -> StepResult:
    return runner.execute(StepPlanned(step, rows, new_blocks, (), 1, 0, 0, 0))


def answer(runner: ModelRunner, request: int, count: int, prompt_length: int = len(PROMPT)) -> list[StepCompleted]:
    """Decode `count` tokens after a prefill in one step."""
    results = [execute(runner, (request, 0, prompt_length))]
    results += [execute(runner, (request, prompt_length + index, 1)) for index in range(count - 1)]
    return [result.completed for result in results]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_a_row_that_reaches_the_last_known_token_emits(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    start(runner, 1, 4, 5, 6)
    result = execute(runner, (0, 0, 7), (1, 0, 10), step=5)
    assert result.completed.step == 5
    assert [emitted[0] for emitted in result.completed.emitted] == [1]
    assert [output.request for output in result.outputs] == [1]
    result = execute(runner, (1, 10, 1), (0, 7, 3))
    assert [output.request for output in result.outputs] == [1, 0]  # in the order of the plan's rows


def test_new_blocks_are_appended_before_the_step(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3, 4)
    expected = answer(runner, 0, 4)
    start(runner, 1, 7, 8, 9)
    answer(runner, 1, 3)
    result = execute(runner, (1, 12, 1), new_blocks=((1, 20),))
    assert result.completed.emitted[0][1:] == expected[3].emitted[0][1:]


def test_rows_of_requests_that_are_gone_are_skipped(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    start(runner, 1, 4, 5, 6)
    runner.carry_out(RequestFinished(0, FinishReason.CANCELLED, 10, 0, 0, 0, 3))
    result = execute(runner, (0, 0, 10), (1, 0, 10), new_blocks=((0, 9),))
    assert [output.request for output in result.outputs] == [1]
    assert execute(runner, (0, 10, 1)).completed == StepCompleted(0, (), (), 0, 0)


def test_a_rejected_duplicate_leaves_the_first_alone(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    runner.add_request(0, GREEDY, RequestContents((5, 5, 5)))
    runner.carry_out(RequestRejected(0, RejectReason.DUPLICATE_REQUEST, 0, 0, 0))
    assert [output.request for output in execute(runner, (0, 0, 10)).outputs] == [0]


def test_other_rejected_requests_are_forgotten(runner: ModelRunner) -> None:
    runner.add_request(0, GREEDY, RequestContents(PROMPT))
    runner.carry_out(RequestRejected(0, RejectReason.QUEUE_FULL, 0, 0, 0))
    runner.add_request(0, GREEDY, RequestContents((5, 6, 7)))
    admit(runner, 0, 1)
    assert len(execute(runner, (0, 0, 3)).outputs) == 1


# ── digests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_prompt_digests_are_chained_and_keyed(runner: ModelRunner, backend: Backend) -> None:
    first, second = runner.prompt_digests(RequestContents(PROMPT))
    assert len(first) == len(second) == 16
    assert runner.prompt_digests(RequestContents(PROMPT[:8])) == (first, second)
    changed_first = (99, *PROMPT[1:])
    assert not set(runner.prompt_digests(RequestContents(changed_first))) & {first, second}
    other = ModelRunner(backend, runner.kv_store, runner._text_model, bytes(16), ManualClock())
    assert not set(other.prompt_digests(RequestContents(PROMPT))) & {first, second}


def test_blocks_filled_beyond_the_prompts_own_are_reported_when_they_fill(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3, 4)
    filled = [completed.filled for completed in answer(runner, 0, 7)]
    # the prompt's two full blocks are not reported; tokens 8 … 11 are full once position 11 is computed
    assert [len(blocks) for blocks in filled] == [0, 0, 1, 0, 0, 0, 1]
    tokens = tuple(runner._requests[0].tokens)
    digests = runner.prompt_digests(RequestContents(tokens[:16]))
    assert filled[2] == ((0, digests[2]),)
    assert filled[6] == ((0, digests[3]),)


# ── preemption and the prefix cache ──────────────────────────────────────────────────────────────────────────────────


def preempt(runner: ModelRunner, request: int) -> None:
    runner.carry_out(RequestPreempted(request, 9, PreemptReason.OUT_OF_BLOCKS, PreemptMode.RECOMPUTE, 4, 12, 0))


def test_a_preempted_request_goes_on_with_the_same_bits(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3, 4)
    start(runner, 1, 5, 6, 7, 8)
    uninterrupted = answer(runner, 0, 6)
    answer(runner, 1, 3)
    preempt(runner, 1)
    admit(runner, 1, 20, 11, 15, 9)
    recomputed = execute(runner, (1, 0, 5)).completed, execute(runner, (1, 5, 8)).completed
    assert recomputed[0].emitted == ()
    assert recomputed[1].emitted[0][1:] == uninterrupted[3].emitted[0][1:]
    assert [digest for _, digest in recomputed[1].filled] == [digest for _, digest in uninterrupted[2].filled]
    assert execute(runner, (1, 13, 1)).completed.emitted[0][1:] == uninterrupted[4].emitted[0][1:]


def test_a_prefix_hit_changes_no_bit(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    cold = execute(runner, (0, 0, 10)).completed
    runner.add_request(1, GREEDY, RequestContents(PROMPT))
    admit(runner, 1, 1, 2, 9, num_hit_blocks=2)
    warm = execute(runner, (1, 8, 2)).completed
    assert warm.emitted[0][1:] == cold.emitted[0][1:]


def test_an_overwritten_slot_shows_in_the_hidden_digest(runner: ModelRunner) -> None:
    """The control: digests are not blind."""
    start(runner, 0, 1, 2, 3)
    start(runner, 1, 4, 5, 6)
    sound = answer(runner, 0, 3)
    execute(runner, (1, 0, 10))
    execute(runner, (1, 10, 1))
    runner.kv_store.copy_slot(1 * BLOCK_SIZE + 2, 4 * BLOCK_SIZE + 1)
    assert execute(runner, (1, 11, 1)).completed.emitted[0][2] != sound[2].emitted[0][2]


# ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_recorded_bits_are_those_of_the_reported_logprob(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    result = execute(runner, (0, 0, 10))
    assert np.uint32(result.completed.emitted[0][3]).view(np.float32) == result.outputs[0].logprob


def test_a_stop_token_is_emitted_and_flagged(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    (token,) = [output.token_id for output in execute(runner, (0, 0, 10)).outputs]
    runner.add_request(1, GREEDY, RequestContents(PROMPT, stop_token_ids=(token,)))
    admit(runner, 1, 4, 5, 6)
    result = execute(runner, (1, 0, 10))
    assert result.completed.emitted[0][1] == FinishFlag.STOP
    assert result.outputs[0].token_id == token


def test_an_end_of_text_token_stops_unless_it_is_ignored(runner: ModelRunner, text_model: TextModel) -> None:
    end = text_model.eos_token_ids[0]
    bias = ((end, 100.0),)
    flags = []
    for request, ignore_eos in enumerate((False, True)):
        sampling = GREEDY._replace(ignore_eos=ignore_eos)
        runner.add_request(request, sampling, RequestContents(PROMPT, logit_bias=bias))
        admit(runner, request, 1, 2, 3)
        result = execute(runner, (request, 0, 10))
        assert result.outputs[0].token_id == end
        flags.append(result.completed.emitted[0][1])
    assert flags == [FinishFlag.STOP, FinishFlag.NONE]


def test_before_min_tokens_no_stop_token_is_drawn(runner: ModelRunner, text_model: TextModel) -> None:
    end = text_model.eos_token_ids[0]
    sampling = SamplingParams(temperature=0.0, min_tokens=2)
    runner.add_request(0, sampling, RequestContents(PROMPT, logit_bias=((end, 100.0),)))
    admit(runner, 0, 1, 2, 3, 4)
    completed = answer(runner, 0, 3)
    assert [emitted[1] for step in completed for emitted in step.emitted] == [
        FinishFlag.NONE,
        FinishFlag.NONE,
        FinishFlag.STOP,
    ]


def test_a_row_with_poisoned_logits_fails_alone(
    runner: ModelRunner, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(backend, ReferenceBackend):
        pytest.skip("its weights cannot be exchanged one by one")
    start(runner, 0, 1, 2, 3)
    start(runner, 1, 4, 5, 6, prompt=(7,) * 10)
    sound = execute(runner, (0, 0, 10), (1, 0, 10))
    with torch.inference_mode():
        poisoned = backend.embedding.clone()
        poisoned[7] = torch.nan
    monkeypatch.setattr(backend, "embedding", poisoned)
    start(runner, 2, 7, 8, 9)
    start(runner, 3, 10, 11, 12, prompt=(7,) * 10)
    result = execute(runner, (3, 0, 10), (2, 0, 10))
    assert [emitted[:2] for emitted in result.completed.emitted] == [(3, FinishFlag.ERROR), (2, FinishFlag.NONE)]
    assert result.completed.emitted[1][2:] == sound.completed.emitted[0][2:]
    assert [output.request for output in result.outputs] == [2]


def test_phase_times_come_from_the_clock(backend: Backend, text_model: TextModel) -> None:
    class TickingClock(ManualClock):
        def now_ns(self) -> int:
            self.advance(100)
            return super().now_ns()

    runner = ModelRunner(backend, KVStore.allocate(backend, 4, BLOCK_SIZE), text_model, KEY, TickingClock())
    start(runner, 0, 0, 1, 2)
    completed = execute(runner, (0, 0, 10)).completed
    assert (completed.execute_ns, completed.sample_ns) == (100, 100)


def test_logprobs_are_reported_as_asked(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3, sampling=GREEDY._replace(num_logprobs=3))
    (output,) = execute(runner, (0, 0, 10)).outputs
    assert len(output.top_logprobs) == 3
    assert output.top_logprobs[0] == (output.token_id, output.logprob)


def test_nothing_is_kept_of_finished_requests(runner: ModelRunner) -> None:
    start(runner, 0, 1, 2, 3)
    execute(runner, (0, 0, 10))
    runner.carry_out(RequestFinished(0, FinishReason.LENGTH, 10, 1, 0, 0, 3))
    assert not runner._requests
