"""What a runner tells of a prompt: once, whole, with the same bits however the rows were computed."""

import pytest

from engine.clock import ManualClock
from engine.core.contents import PromptLogprobs, RequestContents
from engine.core.decisions import PreemptMode, PreemptReason, RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import FinishFlag
from engine.core.sampling_params import SamplingParams
from engine.execution.interface import Runner, StepResult
from engine.execution.kv_store import KVStore
from engine.execution.prompt_logprobs import prompt_digest
from engine.execution.runner import ModelRunner
from engine.execution.scripted import ScriptedRunner
from engine.execution.weights.safetensors import read_folder
from kernels.reference import ReferenceBackend
from kernels.scoring import Integers, RowScores
from tests.daemon.text_models import byte_text_model
from tests.execution.model_files import random_model, save_folder

KEY = bytes(range(16))
PROMPT = tuple(range(10, 20))
SAMPLING = SamplingParams(temperature=0.0, ignore_eos=True, num_prompt_logprobs=3)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> ReferenceBackend:
    """A tiny random model with 300 tokens."""
    backend = ReferenceBackend(1)
    backend.load(read_folder(save_folder(random_model("llama3"), tmp_path_factory.mktemp("tiny"))).parameters, 128)
    return backend


@pytest.fixture
def model_runner(backend: ReferenceBackend) -> ModelRunner:
    return ModelRunner(backend, KVStore.allocate(backend, 32, 4), byte_text_model(), KEY, ManualClock())


@pytest.fixture(params=["model", "scripted"])
def runner(request: pytest.FixtureRequest, model_runner: ModelRunner) -> Runner:
    return ScriptedRunner(32, 4, KEY) if request.param == "scripted" else model_runner


def admit(runner: Runner, request: int, *blocks: int) -> None:
    runner.carry_out(RequestAdmitted(request, blocks, 0, (), 0, 0))


def preempt(runner: Runner, request: int, reason: PreemptReason = PreemptReason.OUT_OF_BLOCKS) -> None:
    runner.carry_out(RequestPreempted(request, request, reason, PreemptMode.RECOMPUTE, 3, 0, 0))


def execute(runner: Runner, *rows: tuple[int, int, int]) -> StepResult:
    return runner.execute(StepPlanned(0, rows, (), (), 1, 0, 0, 0))


def told(runner: Runner, request: int) -> PromptLogprobs:
    """In one step, alone."""
    runner.add_request(request, SAMPLING, RequestContents(PROMPT))
    admit(runner, request, 1, 2, 3)
    (prompt,) = execute(runner, (request, 0, len(PROMPT))).prompts
    return prompt._replace(request=0)


def test_each_token_but_the_first_has_its_own_and_the_digest_covers_them(runner: Runner) -> None:
    runner.add_request(0, SAMPLING, RequestContents(PROMPT))
    admit(runner, 0, 1, 2, 3)
    result = execute(runner, (0, 0, len(PROMPT)))
    (prompt,) = result.prompts
    assert prompt.num_tokens == len(PROMPT) - 1
    assert len(prompt.top_ids) == len(prompt.top_logprobs) == 4 * 3 * (len(PROMPT) - 1)
    assert result.completed.prompt_logprobs == ((0, len(PROMPT) - 1, prompt_digest(prompt)),)
    assert prompt_digest(prompt) != prompt_digest(prompt._replace(ranks=prompt.ranks[::-1]))


def test_chunks_and_company_change_no_bit_and_it_is_told_with_the_last_row(runner: Runner) -> None:
    expected = told(runner, 7)
    runner.add_request(1, SamplingParams(), RequestContents(PROMPT[::-1]))
    runner.add_request(0, SAMPLING, RequestContents(PROMPT))
    admit(runner, 1, 4, 5, 6)
    admit(runner, 0, 7, 8, 9)
    assert not execute(runner, (1, 0, 3), (0, 0, 1)).prompts
    assert not execute(runner, (0, 1, 7), (1, 3, 2)).prompts
    result = execute(runner, (1, 5, 5), (0, 8, 2))
    assert [prompt._replace(request=0) for prompt in result.prompts] == [expected]
    assert not execute(runner, (0, 10, 1)).prompts, "a decode tells nothing more"


def test_what_a_preempted_prompt_has_is_neither_lost_nor_told_twice(runner: Runner) -> None:
    expected = told(runner, 7)
    runner.add_request(0, SAMPLING, RequestContents(PROMPT))
    admit(runner, 0, 7, 8, 9)
    execute(runner, (0, 0, 6))
    preempt(runner, 0)
    admit(runner, 0, 9, 8, 7)
    execute(runner, (0, 0, 4))
    (again,) = execute(runner, (0, 4, 6)).prompts
    assert again == expected
    preempt(runner, 0)
    admit(runner, 0, 7, 8, 9)
    assert not execute(runner, (0, 0, 11)).prompts, "it was told with the first token"


def test_a_request_that_goes_on_in_another_engine_is_not_told_again(runner: Runner) -> None:
    runner.add_request(0, SAMPLING, RequestContents(PROMPT, output_token_ids=(5,)))
    admit(runner, 0, 7, 8, 9)
    result = execute(runner, (0, 0, 11))
    assert not result.prompts
    assert not result.completed.prompt_logprobs


def test_a_prompt_of_one_token_has_nothing_to_tell_and_says_so(runner: Runner) -> None:
    runner.add_request(0, SAMPLING, RequestContents(PROMPT[:1]))
    admit(runner, 0, 7)
    (prompt,) = execute(runner, (0, 0, 1)).prompts
    assert prompt.num_tokens == 0


def test_after_a_corrupt_block_all_rows_are_asked_again(backend: ReferenceBackend, model_runner: ModelRunner) -> None:
    runner = model_runner
    expected = told(runner, 7)
    runner.add_request(0, SAMPLING, RequestContents(PROMPT))
    admit(runner, 0, 7, 8, 9)
    execute(runner, (0, 0, 4))
    runner.kv_store.keys[:, 7] += 1.0
    execute(runner, (0, 4, 2))
    preempt(runner, 0, PreemptReason.KV_MISMATCH)
    admit(runner, 0, 9, 8, 7)
    (again,) = execute(runner, (0, 0, 10)).prompts
    assert again == expected


def test_logits_that_are_not_finite_end_the_request(
    backend: ReferenceBackend, model_runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, score = model_runner, backend.score

    def not_finite(rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        scores = score(rows, token_ids, num_top)
        scores.ranks[0] = 0
        return scores

    monkeypatch.setattr(backend, "score", not_finite)
    runner.add_request(0, SAMPLING, RequestContents(PROMPT))
    admit(runner, 0, 7, 8, 9)
    result = execute(runner, (0, 0, 10))
    assert result.completed.emitted[0][1] == FinishFlag.ERROR
    assert not result.outputs
