"""A block that went wrong: nobody finds cached blocks any more, and its holders are computed again or end as failed."""

import pytest

from engine.core.events import AuditCompleted, AuditResult, KVMismatch, KVNoticed
from tests.story import Story


def mismatch(story: Story, name: str, index: int, noticed: str = KVNoticed.HIT) -> KVMismatch:
    """In block `index` of the named request's table."""
    request = story.core.requests[story.numbers[name]]
    return KVMismatch(request.block_table[index], 1, 2, 0, (), noticed, request.number, index)


def test_who_has_emitted_nothing_is_computed_again_in_blocks_of_its_own() -> None:
    story = Story(num_kv_blocks=16)
    story.arrives("a", prompt="wxyz12", output=1)
    story.runs_until_idle()
    story.arrives("b", prompt="wxyz34", output=2)
    story.expect("admitted b: [0, 1, 3] hits 2", "step 1: b[4:6]")
    story.on(mismatch(story, "b", 1))
    story.expect("index dropped for 1: 3 blocks", "preempted b for b: kv_mismatch, 3 blocks, 4 tokens, chain -1")
    story.completes()  # nothing was left to compute
    story.expect("admitted b: [4, 5, 6]", "step 2: b[0:6]")
    ends = [told for told in map(story.told, story.runs_until_idle()) if told.startswith("finished")]
    assert ends == ["finished b: length, 6+2 tokens"]


def test_who_has_emitted_from_the_block_ends_as_failed_and_bystanders_go_on() -> None:
    story = Story(num_kv_blocks=16)
    story.arrives("a", prompt="wxyz", output=4)
    story.arrives("c", prompt="cc", output=3)
    story.completes()
    story.completes()
    story.arrives("b", prompt="wxyz", output=2)  # waits for the step under way to end
    story.completes()
    assert any(told.startswith("admitted b:") and "hits 1" in told for told in story.all_told())
    story.on(mismatch(story, "b", 0))
    told = story.all_told()
    assert told[0].startswith("index dropped for 0")
    assert "finished a: failed, 4+3 tokens" in told
    assert any(line.startswith("preempted b for b: kv_mismatch") for line in told)
    assert not any(line.startswith(("finished c", "preempted c")) for line in told)
    ends = {told for told in map(story.told, story.runs_until_idle()) if told.startswith("finished")}
    assert ends == {"finished b: length, 4+2 tokens", "finished c: length, 2+3 tokens"}


def test_what_cached_blocks_hold_is_forgotten_and_found_no_more() -> None:
    story = Story(num_kv_blocks=16)
    story.arrives("a", prompt="abcdef", output=1)
    story.runs_until_idle()
    assert story.core.pool.find_prefix([b"ab", b"abcd"], 9) != []
    story.on(KVMismatch(0, 1, 2, 0, (), KVNoticed.AUDIT, 0, 0))
    story.expect("index dropped for 0: 3 blocks")
    assert story.core.pool.find_prefix([b"ab", b"abcd"], 9) == []
    assert story.core.pool.num_free == 16
    story.core.check_invariants()


@pytest.mark.parametrize(("noticed", "told"), [(KVNoticed.HIT, "failed"), (KVNoticed.SWAP_IN, "preempted")])
def test_what_went_wrong_on_the_way_back_was_never_read(noticed: str, told: str) -> None:
    story = Story()
    story.arrives("a", prompt=3, output=6)
    story.completes()
    story.completes()
    story.on(mismatch(story, "a", 0, noticed))
    assert told in story.all_told()[1]
    story.completes()
    story.runs_until_idle()
    assert story.core.pool.num_free == story.limits.num_kv_blocks


def test_a_block_that_was_given_to_another_meanwhile_does_that_one_no_harm() -> None:
    story = Story()
    story.arrives("a", prompt=3, output=6)
    story.arrives("b", prompt=2, output=6)
    story.completes()
    block = story.core.requests[story.numbers["b"]].block_table[0]
    story.on(KVMismatch(block, 1, 2, 0, (), KVNoticed.SWAP_OUT, story.numbers["a"], 0))
    assert not any(line.startswith(("finished b", "preempted b")) for line in story.all_told())
    assert any("finished a: failed" in line for line in story.all_told())


def test_an_audit_decides_nothing() -> None:
    story = Story()
    story.on(AuditCompleted(7, 12, 3, 1, AuditResult.DIFFERENT))
    story.expect()
