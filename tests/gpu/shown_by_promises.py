"""The promises on the real model: recorded under pressure, then decided, executed and isolated again, bit for bit.

A load with shared prefixes, cancels, more requests than the pool holds, and a host pool; once with swaps, once with
recomputation, and a request's bits are the same in both.
"""

from dataclasses import replace
from pathlib import Path

from engine.core.decisions import PreemptMode, RequestAdmitted, RequestPreempted
from engine.core.events import StepCompleted
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.execution.weights.load import load_model
from engine.text.model_source import resolve_model
from kernels.cuda.backend import CudaBackend
from recorder.header import Header
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from tests.execution.test_swap import Timed
from tests.gpu.loads import load
from tests.gpu.stage import Outcome, Stage
from tests.replay.recorded_runs import SALT, SCRIPTED_CLASS, TickingClock, bits_of, entries_of, record_run
from tests.zoo import serving
from tests.zoo.bug import limits
from tests.zoo.loads import Load
from tests.zoo.tiny_model import write_tiny_model

REAL = Limits(
    block_size=16,
    num_kv_blocks=120,
    max_model_len=1024,
    max_num_seqs=16,
    max_num_batched_tokens=512,
    reserve_output="none",
    swap_space_blocks=200,
)
DRY = replace(REAL, block_size=4, num_kv_blocks=7, max_model_len=28, max_num_seqs=3, max_num_batched_tokens=16)


def promises_hold(stage: Stage) -> Outcome:
    bounds, backend = (DRY if stage.is_dry else REAL), stage.backend()

    def runner(limits: Limits) -> ModelRunner:
        store = KVStore.allocate(backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
        return ModelRunner(backend, store, stage.text_model, SALT, TickingClock(), keeps_kv_digests=True)

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(runner(Limits.from_dict(header.limits)), SCRIPTED_CLASS, {"backend": "cuda"})

    messages = load(stage)
    swapped = record_run(stage.folder / "swapped", messages, limits=bounds, runner=Timed(runner(bounds)))
    claims = _claims_of(swapped, open_runner, PreemptMode.SWAP)
    figures = _figures(entries_of(swapped))
    stage.keep(_outcome(stage, claims, figures))
    if not stage.is_dry and not stage.is_quick:
        without = replace(bounds, swap_space_blocks=0)
        recomputed = record_run(stage.folder / "recomputed", load(stage), limits=without, runner=Timed(runner(without)))
        claims |= {
            f"{claim}, recomputed": is_so
            for claim, is_so in _claims_of(recomputed, open_runner, PreemptMode.RECOMPUTE).items()
        }
        claims["swapped and recomputed requests have equal bits"] = _equal_as_far_as_both_went(swapped, recomputed)
    return _outcome(stage, claims, figures)


def _outcome(stage: Stage, claims: dict[str, bool], figures: dict[str, int]) -> Outcome:
    broken = [claim for claim, is_so in claims.items() if not is_so]
    verdict = f"{len(claims) - len(broken)} of {len(claims)} promises kept" + (f"; broken: {broken}" if broken else "")
    said = [f"{stage.model_name}: {verdict}", ", ".join(f"{name} {figure}" for name, figure in figures.items())]
    return Outcome(not broken, said, {"claims": claims, **figures})


def the_zoos_load_is_clean(stage: Stage) -> Outcome:
    """The zoo's tiny model under its pressure: every request alone is what it was in company."""
    model = write_tiny_model(stage.folder / "model")
    assert stage.device
    backend = CudaBackend()
    backend.load(load_model(resolve_model(str(model))).parameters, 512)
    load = Load(
        limits(num_kv_blocks=26, swap_space_blocks=20),
        stage.size(200, 2),
        gap_ms=24,
        sharing=70,
        leaving=10,
        output=(1, stage.size(30, 3)),
    )

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        store = KVStore.allocate(backend, load.limits.num_kv_blocks, load.limits.block_size, 20)
        runner = ModelRunner(backend, store, stage.text_model, serving.SALT, TickingClock())
        return OpenedRunner(runner, SCRIPTED_CLASS, {"backend": "cuda", "numerics_class": SCRIPTED_CLASS})

    serving.opened_models[model] = open_runner(serving.header_of(load.limits, model), Overrides())
    recording = serving.serve(stage.folder / "zoo", load.messages(0), load.limits, model)
    verdict = isolate(recording, None, open_runner=open_runner)
    is_clean = verdict.exit_code == 0 and check(recording).divergences == ()
    figures = {"requests": verdict.figures["requests"], **_figures(entries_of(recording))}
    said = ", ".join(f"{name} {figure}" for name, figure in figures.items())
    return Outcome(is_clean, [f"{'clean' if is_clean else 'differs'}: {said}"], figures)


def _claims_of(path: Path, open_runner: object, mode: PreemptMode) -> dict[str, bool]:
    preempted = [each for entry in entries_of(path) for each in entry.decisions if isinstance(each, RequestPreempted)]
    return {
        "P2 check: decided again": check(path).divergences == (),
        "P3 follow: executed again": execute(path, open_runner=open_runner).exit_code == 0,  # type: ignore[arg-type]
        "P4 isolate: alone": isolate(path, None, open_runner=open_runner).exit_code == 0,  # type: ignore[arg-type]
        f"preempted by {mode}": mode in {each.mode for each in preempted},
    }


def _figures(entries: list[Entry]) -> dict[str, int]:
    decisions = [decision for entry in entries for decision in entry.decisions]
    steps = [entry.event for entry in entries if isinstance(entry.event, StepCompleted)]
    return {
        "steps": len(steps),
        "tokens": sum(len(step.emitted) for step in steps),
        "preemptions": sum(isinstance(each, RequestPreempted) for each in decisions),
        "hit_blocks": sum(each.num_hit_blocks for each in decisions if isinstance(each, RequestAdmitted)),
    }


def _equal_as_far_as_both_went(first: Path, second: Path) -> bool:
    left, right = bits_of(first), bits_of(second)
    return all(
        left[number][: len(right[number])] == right[number][: len(left[number])]
        for number in left.keys() & right.keys()
    )
