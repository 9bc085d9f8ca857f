"""`reprise isolate`: a request alone gives the bits it gave in company, or the first token that does not."""

from pathlib import Path

import pytest

from engine.core.decisions import RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import StepCompleted
from engine.core.vocabulary import Entry, RecordingGap
from recorder.header import Header
from replay.divergence import Classification, EmittedToken
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.refusal import CannotCompare
from tests.replay.faults import FaultyRunner, OtherClassRunner, overwrite_a_slot_in_step
from tests.replay.recorded_runs import (
    LIMITS,
    SALT,
    SCRIPTED_CLASS,
    entries_of,
    mixed_load,
    open_scripted,
    record_run,
    rewrite,
)


def _emitting_requests(path: Path) -> list[int]:
    emitted = [
        row[0] for entry in entries_of(path) if isinstance(entry.event, StepCompleted) for row in entry.event.emitted
    ]
    return sorted(set(emitted))


def test_every_request_of_an_honest_recording_is_equal_alone(recording: Path) -> None:
    decisions = [decision for entry in entries_of(recording) for decision in entry.decisions]
    assert any(isinstance(decision, RequestPreempted) for decision in decisions)
    assert any(isinstance(decision, RequestAdmitted) and decision.num_hit_blocks for decision in decisions)
    verdict = isolate(recording, None, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    emitted = sum(len(entry.event.emitted) for entry in entries_of(recording) if isinstance(entry.event, StepCompleted))
    assert verdict.figures["tokens"] == emitted
    assert verdict.figures["requests"] == len(_emitting_requests(recording)) > 20
    assert any("emitted no token" in note for note in verdict.notes)


def test_a_request_is_found_by_the_clients_id_and_by_its_number(recording: Path) -> None:
    for name in ("req-3", "3"):
        verdict = isolate(recording, name, open_runner=open_scripted)
        assert verdict.exit_code == 0
        assert verdict.figures["requests"] == 1
    with pytest.raises(CannotCompare, match="no request 'nobody' among the 48"):
        isolate(recording, "nobody", open_runner=open_scripted)


def test_a_request_that_emitted_nothing_has_nothing_to_compare(recording: Path) -> None:
    silent = min(set(range(48)) - set(_emitting_requests(recording)))
    verdict = isolate(recording, str(silent), open_runner=open_scripted)
    assert verdict.exit_code == 2
    assert verdict.refusal is not None
    assert "no output token was recorded" in verdict.refusal.reason


@pytest.fixture(scope="module")
def contaminated(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> tuple[Path, StepPlanned]:
    """A run in which a slot of one request's was overwritten by another's, and the step in which that happened."""
    plans = [it for entry in entries_of(recording) for it in entry.decisions if isinstance(it, StepPlanned)]
    plan = next(plan for plan in plans[50:] if len(plan.rows) > 1 and all(count == 1 for *_, count in plan.rows))
    runner = FaultyRunner(overwrite_a_slot_in_step(plan.step))
    path = record_run(tmp_path_factory.mktemp("runs") / "contaminated", mixed_load(48), runner=runner)
    return path, plan


def test_a_contaminated_request_is_named_with_its_first_wrong_token(contaminated: tuple[Path, StepPlanned]) -> None:
    path, plan = contaminated
    writer, victim = plan.rows[0][0], plan.rows[-1][0]
    verdict = isolate(path, str(victim), open_runner=open_scripted)
    assert verdict.exit_code == 1
    (divergence,) = verdict.divergences
    assert divergence.place.step == plan.step
    assert divergence.place.request == victim
    assert isinstance(divergence.expected, EmittedToken)
    assert divergence.classification is Classification.TOKENS
    assert any(str(writer) in line for line in divergence.circumstances if line.startswith(f"in step {plan.step} with"))
    text = verdict.as_text()
    assert f"output token {divergence.expected.output_index}" in text
    assert all(len(line) <= 120 or line.startswith("  next ") for line in text.splitlines())
    assert execute(path, open_runner=open_scripted).exit_code == 1, "here the fault is not in the replayed runner"


def test_isolating_all_lists_who_differs_and_spares_the_others(contaminated: tuple[Path, StepPlanned]) -> None:
    path, plan = contaminated
    victim = plan.rows[-1][0]
    verdict = isolate(path, None, open_runner=open_scripted)
    assert verdict.exit_code == 1
    differing = [divergence.place.request for divergence in verdict.divergences]
    assert victim in differing
    assert len(differing) < len(_emitting_requests(path)) / 2
    assert len(verdict.table) == len(differing) + 1


def test_other_bits_are_found_though_the_tokens_are_equal(recording: Path) -> None:
    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(OtherClassRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT), SCRIPTED_CLASS, {})

    (divergence,) = isolate(recording, "0", open_runner=open_runner).divergences
    assert divergence.classification is Classification.NUMERIC
    assert divergence.place.request == 0


def test_another_numerics_class_is_refused(recording: Path) -> None:
    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(OtherClassRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT), "other-7", {})

    with pytest.raises(CannotCompare, match="other-7"):
        isolate(recording, "0", open_runner=open_runner)
    assert isolate(recording, "0", allow_numeric_drift=True, open_runner=open_runner).exit_code == 0


def test_the_rest_is_isolated_where_the_vault_lacks_a_prompt(recording: Path, tmp_path: Path) -> None:
    cut = rewrite(recording, tmp_path / "cut", lambda entries: entries)
    data = (cut / "000001.vault").read_bytes()
    (cut / "000001.vault").write_bytes(data[: len(data) // 3])
    verdict = isolate(cut, None, open_runner=open_scripted)
    assert verdict.exit_code == 2
    assert verdict.refusal is not None
    assert "the vault holds no prompt of request" in verdict.refusal.reason
    assert verdict.figures["tokens"] > 10
    assert isolate(cut, "0", open_runner=open_scripted).exit_code == 0


def test_a_live_request_cut_off_by_the_recordings_end_is_compared_as_far_as_it_got(
    recording: Path, tmp_path: Path
) -> None:
    cut = rewrite(recording, tmp_path / "cut", lambda entries: entries[:120])
    verdict = isolate(cut, None, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()


def test_behind_a_gap_only_a_request_found_before_it_can_be_isolated(recording: Path, tmp_path: Path) -> None:
    def with_gap(entries: list[Entry]) -> list[Entry]:
        gap = Entry(150, entries[159].now_ns, RecordingGap(150, 10, "the disk was full"), ())
        return [*entries[:150], gap, *entries[160:]]

    gapped = rewrite(recording, tmp_path / "gap", with_gap)
    everyone = isolate(gapped, None, open_runner=open_scripted)
    assert everyone.exit_code == 2
    assert everyone.figures["tokens"] > 100
    one = isolate(gapped, "0", open_runner=open_scripted)
    assert one.exit_code == 0
    assert any("10 entries from sequence 150 on are missing" in note for note in one.notes)
