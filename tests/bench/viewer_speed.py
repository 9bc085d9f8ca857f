"""The trace viewer with a long recording: first paint, frames while the view moves, answers, memory of tab and server.

    python -m tests.bench.viewer_speed 1000000                      # so many steps are made (20,000 unless said)
    python -m tests.bench.viewer_speed RECORDING --cache FOLDER     # and its index is kept there for the next time

64 requests run at any time. Needs Chromium. Goals for a million: first paint 2 s, at most 20 ms between frames at the
95th percentile, 500 MB a tab. Figures by the clock are those of the machine too: its load is printed beside them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.clock import SystemClock
from engine.core.limits import Limits
from replay.simulate.arrivals import Arrival
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from tests.bench.processes import cpu_ms, family, resident_mb
from tests.bench.viewer_asked import inspectors, questions
from tests.bench.viewer_moves import browser_pids, moved, moves
from tests.browser.chromium import Browser, chromium, missing

CONCURRENT, PROMPT, OUTPUT = 64, 64, 2_000
LIMITS = Limits(
    block_size=16, num_kv_blocks=10_000, max_model_len=4_096, max_num_seqs=CONCURRENT, max_num_batched_tokens=2_048,
    max_num_queued_reqs=1_000_000,
)  # fmt: skip
NUM_PAINTS = 5
FAR_IN = 0.9  # of the recording: where inspectors are opened


def report(recording: Path, cache: Path, seconds: float) -> Iterator[str]:
    """seconds   of each move of the view"""
    yield f"viewer, {CONCURRENT} requests in each step (goals for a million: 2 s, 20 ms between frames, 500 MB a tab)"
    with served(recording, cache) as (url, pid), chromium() as browser:
        browser.driver.set_script_timeout(120)
        yield from indexed(browser, url)
        yield from painted(browser, url.partition("?")[0])
        life = browser.run("return reprise.state.recording.lives[0]")
        for move in moves(life["num_steps"]):
            yield f"{moved(browser, move, life['num_steps'], seconds)}; load {os.getloadavg()[0]:.1f}"
        yield tab(browser)
        near = int(life["num_requests"] * FAR_IN)
        answered = [
            *inspectors(browser, int(life["last_step"] * FAR_IN), near),
            *questions(browser, life["to_ns"], life["num_requests"]),
        ]
        for what, found in answered:
            found.sort()
            yield f"{what:<32} {found[len(found) // 2]:>5.0f} ms, {found[-1]:>5.0f} at most of {len(found)}"
        yield tab(browser)
        pids = family(pid)
        yield (
            f"server: {resident_mb(pids[:1]):.0f} MB, {resident_mb(pids[:1], 'VmHWM'):.0f} at most; with the indexing "
            f"process {resident_mb(pids):.0f}; {cpu_ms(pids) / 1e3:.1f} s of CPU; load {os.getloadavg()[0]:.1f}"
        )


def indexed(browser: Browser, url: str) -> Iterator[str]:
    clock = SystemClock()
    began_ns = clock.now_ns()
    browser.open(url)
    first_ms = browser.until(lambda: browser.run("return globalThis.reprise?.firstPaint"), "anything is painted", 600)
    index = browser.run("return reprise.state.recording.index")
    browser.until(
        lambda: browser.run("return globalThis.reprise?.state.recording.index.state") == "ready", "indexed", 7_200
    )
    life = browser.run("return reprise.state.recording.lives[0]")
    seconds = (clock.now_ns() - began_ns) / 1e9
    yield f"{life['num_steps']:,} steps of {life['num_requests']:,} requests, load {os.getloadavg()[0]:.1f}"
    yield f"first opening: painted after {first_ms:.0f} ms, with {index['num_entries']:,} entries read for the index"
    yield f"the index is complete after {seconds:.1f} s"


def painted(browser: Browser, url: str) -> Iterator[str]:
    found = []
    for _ in range(NUM_PAINTS):
        browser.open_page(url)
        found.append(browser.run("return reprise.firstPaint"))
    found.sort()
    yield f"first paint: {found[NUM_PAINTS // 2]:.0f} ms after the navigation began, {found[-1]:.0f} at most"


def tab(browser: Browser) -> str:
    browser.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    heap = browser.run("return performance.memory.usedJSHeapSize")
    cached = browser.run("return reprise.timeline.slices.bytes + reprise.timeline.counters.bytes")
    renderers = [
        pid for pid in browser_pids(browser) if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    resident = max((resident_mb([pid]) for pid in renderers), default=0.0)
    return f"tab: heap {heap / 1e6:.0f} MB, tiles {cached / 1e6:.1f} MB, its process {resident:.0f} MB resident"


def arrivals(num_steps: int) -> list[Arrival]:
    """All at once; so many as run together begin, then one whenever one ends. They differ in length."""
    num = max(CONCURRENT, num_steps * CONCURRENT // OUTPUT)
    lengths = [OUTPUT // 2 + (number * 7_919) % OUTPUT for number in range(num)]
    return [
        Arrival(number, PROMPT, length, tenant=f"tenant-{number % 5}", max_output_tokens=length, name=f"long-{number}")
        for number, length in enumerate(lengths)
    ]


@contextmanager
def served(recording: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """`reprise view` as people start it, with its index below `cache`: (its address, its process)."""
    command = [sys.executable, "-m", "daemon", "view", str(recording), "--no-open", "--json"]
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "/usr/bin:/bin", "HOME": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        process.communicate()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", default="20000", help="that is there, or about how many steps to make")
    parser.add_argument("--cache", type=Path, help="where the index is kept, and found again")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each move of the view (default: %(default)s)")
    args = parser.parse_args(arguments)
    if why := missing():
        print(f"not measured: {why}")
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        recording = Path(args.recording)
        if args.recording.isdecimal():
            recording = Path(temporary) / "long"
            run_simulation(LIMITS, arrivals(int(args.recording)), StepCost(), record_dir=recording, trace="long")
        for line in report(recording.resolve(), (args.cache or Path(temporary) / "cache").resolve(), args.seconds):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
