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
from recorder.header import Header
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from tests.execution.test_swap import Timed
from tests.gpu.loads import load
from tests.gpu.stage import Outcome, Stage
from tests.replay.recorded_runs import SALT, SCRIPTED_CLASS, TickingClock, entries_of, record_run

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
    limits, backend = (DRY if stage.is_dry else REAL), stage.backend()

    def runner(limits: Limits) -> ModelRunner:
        store = KVStore.allocate(backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
        return ModelRunner(backend, store, stage.text_model, SALT, TickingClock(), keeps_kv_digests=True)

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(runner(Limits.from_dict(header.limits)), SCRIPTED_CLASS, {"backend": "cuda"})

    messages = load(stage)
    swapped = record_run(stage.folder / "swapped", messages, limits=limits, runner=Timed(runner(limits)))
    claims = _claims_of(swapped, open_runner, PreemptMode.SWAP)
    if not stage.is_dry:
        without = replace(limits, swap_space_blocks=0)
        recomputed = record_run(stage.folder / "recomputed", load(stage), limits=without, runner=Timed(runner(without)))
        claims |= {
            f"{claim}, recomputed": is_so
            for claim, is_so in _claims_of(recomputed, open_runner, PreemptMode.RECOMPUTE).items()
        }
        claims["swapped and recomputed requests have equal bits"] = _equal_as_far_as_both_went(swapped, recomputed)
    broken = [claim for claim, is_so in claims.items() if not is_so]
    figures = {"claims": claims, **_figures(entries_of(swapped))}
    said = [f"{len(claims) - len(broken)} of {len(claims)} promises kept" + (f"; broken: {broken}" if broken else "")]
    said += [", ".join(f"{name} {figure}" for name, figure in figures.items() if name != "claims")]
    return Outcome(not broken, said, figures)


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
    left, right = _bits_of(first), _bits_of(second)
    return all(
        left[number][: len(right[number])] == right[number][: len(left[number])]
        for number in left.keys() & right.keys()
    )


def _bits_of(path: Path) -> dict[int, list[tuple[int, int]]]:
    """request → hidden digest and log-probability bits of each of its tokens."""
    bits: dict[int, list[tuple[int, int]]] = {}
    for entry in entries_of(path):
        if isinstance(entry.event, StepCompleted):
            for request, _flag, digest, logprob in entry.event.emitted:
                bits.setdefault(request, []).append((digest, logprob))
    return bits
