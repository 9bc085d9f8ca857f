"""A request's side of drawing: what a backend is told follows the answer, and is kept only where it is asked for."""

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.sampler import RequestSampler


def sampler(sampling: SamplingParams, contents: RequestContents, *stop_token_ids: int) -> RequestSampler:
    return RequestSampler(sampling, contents, stop_token_ids)


def test_the_position_is_the_length_of_the_answer() -> None:
    of_request = sampler(SamplingParams(), RequestContents((1, 2, 3)))
    positions = []
    for token_id in (7, 8):
        positions.append(of_request.next_row().position)
        of_request.take(token_id)
    assert [*positions, of_request.next_row().position] == [0, 1, 2]


def test_what_ends_a_request_cannot_be_drawn_before_min_tokens() -> None:
    of_request = sampler(SamplingParams(min_tokens=2), RequestContents((1,)), 9, 4)
    banned = []
    for _ in range(3):
        banned.append(list(of_request.next_row().banned))
        of_request.take(1)
    assert banned == [[4, 9], [4, 9], []]


def test_without_penalties_no_token_is_remembered() -> None:
    of_request = sampler(SamplingParams(), RequestContents((1, 2)))
    of_request.take(5)
    assert of_request.next_row().seen is None


def test_the_prompt_counts_for_the_repetition_penalty_only() -> None:
    contents = RequestContents((1, 2, 1))
    repetition = sampler(SamplingParams(repetition_penalty=1.1), contents)
    frequency = sampler(SamplingParams(frequency_penalty=0.5), contents)
    for of_request in (repetition, frequency):
        for token_id in (2, 7, 7):
            of_request.take(token_id)
    seen = [of_request.next_row().seen for of_request in (repetition, frequency)]
    assert [(list(tokens.ids), list(tokens.counts)) for tokens in seen if tokens is not None] == [
        ([1, 2, 7], [0, 1, 2]),
        ([2, 7], [1, 2]),
    ]


def test_numbers_and_biases_are_handed_on() -> None:
    sampling = SamplingParams(0.7, 40, 0.9, 0.05, 1.1, 0.2, 0.3, 2**64 - 1, 5)
    parameters = sampler(sampling, RequestContents((1,), logit_bias=((3, 0.5), (6, -100.0)))).next_row().parameters
    assert all(getattr(parameters, name) == getattr(sampling, name) for name in sampling._fields[:9])
    assert (list(parameters.biased), list(parameters.biases)) == ([3, 6], [0.5, -100.0])
