"""A redacted copy: nothing of contents or names is left, and it is checked, executed and isolated as the original."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.decisions import RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import RequestArrived, StepCompleted
from engine.core.vocabulary import CoreKeyframe, Entry
from engine.protocol import Arrive
from recorder.errors import RecordingError
from recorder.reader import Recording
from replay.__main__ import main
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.redaction import redact
from replay.refusal import CannotCompare
from replay.span import Span, StepOf
from replay.verdict import Outcome
from tests.replay.recorded_runs import (
    LIMITS,
    SALT,
    changed_decision,
    entries_of,
    mixed_load,
    open_scripted,
    record_run,
    rewrite,
)


@pytest.fixture(scope="module")
def redacted(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("redacted") / "run"
    redact(recording, target, open_scripted)
    return target


def test_the_core_decides_on_it_as_on_the_original(recording: Path, redacted: Path) -> None:
    verdict = check(redacted)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert verdict.notes == ()
    originals = [entry for entry in entries_of(recording) if isinstance(entry.event, RequestArrived | StepCompleted)]
    copies = [entry for entry in entries_of(redacted) if isinstance(entry.event, RequestArrived | StepCompleted)]
    assert [entry.decisions for entry in originals] == [entry.decisions for entry in copies]
    decisions = [decision for entry in copies for decision in entry.decisions]
    assert sum(type(decision) is RequestPreempted for decision in decisions) >= 5
    assert sum(decision.num_hit_blocks for decision in decisions if isinstance(decision, RequestAdmitted)) >= 5


def test_it_can_be_executed_and_isolated_bit_for_bit(redacted: Path) -> None:
    for verdict in (
        execute(redacted, open_runner=open_scripted),
        isolate(redacted, None, open_runner=open_scripted),
    ):
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        assert verdict.figures["tokens"] > 200


def test_nothing_of_the_original_is_in_it(recording: Path, redacted: Path) -> None:
    original, copy = Recording.open(recording), Recording.open(redacted)
    assert copy.header.salt != SALT
    assert copy.header.origin == "redacted"
    before, after = original.contents(), copy.contents()
    assert before.prompts.keys() == after.prompts.keys()
    for request, contents in before.prompts.items():
        assert len(contents.prompt_token_ids) == len(after.prompts[request].prompt_token_ids)
        assert contents.prompt_token_ids != after.prompts[request].prompt_token_ids
    digests = {digest for entry in entries_of(recording) for digest in digests_in(entry.event)}
    copied = {digest for entry in entries_of(redacted) for digest in digests_in(entry.event)}
    assert len(digests) == len(copied) > 20
    assert not digests & copied
    arrivals = [entry.event for entry in entries_of(redacted) if isinstance(entry.event, RequestArrived)]
    assert [event.request_id for event in arrivals[:2]] == ["request-0", "request-1"]


def digests_in(event: object) -> list[bytes]:
    if isinstance(event, RequestArrived):
        return list(event.prompt_digests)
    return [digest for _request, digest in event.filled] if isinstance(event, StepCompleted) else []


def test_prefixes_are_shared_as_they_were(recording: Path, redacted: Path) -> None:
    before, after = Recording.open(recording).contents().prompts, Recording.open(redacted).contents().prompts

    def shared(prompts: dict[int, tuple[int, ...]], left: int, right: int) -> int:
        pairs = zip(prompts[left], prompts[right], strict=False)
        return next((index for index, (a, b) in enumerate(pairs) if a != b), 0) // 4

    originals = {number: contents.prompt_token_ids for number, contents in before.items()}
    copies = {number: contents.prompt_token_ids for number, contents in after.items()}
    for left in list(originals)[:12]:
        for right in list(originals)[:12]:
            assert shared(originals, left, right) == shared(copies, left, right)


def test_without_a_model_and_without_contents_it_can_be_checked_and_says_why_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record_run(tmp_path / "run", mixed_load(16), record_content=False, max_segment_bytes=9000)
    record_run(run, mixed_load(6, seed=2), record_content=False)
    assert main(["redact", str(run), str(tmp_path / "copy")]) == 0
    assert "num_requests 22" in capsys.readouterr().out
    assert check(tmp_path / "copy").outcome is Outcome.EQUAL
    with pytest.raises(CannotCompare, match="--execute"):
        execute(tmp_path / "copy", open_runner=open_scripted)
    with pytest.raises(RecordingError, match="exists"):
        redact(run, tmp_path / "copy")


def test_its_keyframes_are_where_the_originals_are_and_replay_begins_at_them(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(24), keyframe_every=7)
    done = redact(run, tmp_path / "copy", open_scripted)
    places = [[entry.sequence for entry in keyframes_of(path)] for path in (run, tmp_path / "copy")]
    assert places[0] == places[1]
    assert done.num_keyframes == len(places[0]) > 4
    assert done.why_no_keyframes == ""
    step = keyframes_of(run)[-2].event.num_steps  # type: ignore[union-attr]  # a CoreKeyframe
    span = Span(StepOf(0, step))
    for verdict in (check(tmp_path / "copy", span=span), check(tmp_path / "copy")):
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        assert verdict.figures["keyframes"] >= 1
    verdict = execute(tmp_path / "copy", open_runner=open_scripted, span=span)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert 0 < verdict.figures["steps"] < step


def test_a_core_that_decides_otherwise_gives_the_copy_no_keyframes(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(24), keyframe_every=7)
    keep = keyframes_of(run)

    def change(entries: list[Entry]) -> list[Entry]:
        changed, _sequence, _index = changed_decision(
            entries, StepPlanned, lambda plan: plan._replace(token_budget_left=0), occurrence=9
        )
        return sorted([*changed, *keep], key=lambda entry: (entry.sequence, type(entry.event) is not CoreKeyframe))

    done = redact(rewrite(run, tmp_path / "changed", change), tmp_path / "copy")
    assert "decides otherwise" in done.why_no_keyframes
    assert 0 < done.num_keyframes < len(keep)


def test_tenants_keep_their_order_by_name(tmp_path: Path) -> None:
    """Fair decides by it among tenants that were served alike."""
    arrivals = [message for _step, message in mixed_load(5) if isinstance(message, Arrive)]
    tenants = ("zoe", "ann", "mia", "ann", "zoe")
    messages = [(0, arrive._replace(tenant=tenant)) for arrive, tenant in zip(arrivals, tenants, strict=True)]
    run = record_run(tmp_path / "run", list(messages), limits=replace(LIMITS, scheduling_policy="fair", max_num_seqs=1))
    redact(run, tmp_path / "copy")
    verdict = check(tmp_path / "copy")
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    found = [entry.event for entry in entries_of(tmp_path / "copy") if isinstance(entry.event, RequestArrived)]
    assert [event.tenant for event in found] == ["tenant-2", "tenant-0", "tenant-1", "tenant-0", "tenant-2"]


def keyframes_of(path: Path) -> list[Entry]:
    entries = Recording.open(path).entries(keyframes=True)
    return [entry for entry in entries if isinstance(entry.event, CoreKeyframe)]
