"""Silent corruption is found in a serving engine, with --kv-digests and the self-audit, whatever computes the numbers.

Each fault of `corruption.py`, what finds it, and within how many steps of doing harm: a block that is read again is
looked at before the step that reads it; an audit comes when nothing is left to do, after the last step of its request.

    fault                    found by                                          steps after it struck
    stale block              audit of its reader, from the first token on      until nothing is left to do, A
    off-by-one block table   audit, at the token of that very step             A
    use after free           hit, before the block is read                     0
    late output              audit of whose block it is by now                 A
    shared block written     audits of its readers; the next hit               A; until somebody finds the block
    swapped rows             the next hit; audit of its writer                 3 here: when request 2 finds the block
    swapped results          audits of both                                    A

A here: at most 3 × block size + 12 steps, for no request has more than 2 × block size + 2 tokens to emit.
"""

from collections.abc import Callable
from functools import cache, partial

import pytest

from engine.core.decisions import FinishReason, PreemptReason, RequestFinished, RequestPreempted
from engine.core.events import AuditResult, KVMismatch
from engine.core.limits import Limits
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.execution.scripted import ScriptedRunner
from engine.text.model_source import ModelSource
from engine.text.text_model import load_text_model
from kernels.backend import Backend
from tests.execution.corruption import (
    AnyRunner,
    Faulty,
    LateOutput,
    OffByOneTable,
    Outcome,
    SharedBlockWritten,
    StaleBlock,
    SwappedResults,
    SwappedRows,
    UseAfterFree,
    serve,
)
from tests.execution.test_swap import PARAMETERS, reference
from tests.kernels.cpu_library import loaded
from tests.kernels.cuda_device import loaded_on_gpu
from tests.replay.recorded_runs import SALT, TickingClock

Serve = Callable[..., Outcome]


KINDS = [
    "scripted-4",
    "cpu-bfloat16-16",
    "cpu-float32-4",
    "cuda-bfloat16-16",
    pytest.param("reference-4", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, default_source: ModelSource) -> Serve:
    """`serve` on the runner of each kind; every run is made once."""
    name, _, size = request.param.rpartition("-")
    block_size = int(size)
    limits = Limits(
        block_size=block_size,
        num_kv_blocks=32,
        max_model_len=8 * block_size,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        reserve_output="none",
    )
    if name == "scripted":
        return cache(partial(serve, lambda n: ScriptedRunner(n, block_size, SALT, keeps_kv_digests=True), limits))
    text_model = load_text_model(default_source)
    backend: Backend
    if name.startswith("cuda"):
        backend = loaded_on_gpu(PARAMETERS, dtype=name[5:], max_positions=128)
    else:
        backend = reference() if name == "reference" else loaded(PARAMETERS, dtype=name[4:], max_positions=128)

    def make_runner(num_blocks: int) -> AnyRunner:
        store = KVStore.allocate(backend, num_blocks, block_size)
        return ModelRunner(backend, store, text_model, SALT, TickingClock(), keeps_kv_digests=True)

    return cache(partial(serve, make_runner, limits))


def different(outcome: Outcome) -> dict[int, tuple[int, int]]:
    """request → its first token and its first block that differ alone, of those audited."""
    return {
        audit.request: (audit.first_difference, audit.first_block)
        for _step, audit in outcome.audits
        if audit.result == AuditResult.DIFFERENT
    }


def found_at_hit(outcome: Outcome) -> tuple[int, KVMismatch]:
    (found,) = [each for each in outcome.mismatches if each[1].noticed == "hit"]
    return found


def ends(outcome: Outcome) -> dict[int, str]:
    return {
        decision.request: decision.reason
        for entry in outcome.entries
        for decision in entry.decisions
        if isinstance(decision, RequestFinished)
    }


@pytest.mark.parametrize("is_pressed", [False, True])
def test_a_sound_engine_raises_no_alarm(run: Serve, is_pressed: bool) -> None:
    outcome = run(Faulty, is_pressed=is_pressed)
    assert outcome.mismatches == []
    assert [audit.result for _step, audit in outcome.audits] == [AuditResult.EQUAL] * 4
    assert set(ends(outcome).values()) == {FinishReason.LENGTH}
    preempted = [d for entry in outcome.entries for d in entry.decisions if isinstance(d, RequestPreempted)]
    assert bool(preempted) is is_pressed


@pytest.mark.parametrize("fault", [StaleBlock, OffByOneTable, LateOutput, SharedBlockWritten, SwappedResults])
def test_an_audit_comes_within_the_stated_number_of_steps(run: Serve, fault: type[Faulty]) -> None:
    outcome = run(fault, is_pressed=True) if fault is LateOutput else run(fault)
    assert outcome.planted is not None
    first = min(step for step, audit in outcome.audits if audit.result == AuditResult.DIFFERENT)
    assert 0 <= first - outcome.planted <= 3 * outcome.block_size + 12


def test_a_stale_block_is_found_by_the_audit(run: Serve) -> None:
    outcome = run(StaleBlock)
    assert different(outcome)[2][0] == 0
    assert 0 not in different(outcome)
    assert 1 not in different(outcome)


def test_an_off_by_one_block_table_is_found_by_the_audit_at_the_very_token(run: Serve) -> None:
    outcome = run(OffByOneTable)
    assert outcome.planted == 4
    assert different(outcome)[0][0] == 4
    assert set(different(outcome)) == {0}


def test_use_after_free_is_found_before_the_block_is_read(run: Serve) -> None:
    outcome = run(UseAfterFree)
    step, mismatch = found_at_hit(outcome)
    assert step == outcome.planted
    assert (mismatch.writer, mismatch.readers, mismatch.block_index) == (0, (3,), 1)
    again = [d for entry in outcome.entries for d in entry.decisions if isinstance(d, RequestPreempted)]
    assert [(preempted.request, preempted.reason) for preempted in again] == [(3, PreemptReason.KV_MISMATCH)]
    assert ends(outcome)[3] == FinishReason.LENGTH
    assert different(outcome) == {}


def test_an_output_that_is_late_after_a_preemption_is_found_by_the_audit(run: Serve) -> None:
    outcome = run(LateOutput, is_pressed=True)
    assert outcome.planted is not None
    assert len(different(outcome)) >= 1
    assert all(token >= 0 for token, _block in different(outcome).values())


def test_a_shared_block_that_is_written_is_found_at_the_next_hit_and_by_audits(run: Serve) -> None:
    outcome = run(SharedBlockWritten)
    assert {0, 2} <= set(different(outcome))
    (mismatch,) = [found for _step, found in outcome.mismatches if found.noticed == "hit"]
    assert (mismatch.writer, mismatch.readers, mismatch.block_index) == (0, (3,), 0)
    assert ends(outcome)[3] == FinishReason.LENGTH
    assert 3 not in different(outcome)


def test_swapped_rows_are_found_at_the_next_hit(run: Serve) -> None:
    """Request 2 comes two steps later; the one that has emitted from the block ends as failed, request 2 goes on."""
    outcome = run(SwappedRows)
    step, mismatch = found_at_hit(outcome)
    assert outcome.planted is not None
    assert step - outcome.planted <= 3
    assert (mismatch.writer, mismatch.request, mismatch.block_index) == (0, 2, 0)
    assert mismatch.readers == (0, 2)
    assert ends(outcome) == {0: "failed", 1: "length", 2: "length", 3: "length"}
    assert different(outcome) == {}


def test_swapped_results_are_found_by_the_audits_of_both(run: Serve) -> None:
    outcome = run(SwappedResults)
    assert {request: token for request, (token, _block) in different(outcome).items()} == {0: 3, 1: 2}
