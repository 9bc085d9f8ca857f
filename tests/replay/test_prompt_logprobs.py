"""Prompts' log-probabilities in replay: their digests are compared with all other bits, alone, in company, midway."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.events import RequestArrived, StepCompleted, StepLaunched
from engine.core.vocabulary import Entry
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.redaction import redact
from replay.model_runs.reexecution import PromptLogprobsDigest
from replay.span import Span, StepOf
from tests.golden.make import ASKED
from tests.replay.recorded_runs import (
    LIMITS,
    SALT,
    TimedRunner,
    asking_load,
    entries_of,
    open_scripted,
    record_run,
    rewrite,
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("runs") / "asked", asking_load(36), keyframe_every=17)


def digests(path: Path) -> dict[int, tuple[int, int, int]]:
    found: dict[int, tuple[int, int, int]] = {}
    for entry in entries_of(path):
        if isinstance(entry.event, StepCompleted):
            for told in entry.event.prompt_logprobs:
                assert told[0] not in found, "a prompt is told once"
                found[told[0]] = told
    return found


def test_each_that_asks_is_told_once_whole_whatever_befell_it(asked: Path) -> None:
    arrivals = [entry.event for entry in entries_of(asked) if isinstance(entry.event, RequestArrived)]
    asking = {it.request: it.num_prompt_tokens for it in arrivals if it.wants_prompt_logprobs}
    told = digests(asked)
    assert set(told) <= set(asking)
    assert len(told) > 14, "of 18, all but those that were cancelled before"
    assert all(num_tokens == asking[request] - 1 for request, num_tokens, _digest in told.values())
    assert check(asked).exit_code == 0


def test_steps_planned_ahead_swaps_and_other_chunks_change_no_bit(asked: Path, tmp_path: Path) -> None:
    """Another pool, another budget and another order of steps: those that are told in both are told the same."""
    limits = replace(LIMITS, async_scheduling=True, num_kv_blocks=20, max_num_batched_tokens=7, swap_space_blocks=12)
    runner = TimedRunner(limits.num_kv_blocks, limits.block_size, SALT)
    ahead = record_run(tmp_path / "ahead", asking_load(36), limits=limits, runner=runner)
    assert check(ahead).exit_code == 0
    assert execute(ahead, open_runner=open_scripted).exit_code == 0
    expected, told = digests(asked), digests(ahead)
    both = expected.keys() & told.keys()
    assert len(both) > 12
    assert {request: told[request] for request in both} == {request: expected[request] for request in both}
    events = [entry.event for entry in entries_of(ahead)]
    assert any(isinstance(event, StepLaunched) for event in events)


def test_they_are_equal_when_executed_again_from_the_beginning_and_from_keyframes(asked: Path) -> None:
    verdict = execute(asked, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["prompt_digests"] == len(digests(asked))
    num_steps = verdict.figures["steps"]
    for share in (3, 2):
        midway = execute(asked, open_runner=open_scripted, span=Span(StepOf(0, num_steps // share)))
        assert midway.exit_code == 0, midway.as_text()


def test_each_is_equal_alone(asked: Path) -> None:
    verdict = isolate(asked, None, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()


def test_a_digest_that_differs_is_named(asked: Path, tmp_path: Path) -> None:
    request, (_, num_tokens, digest) = next(iter(digests(asked).items()))

    def change(entries: list[Entry]) -> list[Entry]:
        return [
            entry._replace(event=entry.event._replace(prompt_logprobs=((request, num_tokens, digest ^ 1),)))
            if isinstance(entry.event, StepCompleted) and any(row[0] == request for row in entry.event.prompt_logprobs)
            else entry
            for entry in entries
        ]

    changed = rewrite(asked, tmp_path / "changed", change)
    expected = PromptLogprobsDigest(request, num_tokens, digest ^ 1)
    executed = execute(changed, open_runner=open_scripted)
    assert executed.exit_code == 1
    assert executed.divergences[0].expected == expected
    assert "log-probabilities" in executed.as_text()
    isolated = isolate(changed, str(request), open_runner=open_scripted)
    assert isolated.exit_code == 1
    assert isolated.divergences[0].expected == expected


def test_a_redacted_copy_has_digests_of_its_own_or_none(asked: Path, tmp_path: Path) -> None:
    redact(asked, tmp_path / "plain")
    assert check(tmp_path / "plain").exit_code == 0
    assert {digest for _request, _num, digest in digests(tmp_path / "plain").values()} == {0}
    redact(asked, tmp_path / "executable", open_scripted)
    assert execute(tmp_path / "executable", open_runner=open_scripted).exit_code == 0
    assert set(digests(tmp_path / "executable")) == set(digests(asked))
    assert not set(digests(tmp_path / "executable").values()) & set(digests(asked).values())


def test_a_golden_recording_of_them_is_decided_and_computed_as_it_was() -> None:
    for verdict in (
        check(ASKED),
        execute(ASKED, open_runner=open_scripted),
        isolate(ASKED, None, open_runner=open_scripted),
    ):
        assert verdict.exit_code == 0, verdict.as_text()
    assert len(digests(ASKED)) == 6
    span = Span(StepOf(0, 25))
    assert execute(ASKED, open_runner=open_scripted, span=span).exit_code == 0
