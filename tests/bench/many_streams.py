"""500 streams held open, 2,000 queued, more than may queue, slow readers among them.

    python -m tests.bench.many_streams

The daemon and its engine are real, the runner without weights takes --step-ms a step. Said are the event loop's lag,
how long /health took meanwhile, and the memory; what clients got is checked. It runs for about a minute.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from tests.daemon.scripted_process import ScriptedDaemon
from tests.load.health_prober import HealthProber
from tests.load.many_streams import ENDLESS_TOKENS, Books, Load, overload

CLIENT_TIMEOUT_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.many_streams", description=__doc__)
    parser.add_argument("--held", type=int, default=500)
    parser.add_argument("--queued", type=int, default=2000)
    parser.add_argument("--beyond", type=int, default=200)
    parser.add_argument("--slow", type=int, default=25)
    parser.add_argument("--never", type=int, default=25)
    parser.add_argument("--held-tokens", type=int, default=160)
    parser.add_argument("--queued-tokens", type=int, default=16)
    parser.add_argument("--step-ms", type=float, default=250.0)
    given = parser.parse_args(arguments)
    load = Load(given.held, given.queued, given.beyond, given.slow, given.never, given.held_tokens, given.queued_tokens)
    with tempfile.TemporaryDirectory() as folder:
        for line in report(load, given.step_ms, Path(folder)):
            print(line)
    return 0


def report(load: Load, step_ms: float, folder: Path) -> list[str]:
    num_blocks = load.num_held * (-(-(load.held_tokens + 8) // 16) + 1) + load.num_never * ENDLESS_TOKENS // 16
    options: dict[str, Any] = {
        "max_num_seqs": load.num_held,
        "max_num_batched_tokens": 2 * load.num_held,
        "max_num_queued_reqs": load.num_queued,
        "max_model_len": ENDLESS_TOKENS + 16,
        "num_kv_blocks": num_blocks,
        "client_timeout": CLIENT_TIMEOUT_SECONDS,
        "audit_rate": 0.0,
    }
    environment = {"SCRIPTED_STEP_SECONDS": str(step_ms / 1000)}
    with ScriptedDaemon(folder, environment, max_descriptors=1024, **options) as daemon:
        before = daemon.resident_bytes()
        with HealthProber(daemon.port) as prober, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            books: Books = runner.run(overload(daemon.port, load))
        after = daemon.resident_bytes()
        daemon.until_idle()
    books.check()
    milliseconds = sorted(prober.milliseconds)
    p50, p99 = (milliseconds[round((len(milliseconds) - 1) * share)] for share in (0.5, 0.99))
    num_late = sum(each > 100 for each in milliseconds)
    memory = ", ".join(f"{was >> 20} → {now >> 20} MiB" for was, now in zip(before, after, strict=True))
    return [
        f"many streams: load of the machine {os.getloadavg()[0]:.1f}; a step takes {step_ms:g} ms",
        f"  {books.summary()}",
        f"  event loop's lag: {_written(daemon.told['lag_ms'])}; its own work in that time: "
        f"{_written(daemon.told['work_ms'])}",
        f"  /health: {len(milliseconds)} asked, {prober.num_failed} failed, p50 {p50} ms, p99 {p99} ms, "
        f"longest {milliseconds[-1]} ms, {num_late} over 100 ms",
        f"  memory of daemon, engine: {memory}",
        f"  left: {daemon.told['num_live']} live requests, {daemon.told['num_open_calls']} calls",
    ]


def _written(percentiles: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in percentiles.items()) + " ms"


if __name__ == "__main__":
    sys.exit(main())
