"""What is asked of a server is a function of the seeds."""

import os
import statistics
import subprocess
import sys
from collections import Counter
from itertools import pairwise, takewhile

import pytest

from daemon.bench.prompts import FORMS, IdRange, write_prompts
from daemon.bench.workloads import SHAPES, ClosedLoop, OpenLoop, plan_workload
from engine.text.model_source import resolve_model
from engine.text.text_model import load_text_model

LARGE = ClosedLoop(16, 4000)


@pytest.mark.parametrize("name", SHAPES)
def test_a_seed_gives_the_same_load_again_and_another_seed_another(name: str) -> None:
    assert plan_workload(name, 7) == plan_workload(name, 7)
    if name != "W1":  # nothing is drawn for it
        assert plan_workload(name, 7).requests != plan_workload(name, 8).requests


def test_a_seed_gives_the_same_load_in_every_process() -> None:
    script = (
        "from daemon.bench.workloads import plan_workload; from daemon.bench.prompts import write_prompts\n"
        "for name in ('W2', 'W3'): w = plan_workload(name, 3); print(w.requests, write_prompts(w, 'text', 5)[:9])"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1] != ""


def test_the_first_requests_of_w2_are_what_they_have_always_been() -> None:
    """Figures of earlier versions can only be compared while this holds."""
    drawn = [(request.num_prompt_tokens, request.num_output_tokens) for request in plan_workload("W2", 1).requests[:4]]
    assert drawn == [(156, 36), (209, 19), (173, 31), (63, 48)]
    prompt = write_prompts(plan_workload("W2", 1), "text", 1)[0].fields["prompt"]
    assert prompt.startswith("And low face turned each coast but color. If west drew its between the town.")


def test_w1_is_one_stream_of_128_in_and_128_out() -> None:
    workload = plan_workload("W1", 1)
    assert workload.load == ClosedLoop(1, 5)
    assert {(r.num_prompt_tokens, r.num_output_tokens) for r in workload.requests} == {(128, 128)}


def test_w2_answers_are_skewed_short() -> None:
    assert plan_workload("W2", 1).load == ClosedLoop(16, 64)
    requests = plan_workload("W2", 1, LARGE).requests
    assert (min(r.num_prompt_tokens for r in requests), max(r.num_prompt_tokens for r in requests)) == (32, 256)
    outputs = [r.num_output_tokens for r in requests]
    assert (min(outputs), max(outputs)) == (16, 256)
    assert 0.57 < sum(n < 48 for n in outputs) / len(outputs) < 0.63
    assert 0.12 < sum(n > 128 for n in outputs) / len(outputs) < 0.18


def test_w3_mixes_short_chats_with_long_prompts() -> None:
    requests = plan_workload("W3", 1, LARGE).requests
    kinds = Counter(r.kind for r in requests)
    assert 0.065 < kinds["long"] / len(requests) < 0.095
    assert {r.num_prompt_tokens for r in requests if r.kind == "long"} == {1000}
    short = [r for r in requests if r.kind == "short"]
    assert {r.num_prompt_tokens for r in short} == set(range(32, 129))
    assert {r.num_output_tokens for r in short} == set(range(16, 97))


def test_arrivals_are_poisson_at_the_given_rate() -> None:
    dues = [r.due_s for r in plan_workload("W3", 1, OpenLoop(50.0, 100.0)).requests]
    gaps = [later - earlier for earlier, later in pairwise(dues) if later and earlier is not None]
    assert 0.019 < statistics.mean(gaps) < 0.021
    assert 0.018 < statistics.pstdev(gaps) < 0.022  # of an exponential: its mean
    assert dues == sorted(dues, key=lambda due: due or 0.0)
    assert (dues[-1] or 0.0) < 100.0


def test_another_rate_changes_no_length() -> None:
    slow, fast = (plan_workload("W3", 1, OpenLoop(rate, None, 50)).requests for rate in (1.0, 9.0))
    assert [(r.num_prompt_tokens, r.num_output_tokens) for r in slow] == [
        (r.num_prompt_tokens, r.num_output_tokens) for r in fast
    ]
    assert len(slow) == 50
    assert slow != fast


@pytest.mark.parametrize("form", FORMS)
def test_all_prompts_of_w4_begin_with_the_same_512_tokens(form: str) -> None:
    prompts = write_prompts(plan_workload("W4", 1), form, 1)
    fields = [prompt.fields for prompt in prompts]
    match form:
        case "ids":
            assert len({tuple(field["prompt"][:512]) for field in fields}) == 1
            assert len({tuple(field["prompt"][512:528]) for field in fields}) == len(fields)
        case "text":
            first, second = (field["prompt"].replace(".", " .").split() for field in fields[:2])
            alike = [*takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))]
            assert 512 <= len(alike) < 528
        case _:
            assert len({field["messages"][0]["content"] for field in fields}) == 1
            assert [message["role"] for message in fields[0]["messages"]] == ["system", "user"]


def test_without_a_shared_part_no_two_prompts_begin_alike() -> None:
    prompts = [prompt.fields["prompt"] for prompt in write_prompts(plan_workload("W2", 1), "text", 1)]
    assert len({tuple(prompt.split()[:16]) for prompt in prompts}) == 64  # not even in their first cache block


def test_other_words_leave_the_lengths_alone() -> None:
    workload = plan_workload("W2", 1)
    first, second = write_prompts(workload, "ids", "1/1"), write_prompts(workload, "ids", "1/2")
    assert [len(p.fields["prompt"]) for p in first] == [r.num_prompt_tokens for r in workload.requests]
    assert [len(p.fields["prompt"]) for p in first] == [len(p.fields["prompt"]) for p in second]
    assert all(a.fields["prompt"][:16] != b.fields["prompt"][:16] for a, b in zip(first, second, strict=True))


def test_token_ids_stay_in_their_range() -> None:
    prompts = write_prompts(plan_workload("W2", 1), "ids", 1, IdRange(5, 9))
    assert {token for prompt in prompts for token in prompt.fields["prompt"]} == {5, 6, 7, 8, 9}


def test_a_text_has_the_planned_number_of_tokens_in_the_default_model() -> None:
    model = load_text_model(resolve_model("smollm2-135m-instruct"))
    for name in ("W2", "W4"):
        workload = plan_workload(name, 1)
        texts = [prompt.fields["prompt"] for prompt in write_prompts(workload, "text", 1)]
        lengths = [len(model.encode(text, add_special=False)) for text in texts]
        assert lengths == [request.num_prompt_tokens for request in workload.requests]
