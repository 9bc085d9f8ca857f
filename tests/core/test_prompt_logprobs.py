"""A request that asks for log-probabilities of its prompt: every row of it is computed, it may want no token at all."""

from engine.core.decisions import RequestFinished
from engine.core.events import RequestArrived
from engine.core.expected_output import MIN_ENDS, ExpectedOutput
from engine.core.sampling_params import SamplingParams
from tests.story import Story


def test_it_takes_no_prefix_hits_before_its_first_token() -> None:
    story = Story(block_size=2)
    story.arrives("first", prompt="aaaa", output=1)
    story.completes()
    story.arrives("scored", prompt="aaaab", output=1, wants_prompt_logprobs=True)
    assert "admitted scored: [2, 3, 4]" in story.all_told(), "others' blocks are passed by"
    story.completes()
    story.arrives("third", prompt="aaaab", output=1)
    assert "admitted third: [0, 1, 5] hits 2" in story.all_told()


def test_others_find_the_blocks_that_it_has_computed() -> None:
    story = Story(block_size=2)
    story.arrives("scored", prompt="aaaa", output=1, wants_prompt_logprobs=True)
    story.completes()
    story.arrives("other", prompt="aaaab", output=1)
    assert any("admitted other" in told and "hits 2" in told for told in story.all_told())


def test_one_that_has_emitted_a_token_takes_hits_again() -> None:
    story = Story(block_size=2)
    story.arrives("first", prompt="aaaa", output=1)
    story.completes()
    story.numbers["handed_over"] = 1
    scored = RequestArrived(1, "h", "default", 0, 0, 4, 4, (b"aa", b"aaaa"), SamplingParams(), num_output_tokens=1)
    story.on(scored._replace(num_handovers=1, wants_prompt_logprobs=True))
    assert "admitted handed_over: [0, 1, 2] hits 2" in story.all_told(), "its prompt's are told: only KV is wanted"


def test_one_that_wants_no_token_ends_with_its_prefill() -> None:
    story = Story(max_num_batched_tokens=8)
    story.arrives("scored", prompt=12, output=0, wants_prompt_logprobs=True)
    story.completes()
    story.expect("step 1: scored[8:12]")
    story.completes(stop=["scored"])
    story.expect("finished scored: length, 12+0 tokens")
    assert isinstance(story.decisions[0], RequestFinished)
    assert not story.core.requests


def test_of_those_that_want_no_token_none_is_expected() -> None:
    expected = ExpectedOutput()
    for _ in range(MIN_ENDS):
        expected.learn(0, 0)
    assert expected.predict(0) == 0
