"""`reprise bisect REC`: the first difference between a recording and this build, and what lies beneath it."""

from pathlib import Path

import pytest

from engine.core.decisions import StepPlanned
from engine.core.limits import Limits
from engine.core.scheduler import Core
from recorder.header import Header
from replay.bisect.this_build import bisect_this_build
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.player import Decider
from tests.replay.faults import OtherClassRunner
from tests.replay.recorded_runs import LIMITS, SALT, SCRIPTED_CLASS, mixed_load, open_scripted, record_run
from tests.replay.small_models import open_small, plans_of, reads_a_neighbours_block, record_small

NUM_REQUESTS = 12


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_small(tmp_path_factory.mktemp("small") / "run", "BF16", NUM_REQUESTS)


def test_an_equal_build_is_equal(small: Path) -> None:
    verdict = bisect_this_build(small, open_runner=open_small("BF16"))
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.verb == "bisect"
    assert verdict.figures["decisions"] > 0
    assert verdict.figures["steps"] == len(plans_of(small))


def test_a_core_that_decides_otherwise_is_found_before_anything_is_computed(small: Path) -> None:
    class LaterCore(Core):
        def handle(self, event: object, now_ns: int) -> list[object]:  # type: ignore[override]
            decisions = super().handle(event, now_ns)  # type: ignore[arg-type]
            return [
                it._replace(num_waiting=9) if isinstance(it, StepPlanned) and it.step == 7 else it for it in decisions
            ]

    def make_core(limits: Limits) -> Decider:
        return LaterCore(limits)  # type: ignore[return-value]

    verdict = bisect_this_build(small, open_runner=open_small("BF16"), make_core=make_core)
    assert verdict.exit_code == 1
    assert verdict.divergences[0].place.step == 7
    assert verdict.divergences[0].proof is None


def test_a_build_that_contaminates_is_caught_with_the_layer_and_whose_data(small: Path) -> None:
    plan = next(plan for plan in plans_of(small) if plan.step > 10 and len(plan.rows) > 2 and plan.rows[0][2] == 1)
    victim = plan.rows[0]
    make = reads_a_neighbours_block(plan.step, victim[0], 1, (plan.rows[1][0] + 5) % LIMITS.num_kv_blocks)
    verdict = bisect_this_build(small, open_runner=open_small("BF16", make))
    assert verdict.exit_code == 1, verdict.as_text()
    proof = verdict.divergences[0].proof
    assert proof is not None
    assert proof.first is not None
    assert proof.first[:2] == (plan.step, victim[0])
    assert proof.foreign is not None
    assert proof.foreign.position == LIMITS.block_size


def test_a_record_that_this_build_never_gave_is_told_from_a_build_that_disagrees_with_itself(tmp_path: Path) -> None:
    honest = record_small(tmp_path / "honest", "BF16", NUM_REQUESTS)
    plan = next(plan for plan in plans_of(honest) if plan.step > 10 and len(plan.rows) > 2 and plan.rows[0][2] == 1)
    make = reads_a_neighbours_block(plan.step, plan.rows[0][0], 1, (plan.rows[1][0] + 5) % LIMITS.num_kv_blocks)
    faulty = record_small(tmp_path / "faulty", "BF16", NUM_REQUESTS, make)
    verdict = bisect_this_build(faulty, open_runner=open_small("BF16"))
    proof = verdict.divergences[0].proof
    assert proof is not None
    assert proof.first is None
    assert "the fault was in the run that was recorded" in proof.remark


def test_without_contents_decisions_alone_are_compared(tmp_path: Path) -> None:
    path = record_run(tmp_path / "run", mixed_load(6), record_content=False)
    verdict = bisect_this_build(path, open_runner=open_scripted)
    assert verdict.exit_code == 0
    assert any("tokens were not computed" in note for note in verdict.notes)


def test_a_runner_without_layers_still_names_the_step(tmp_path: Path) -> None:

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(OtherClassRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT), SCRIPTED_CLASS, {})

    verdict = bisect_this_build(record_run(tmp_path / "run", mixed_load(6)), open_runner=open_runner)
    assert verdict.exit_code == 1
    proof = verdict.divergences[0].proof
    assert proof is not None
    assert "computes no layers" in proof.remark
