"""`reprise isolate --prove`: the row, layer and operation where bits first differ, and whose data was found there."""

import json
from pathlib import Path

import pytest

from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.vocabulary import Entry
from engine.protocol import Arrive
from recorder.header import Header
from replay.isolate import isolate
from replay.lives import Life
from replay.model_runs import prove as prove_module
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.proof import Proof
from replay.span import Beginning
from replay.verdict import Verdict
from tests.replay.recorded_runs import LIMITS, entries_of, mixed_load, open_scripted, record_run
from tests.replay.small_models import (
    MakeRunner,
    loses_the_writes_of,
    open_small,
    plans_of,
    reads_a_neighbours_block,
    record_small,
)

NUM_REQUESTS = 20
BACKENDS = ["BF16", "Q4_1", pytest.param("reference", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=BACKENDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def honest(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_small(tmp_path_factory.mktemp("honest") / "run", name, NUM_REQUESTS)


def prove(name: str, make: MakeRunner, request: int, folder: Path) -> tuple[Proof, Verdict]:
    """Record with the fault, then isolate on a build that has the same fault."""
    path = record_small(folder / "run", name, NUM_REQUESTS, make)
    verdict = isolate(path, str(request), open_runner=open_small(name, make), prove=True)
    assert verdict.exit_code == 1, verdict.as_text()
    proof = verdict.divergences[0].proof
    assert proof is not None
    assert proof.first is not None, proof.remark
    return proof, verdict


class Holders:
    """Who holds which blocks before each step, as the decisions say."""

    def __init__(self, path: Path) -> None:
        self.tables: dict[int, dict[int, list[int]]] = {}  # step → request → blocks
        held: dict[int, list[int]] = {}
        for entry in entries_of(path):
            self._follow(entry, held)

    def _follow(self, entry: Entry, held: dict[int, list[int]]) -> None:
        for decision in entry.decisions:
            if isinstance(decision, RequestAdmitted):
                held[decision.request] = list(decision.block_ids)
            elif isinstance(decision, StepPlanned):
                for request, block in decision.new_blocks:
                    held.setdefault(request, []).append(block)
                self.tables[decision.step] = {row[0]: list(held[row[0]]) for row in decision.rows}


def test_an_off_by_one_in_a_block_table_names_the_neighbour(name: str, honest: Path, tmp_path: Path) -> None:
    tables = Holders(honest).tables
    plan, victim, other = _strangers(honest)
    wrong = tables[plan.step][other][0]
    proof, verdict = prove(name, reads_a_neighbours_block(plan.step, victim[0], 0, wrong), victim[0], tmp_path)
    assert proof.first is not None
    assert proof.first[:5] == (plan.step, victim[0], victim[1], 0, "attention")
    assert proof.foreign is not None
    assert (proof.foreign.position, proof.foreign.block, proof.foreign.layer) == (0, wrong, 0)
    assert proof.foreign.owner is not None
    assert proof.foreign.owner.position == 0
    assert proof.foreign.owner.request in [number for number, start in _starts().items() if start == _starts()[other]]
    text = verdict.as_text()
    assert f"guilty: these bytes are request {proof.foreign.owner.request} (req-" in text
    values = json.loads(verdict.as_json())["divergences"][0]["proof"]
    assert values["first"]["operation"] == "attention"
    assert values["foreign"]["owner"]["request"] == proof.foreign.owner.request
    assert values["foreign"]["block"] == wrong


def _strangers(path: Path, least_request: int = 0) -> tuple[StepPlanned, tuple[int, int, int], int]:
    """A step in which two requests decode whose prompts begin otherwise; the row of one, and the other."""
    starts = _starts()
    for plan in plans_of(path):
        victim, *others = plan.rows
        for other in others:
            if (
                min(plan.step - 11, victim[0] - least_request) >= 0
                and victim[2] == other[2] == 1
                and starts[victim[0]] != starts[other[0]]
            ):
                return plan, victim, other[0]
    raise AssertionError("no two strangers decode in one step")


def _starts() -> dict[int, tuple[int, ...]]:
    """Request → the tokens of its first block: several have the same."""
    arrivals = [message for _, message in mixed_load(NUM_REQUESTS) if isinstance(message, Arrive)]
    return {arrive.request: arrive.contents.prompt_token_ids[: LIMITS.block_size] for arrive in arrivals}


def test_a_stale_block_names_the_request_that_held_it_before(name: str, honest: Path, tmp_path: Path) -> None:
    plan, row, block, former = _a_reused_block(honest)
    proof, _verdict = prove(name, loses_the_writes_of(plan.step, row[0], block), row[0], tmp_path)
    assert proof.first is not None
    assert proof.first.request == row[0]
    assert (proof.first.layer, proof.first.operation) == (0, "attention")
    assert proof.foreign is not None
    assert proof.foreign.block == block
    assert proof.foreign.owner is not None
    assert proof.foreign.owner.request == former
    assert proof.foreign.owner.step < plan.step


def test_it_begins_at_a_keyframe_and_goes_back_to_the_beginning_for_what_was_wrong_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault strikes after the keyframe before a late request: nobody computes the steps before it again."""
    honest = record_small(tmp_path / "honest", "BF16", NUM_REQUESTS, keyframe_every=4)
    tables = Holders(honest).tables
    plan, victim, other = _strangers(honest, least_request=8)
    make = reads_a_neighbours_block(plan.step, victim[0], 0, tables[plan.step][other][0])
    path = record_small(tmp_path / "run", "BF16", NUM_REQUESTS, make, keyframe_every=4)
    begun: list[Beginning] = []
    sound = prove_module.CompanyTrace.run

    def spied(self: prove_module.CompanyTrace, life: Life, beginning: Beginning, *rest: object) -> int | None:
        begun.append(beginning)
        return sound(self, life, beginning, *rest)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(prove_module.CompanyTrace, "run", spied)
    opened = open_small("BF16", make)
    num_opened = []

    def counting(header: Header, overrides: Overrides) -> OpenedRunner:
        num_opened.append(1)
        return opened(header, overrides)

    (divergence,) = isolate(path, str(victim[0]), open_runner=counting, prove=True).divergences
    assert divergence.proof is not None
    assert divergence.proof.first is not None
    assert divergence.proof.first.step == plan.step
    assert [beginning.at_keyframe for beginning in begun] == [True]
    assert begun[0].sequence > 20
    assert len(num_opened) == 1, "the model is loaded once"
    begun.clear()
    (divergence,) = isolate(path, str(victim[0]), open_runner=open_small("BF16"), prove=True).divergences
    assert divergence.proof is not None
    assert divergence.proof.first is None, "a build without the fault"
    assert [beginning.at_keyframe for beginning in begun] == [True, False]


def _a_reused_block(path: Path) -> tuple[StepPlanned, tuple[int, int, int], int, int]:
    """A step that fills a whole block that another request had filled before; the row, the block, that request."""
    tables = Holders(path).tables
    writers: dict[int, int] = {}  # block → who wrote to its first slot last
    size = LIMITS.block_size
    for plan in plans_of(path):
        for row in plan.rows:
            request, start, count = row
            for index in range(-(-start // size), -(-(start + count) // size)):
                block = tables[plan.step][request][index]
                former = writers.get(block, request)
                if former != request and plan.step > 20 and (index + 1) * size <= start + count:
                    return plan, row, block, former
                writers[block] = request
    raise AssertionError("the recording reuses no block")


def test_a_fault_that_is_not_repeated_is_said_to_lie_in_the_recorded_run(
    name: str, honest: Path, tmp_path: Path
) -> None:
    plan, victim, other = _strangers(honest)
    wrong = Holders(honest).tables[plan.step][other][0]
    path = record_small(tmp_path / "run", name, NUM_REQUESTS, reads_a_neighbours_block(plan.step, victim[0], 0, wrong))
    verdict = isolate(path, str(victim[0]), open_runner=open_small(name), prove=True)
    proof = verdict.divergences[0].proof
    assert proof is not None
    assert proof.first is None
    assert "the fault was in the run that was recorded" in " ".join(verdict.as_text().split())


def test_an_honest_recording_has_nothing_to_prove(name: str, honest: Path) -> None:
    verdict = isolate(honest, None, open_runner=open_small(name), prove=True)
    assert verdict.exit_code == 0, verdict.as_text()


def test_a_runner_without_layers_is_not_looked_into(tmp_path: Path) -> None:
    path = record_run(tmp_path / "run", mixed_load(4))
    assert isolate(path, "0", open_runner=open_scripted, prove=True).exit_code == 0
