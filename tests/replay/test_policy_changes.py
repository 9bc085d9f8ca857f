"""Recordings in which the policy changes are checked and shown; those from before the guard stay as they were."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.decisions import RequestDemoted, RequestPreempted, StarvationSeen
from engine.core.events import PolicyChanged
from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from engine.protocol import ChangePolicy
from replay.check import check
from replay.show import View, show
from replay.verdict import Outcome
from tests.replay.recorded_runs import LIMITS, entries_of, mixed_load, record_run, rewrite

STRICT = replace(LIMITS, max_passes_over=2, max_preemptions=1, ttft_target_ms=1)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Every policy once, in a run that starves and demotes."""
    changes = [
        (8 * index + 4, ChangePolicy(name, (("decode_token_price", index + 1),)))
        for index, name in enumerate(POLICY_NAMES)
    ]
    return record_run(tmp_path / "run", [*mixed_load(40), *changes], limits=STRICT)


def test_a_recording_with_changes_of_policy_is_checked_equal(recording: Path) -> None:
    entries = entries_of(recording)
    kinds = {type(decision) for entry in entries for decision in entry.decisions}
    assert {StarvationSeen, RequestDemoted, RequestPreempted} <= kinds
    assert [entry.event.policy for entry in entries if isinstance(entry.event, PolicyChanged)] == POLICY_NAMES
    verdict = check(recording)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()


def test_a_changed_policy_that_was_recorded_otherwise_is_a_divergence(recording: Path, tmp_path: Path) -> None:
    """The recorded change names another policy than the one that decided."""
    other = {"shortest": "deadline", "fair": "fcfs"}
    changed = rewrite(
        recording,
        tmp_path / "changed",
        lambda entries: [
            entry._replace(event=entry.event._replace(policy=other.get(entry.event.policy, entry.event.policy)))
            if isinstance(entry.event, PolicyChanged)
            else entry
            for entry in entries
        ],
    )
    verdict = check(changed)
    assert verdict.outcome is Outcome.DIVERGED
    assert verdict.as_text()


def test_the_transcript_tells_changes_starvation_and_demotions(recording: Path) -> None:
    text = "\n".join(show(recording, View(transcript=True)))
    assert "PolicyChanged" in text
    assert "policy=fair parameters=[[decode_token_price 3]]" in text
    assert "StarvationSeen" in text
    assert "RequestDemoted" in text


def test_a_header_without_the_guards_bounds_is_replayed_without_a_guard() -> None:
    old = {
        name: value for name, value in Limits().to_dict().items() if name not in ("max_passes_over", "max_preemptions")
    }
    limits = Limits.from_dict(old)
    assert min(limits.max_passes_over, limits.max_preemptions) > 2**60
    assert Limits.from_dict(Limits(max_preemptions=7, tenant_weights=(("a", 2),)).to_dict()).max_preemptions == 7
