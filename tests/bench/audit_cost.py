"""What digests of KV blocks and the self-audit cost, with the default model: CPU time of one thread, in turns.

    python -m tests.bench.audit_cost [--rounds 3]

The load: 16 requests at once of 128 to 320 prompt tokens, 32 output tokens each, half of them with a shared prefix of
128. CPU time, for a busy neighbour disturbs it least; what the digests take is timed by itself, for the ratio on/off of
whole turns varies by more than that. An audit's slice is what an arriving request may have to wait for.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.events import AuditCompleted
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.build import BuiltRunner, build_runner
from engine.execution.runner import ModelRunner
from engine.loop import EngineLoop, NoRecord
from engine.protocol import Arrive, Message, Stop
from engine.self_audit import SelfAudit
from engine.text.model_source import DEFAULT_MODEL

KEY = bytes(16)
NUM_REQUESTS, NUM_OUTPUT_TOKENS = 16, 32


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.audit_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    built = build_runner(EngineConfig(DEFAULT_MODEL, num_kv_blocks=600, num_threads=1), KEY, SystemClock())
    times = [[_seconds(built, keeps, None) for keeps in (False, True)] for _ in range(rounds + 1)][1:]
    without = median(off for (off, _), _on in times)
    ratios = [on / off for (off, _), (on, _) in times]
    shares = [digests / on for _off, (on, digests) in times]
    print(f"KV digests: {median(shares):.2%} of the CPU time of a run that takes {without:.2f} s without")
    print(f"  on / off, whole runs: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    audit = _TimedAudit(1.0, built.limits, lambda n: built.runner.emptied(n, built.limits.block_size, 0))
    _seconds(built, False, audit)
    each, served = sum(audit.slices) / NUM_REQUESTS * 1e3, without / NUM_REQUESTS * 1e3
    print(f"self-audit: {each:.0f} ms of CPU time for an audited request, which took {served:.0f} in company")
    print(f"  a slice: median {median(audit.slices) * 1e3:.1f} ms, longest {max(audit.slices) * 1e3:.1f} ms")


class _TimedAudit(SelfAudit):
    slices: list[float] = []  # noqa: RUF012  # one bench, one list

    def run_slice(self) -> list[AuditCompleted]:  # type: ignore[override]  # without digests there is nothing else
        started = time.thread_time()
        found = super().run_slice()
        self.slices.append(time.thread_time() - started)
        assert all(isinstance(each, AuditCompleted) and each.result == "equal" for each in found)
        return found  # type: ignore[return-value]  # as asserted


class _Inbox:
    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def get(self) -> Message:
        return self._messages.pop(0) if self._messages else Stop("done")

    def drain(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages


def _seconds(built: BuiltRunner, keeps_kv_digests: bool, audit: SelfAudit | None) -> tuple[float, float]:
    """CPU time of the load, from an empty pool, and of it what the digests took."""
    like = built.runner.emptied(600, built.limits.block_size, 0)
    runner = ModelRunner(
        like.backend, like.kv_store, like._text_model, KEY, SystemClock(), keeps_kv_digests=keeps_kv_digests
    )
    digest_seconds = 0.0
    if runner.watch is not None:
        digest = runner.watch._digest

        def timed(blocks: Sequence[int]) -> list[int]:
            nonlocal digest_seconds
            before = time.process_time()
            digests = digest(blocks)
            digest_seconds += time.process_time() - before
            return digests

        runner.watch._digest = timed
    entries: list[Entry] = []
    loop = EngineLoop(
        Core(replace(built.limits, num_kv_blocks=600)),
        runner,
        SystemClock(),
        NoRecord(),
        lambda entry, outputs: entries.append(entry),
        watch=runner.watch,
        audit=audit,
    )
    started = time.process_time()
    loop.serve(_Inbox(list(_requests())))
    return time.process_time() - started, digest_seconds


def _requests() -> list[Message]:
    draw = random.Random(1)
    prefix = tuple(draw.randrange(1000, 40_000) for _ in range(128))
    messages: list[Message] = []
    for number in range(NUM_REQUESTS):
        own = tuple(draw.randrange(1000, 40_000) for _ in range(draw.randrange(128, 257)))
        prompt = (prefix + own)[: len(own) + 64] if number % 2 else own
        sampling = SamplingParams(seed=number, ignore_eos=True)
        messages.append(Arrive(number, f"r{number}", "", 0, 0, NUM_OUTPUT_TOKENS, sampling, RequestContents(prompt)))
    return messages


if __name__ == "__main__":
    main()
