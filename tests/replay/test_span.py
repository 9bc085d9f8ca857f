"""Replay that begins in the middle: at keyframes, behind gaps, and where the oldest segments are gone."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgpack
import pytest
from structlog.testing import capture_logs

from engine.core.limits import Limits
from engine.core.policies.interface import Policy
from engine.core.request import Request
from engine.core.scheduler import Core
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingGap, entry_to_array
from recorder.format import SEGMENT_MAGIC, segment_path
from recorder.frames import FramedFile
from recorder.reader import Recording
from recorder.sealing import seal
from replay.__main__ import main
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.span import Span, StepOf
from replay.verdict import Outcome, Verdict
from tests.replay.recorded_runs import LIMITS, SALT, TimedRunner, mixed_load, open_scripted, record_run
from tests.replay.small_models import open_small, small_runner

SWAPPING = replace(LIMITS, num_kv_blocks=20, swap_space_blocks=60)
EVERY = 50


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("span") / "run"
    runner = TimedRunner(SWAPPING.num_kv_blocks, SWAPPING.block_size, SALT)
    return record_run(folder, mixed_load(60), limits=SWAPPING, runner=runner, keyframe_every=EVERY)


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of several segments, the first ones sealed."""
    folder = tmp_path_factory.mktemp("span") / "segments"
    record_run(folder, mixed_load(120, seed=3), max_segment_bytes=40_000, keyframe_every=25)
    for segment in Recording.open(folder).segments[:2]:
        seal(segment.path)
    return folder


def all_of(path: Path) -> list[Entry]:
    return list(Recording.open(path).entries(keyframes=True))


def keyframes_of(path: Path) -> list[Entry]:
    return [entry for entry in all_of(path) if isinstance(entry.event, CoreKeyframe)]


def rewritten(source: Path, folder: Path, change: Callable[[list[Entry]], list[Entry]]) -> Path:
    """One segment of other entries, keyframes included."""
    folder.mkdir()
    file = FramedFile(segment_path(folder, 1), SEGMENT_MAGIC, Recording.open(source).header.to_map())
    file.append([msgpack.packb(entry_to_array(entry)) for entry in change(all_of(source))])
    file.close()
    for vault in source.glob("*.vault"):
        (folder / vault.name).write_bytes(vault.read_bytes())
    return folder


def began(verdict: Verdict) -> str:
    return next((note for note in verdict.notes if "began at the keyframe" in note), "")


def from_step(step: int, last: int | None = None) -> Span:
    return Span(StepOf(0, step), last)


def test_every_keyframe_on_the_way_is_compared(run: Path) -> None:
    verdict = check(run)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert verdict.figures["keyframes"] == len(keyframes_of(run)) >= 4


def test_a_check_begins_at_the_nearest_keyframe_before_its_step(run: Path) -> None:
    whole = check(run).figures["entries"]
    for keyframe in keyframes_of(run):
        verdict = check(run, span=from_step(keyframe.event.num_steps))  # type: ignore[union-attr]  # it is a keyframe
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        assert f"at sequence {keyframe.sequence}," in began(verdict)
        assert verdict.figures["entries"] == whole - keyframe.sequence


def test_a_check_ends_with_its_last_step(run: Path) -> None:
    verdict = check(run, span=from_step(60, 70))
    assert verdict.outcome is Outcome.EQUAL
    assert 0 < verdict.figures["steps"] < 70
    early = check(run, span=from_step(0, 5))
    assert "no keyframe comes before that step" in early.notes[0]
    assert early.figures["steps"] == 5


def test_a_state_that_differs_is_found_and_its_field_named(run: Path, tmp_path: Path) -> None:
    def change(entries: list[Entry]) -> list[Entry]:
        place = next(place for place, entry in enumerate(entries) if isinstance(entry.event, CoreKeyframe))
        event: Any = entries[place].event
        version, num_steps, classes, node = event.state
        names = [name for name, _fields in classes]
        field = classes[0][1].index("planner")
        planner = list(node[2 + field])
        counter = 2 + dict(classes)["Planner"].index("_num_chains")
        planner[counter] += 1
        assert (names[0], names[planner[1]]) == ("Core", "Planner")
        changed = (*node[: 2 + field], tuple(planner), *node[3 + field :])
        event = event._replace(state=(version, num_steps, classes, changed))
        return [*entries[:place], entries[place]._replace(event=event), *entries[place + 1 :]]

    verdict = check(rewritten(run, tmp_path / "changed", change))
    assert verdict.outcome is Outcome.DIVERGED
    (divergence,) = verdict.divergences
    assert divergence.expected.field == "core.planner._num_chains"
    assert divergence.expected.value == divergence.got.value + 1
    assert "drifted apart" in divergence.likely_cause
    assert "core.planner._num_chains" in verdict.as_text()


def test_where_the_oldest_segments_are_gone_it_begins_with_the_next(segments: Path, tmp_path: Path) -> None:
    whole = check(segments)
    assert whole.outcome is Outcome.EQUAL
    kept = sorted(path for path in segments.iterdir() if not path.name.startswith("000001"))
    assert len(kept) >= 4
    (tmp_path / "kept").mkdir()
    for path in kept:
        (tmp_path / "kept" / path.name).write_bytes(path.read_bytes())
    verdict = check(tmp_path / "kept")
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert "000002.rps begins in mid-run" in began(verdict)
    assert 0 < verdict.figures["entries"] < whole.figures["entries"]
    executed = execute(tmp_path / "kept", open_runner=open_scripted)
    assert executed.outcome is Outcome.EQUAL, executed.as_text()
    assert any("are left out: the vault does not have their tokens" in note for note in executed.notes)
    assert isolate(tmp_path / "kept", None, open_runner=open_scripted).figures["tokens"] > 100


def with_gap(entries: list[Entry]) -> list[Entry]:
    """The entries between the second keyframe and the third are lost."""
    second, third = [place for place, entry in enumerate(entries) if isinstance(entry.event, CoreKeyframe)][1:3]
    first, last = entries[second + 5], entries[third - 1]
    gap = RecordingGap(first.sequence, last.sequence - first.sequence + 1, "the disk was full")
    return [*entries[: second + 5], Entry(first.sequence, last.now_ns, gap, ()), *entries[third:]]


def test_behind_a_gap_it_goes_on_at_the_keyframe_and_still_tells_of_the_gap(run: Path, tmp_path: Path) -> None:
    folder = rewritten(run, tmp_path / "gap", with_gap)
    third = keyframes_of(folder)[2]
    checked = check(folder)
    assert checked.outcome is Outcome.CANNOT_COMPARE
    assert checked.refusal is not None
    assert "the disk was full" in checked.refusal.reason
    assert f"went on at the keyframe at sequence {third.sequence}" in checked.notes
    num_lost = next(entry.event.num_entries for entry in all_of(folder) if isinstance(entry.event, RecordingGap))
    assert checked.figures["entries"] == check(run).figures["entries"] - num_lost
    executed = execute(folder, open_runner=open_scripted)
    assert not executed.divergences, executed.as_text()
    assert executed.outcome is Outcome.CANNOT_COMPARE
    isolated = isolate(folder, None, open_runner=open_scripted)
    assert not isolated.divergences, isolated.as_text()


def test_a_keyframe_that_is_none_is_refused_and_the_next_one_taken(run: Path, tmp_path: Path) -> None:
    def spoil(entries: list[Entry]) -> list[Entry]:
        entries = with_gap(entries)
        third = [place for place, entry in enumerate(entries) if isinstance(entry.event, CoreKeyframe)][2]
        return [
            *entries[:third],
            entries[third]._replace(event=CoreKeyframe(0, (1, 0, (), (4,)))),
            *entries[third + 1 :],
        ]

    verdict = check(rewritten(run, tmp_path / "spoilt", spoil))
    assert verdict.outcome is Outcome.CANNOT_COMPARE
    assert any("a keyframe cannot be used" in note for note in verdict.notes)
    assert f"went on at the keyframe at sequence {keyframes_of(run)[3].sequence}" in verdict.notes


def test_an_execution_begins_at_any_keyframe(run: Path) -> None:
    for keyframe in keyframes_of(run):
        verdict = execute(run, open_runner=open_scripted, span=from_step(keyframe.event.num_steps))  # type: ignore[union-attr]
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        assert verdict.figures["tokens"] == verdict.figures["hidden_digests"] > 0
        assert any("requests were brought to where they stood" in note for note in verdict.notes)


def test_a_decoder_is_executed_from_the_middle_to_the_same_bits(tmp_path: Path) -> None:
    name = "BF16"
    folder = record_run(tmp_path / "run", mixed_load(30), runner=small_runner(name), keyframe_every=EVERY)
    for keyframe in keyframes_of(folder)[:2]:
        span = from_step(keyframe.event.num_steps)  # type: ignore[union-attr]  # it is a keyframe
        verdict = execute(folder, open_runner=open_small(name), span=span)
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        assert verdict.figures["tokens"] == verdict.figures["hidden_digests"] > 20
        assert verdict.figures["hit_blocks"] > 0
    isolated = isolate(folder, None, open_runner=open_small(name), span=span)
    assert isolated.outcome is Outcome.EQUAL, isolated.as_text()


def test_at_a_keyframe_of_the_run_somebody_lies_in_the_host_pool(run: Path) -> None:
    states = [entry.event.state for entry in keyframes_of(run)]  # type: ignore[union-attr]  # they are keyframes
    assert any(_requests_in_host_pool(state) for state in states)


def _requests_in_host_pool(state: Any) -> int:
    fields = dict(state[2])["Request"]
    number = [name for name, _fields in state[2]].index("Request")
    place = 2 + fields.index("host_blocks")

    def objects(node: Any) -> Any:
        if type(node) is tuple:
            if node[:2] == (1, number):
                yield node
            yield from chain.from_iterable(objects(item) for item in node)

    return sum(1 for request in objects(state[3]) if request[place] != (2, (0,)))


def test_requests_are_isolated_in_the_middle(run: Path) -> None:
    whole = isolate(run, None, open_runner=open_scripted)
    part = isolate(run, None, open_runner=open_scripted, span=from_step(100))
    assert (whole.outcome, part.outcome) == (Outcome.EQUAL, Outcome.EQUAL), part.as_text()
    assert 0 < part.figures["tokens"] < whole.figures["tokens"]


class SetPolicy(Policy):
    """Its state has no order."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.tenants: set[str] = set()

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        return ()


def test_a_policy_that_cannot_be_frozen_is_recorded_without_keyframes_and_that_is_said(tmp_path: Path) -> None:
    limits = replace(LIMITS, scheduling_policy="mine:SetPolicy")
    with capture_logs() as logs:
        folder = record_run(
            tmp_path / "run",
            mixed_load(5),
            limits=limits,
            make_core=lambda limits: Core(limits, SetPolicy),
            keyframe_every=3,
        )
    assert keyframes_of(folder) == []
    (warning,) = [line for line in logs if "keyframes" in line["event"]]
    assert "own policy holds a set" in warning["error"]


def test_the_command_line_takes_a_step_of_a_process(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(run), "--from", "1:90", "--to", "95"]) == 0
    assert "began at the keyframe at sequence" in capsys.readouterr().out
    assert main(["check", str(run), "--from", "2:90"]) == 2
    assert "none of number 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["check", str(run), "--from", "0:x"])
    assert "is no step" in capsys.readouterr().err
