"""One request fewer, the others rearranged: the draws are what they say they are, and shrink takes those that fail."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

from replay.lives import Run
from replay.shrink.rearranging import rearranged
from replay.shrink.scenario import Scenario, scenario_of
from replay.shrink.shrink import setting_for, shrink
from tests.replay.recorded_runs import mixed_load, record_run


def scenario(path: Path) -> Scenario:
    return scenario_of(Run.open(path).lives[0], lambda refusal: None, with_contents=False)


def num_tokens(scenario: Scenario) -> int:
    return sum(each.arrived.num_prompt_tokens + each.arrived.max_output_tokens for each in scenario.callers)


def test_each_draw_has_one_request_fewer_and_no_more_tokens_and_comes_again(recording: Path) -> None:
    whole = scenario(recording)
    few = replace(whole, callers=tuple(islice(whole.callers, 8)))
    drawn = list(rearranged(few, 200))
    assert drawn == list(rearranged(few, 200)), "a draw follows from its number"
    assert all(len(each.callers) == 7 for each in drawn)
    assert all(num_tokens(each) <= num_tokens(few) for each in drawn)
    lengths = [
        each.arrived.num_prompt_tokens + each.arrived.max_output_tokens for draw in drawn for each in draw.callers
    ]
    assert max(lengths) <= few.limits.max_model_len
    assert len({draw.limits.num_kv_blocks for draw in drawn}) > 10
    assert len({tuple(each.number for each in draw.callers) for draw in drawn}) == 8, "each of them is left out"


def test_who_is_there_only_to_fill_a_gap_goes_where_another_can_fill_it(tmp_path: Path) -> None:
    """Three answers are needed for so many tokens, or two longer ones."""
    recording = record_run(tmp_path / "run", mixed_load(12), record_content=False)
    longest = sorted(each.arrived.max_output_tokens for each in scenario(recording).callers)[-2:]
    predicate = f"expr:sum(r.num_output_tokens for r in requests) > {sum(longest)}"
    found = shrink(recording, setting_for(predicate, has_vault=False), tmp_path / "small")
    assert found is not None
    assert len(found.after.callers) == 2
    assert found.is_minimal
