"""The trace viewer with a long recording: first paint, frames while panning and zooming, memory of tab and server.

    python -m tests.bench.viewer_speed 1000000   # so many steps (20,000 unless said), or a recording that is there

64 requests run at any time. Needs Chromium. Goals for a million: first paint 2 s, 50 frames a second, 500 MB a tab.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.clock import SystemClock
from engine.core.limits import Limits
from replay.simulate.arrivals import Arrival
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from tests.browser.chromium import Browser, chromium, missing

CONCURRENT, PROMPT, OUTPUT = 64, 64, 2_000
LIMITS = Limits(
    block_size=16, num_kv_blocks=10_000, max_model_len=4_096, max_num_seqs=CONCURRENT, max_num_batched_tokens=2_048,
    max_num_queued_reqs=1_000_000,
)  # fmt: skip
WATCH = """
const { state, update, timeline } = reprise;
const first = timeline.frames.length;
const gaps = [];
let before = 0;
const begun = performance.now();
const frame = (now) => {
  if (before) gaps.push(now - before);
  before = now;
  const span = state.to - state.from;
  const passed = (now - begun) / 1000;
  const factor = MODE === "zoom" ? Math.exp(Math.sin(passed * 2) * 0.05) : 1;
  const by = MODE === "pan" ? span * 0.01 * Math.sign(Math.sin(passed * 2)) : 0;
  const middle = (state.from + state.to) / 2 + by;
  update({ from: middle - (span * factor) / 2, to: middle + (span * factor) / 2 });
  if (passed < 4) requestAnimationFrame(frame);
  else {
    const sorted = (values) => [...values].sort((a, b) => a - b);
    const at = (values, share) => sorted(values)[Math.floor(values.length * share)];
    const drawn = timeline.frames.slice(-gaps.length);
    done({ frames: gaps.length, gap: at(gaps, 0.95), draw: at(drawn, 0.95) });
  }
};
requestAnimationFrame(frame);
"""


def report(num_steps: int = 20_000, recording: Path | None = None) -> list[str]:
    lines = [
        f"viewer, {CONCURRENT} requests in each step (goals for a million: 2 s, 20 ms between frames, 500 MB a tab)"
    ]
    if why := missing():
        return [*lines, f"  not measured: {why}"]
    with tempfile.TemporaryDirectory() as temporary:
        if recording is None:
            recording = Path(temporary) / "long"
            made = run_simulation(LIMITS, arrivals(num_steps), StepCost(), record_dir=recording, trace="long")
            lines.append(
                f"  {made['steps']:,} steps of {made['arrived']:,} requests, made in {made['wall_seconds']:.1f} s"
            )
        with served(recording, Path(temporary)) as (url, pid), chromium() as browser:
            lines += [*indexed(browser, url), *measured(browser, url)]
            lines.append(f"  server: {resident_mb(pid):.0f} MB, the indexing process included")
    return lines


def indexed(browser: Browser, url: str) -> Iterator[str]:
    clock = SystemClock()
    began_ns = clock.now_ns()
    browser.open(url)
    first_ms = browser.until(lambda: browser.run("return globalThis.reprise?.firstPaint"), "anything is painted", 600)
    index = browser.run("return reprise.state.recording.index")
    yield f"  first paint without an index: {first_ms:.0f} ms, with {index['num_entries']:,} entries of it"
    browser.until(
        lambda: browser.run("return globalThis.reprise?.state.recording.index.state") == "ready", "indexed", 7_200
    )
    life = browser.run("return reprise.state.recording.lives[0]")
    seconds = (clock.now_ns() - began_ns) / 1e9
    yield f"  {life['num_steps']:,} steps of {life['num_requests']:,} requests, indexed within {seconds:.1f} s"


def measured(browser: Browser, url: str) -> Iterator[str]:
    browser.open_page(url.partition("?")[0])
    yield f"  first paint: {browser.run('return reprise.firstPaint'):.0f} ms after the navigation began"
    for mode in ("pan", "zoom"):
        middle = "const [a, b] = reprise.bounds(); const m = (a + b) / 2, w = (b - a) / 8; "
        browser.run(middle + "reprise.update({ from: m - w, to: m + w })")
        browser.until_drawn()
        before = browser_cpu_ms(browser)
        found = browser.run_async(f'const MODE = "{mode}"; {WATCH}')
        yield (
            f"  {mode}: {found['frames'] / 4:.0f} frames/s, p95 {found['gap']:.1f} ms between frames, "
            f"of which the page draws {found['draw']:.1f} ms; "
            f"{(browser_cpu_ms(browser) - before) / found['frames']:.1f} ms of CPU a frame, the whole browser"
        )
    browser.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    heap = browser.run("return performance.memory.usedJSHeapSize")
    cached = browser.run("return reprise.timeline.slices.bytes + reprise.timeline.counters.bytes")
    resident = renderer_mb(browser)
    yield f"  tab: heap {heap / 1e6:.0f} MB, tiles {cached / 1e6:.1f} MB, its process {resident:.0f} MB resident"


def arrivals(num_steps: int) -> list[Arrival]:
    """So many at once as run together, then one whenever one ends: they differ in length, so that ends spread out."""
    num = max(CONCURRENT, num_steps * CONCURRENT // OUTPUT)
    lengths = [OUTPUT // 2 + (number * 7_919) % OUTPUT for number in range(num)]
    return [
        Arrival(number, PROMPT, length, tenant=f"tenant-{number % 5}", max_output_tokens=length, name=f"long-{number}")
        for number, length in enumerate(lengths)
    ]


@contextmanager
def served(recording: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """`reprise view` as people start it: (its address, its process)."""
    command = [sys.executable, "-m", "daemon", "view", str(recording), "--no-open", "--json"]
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        process.communicate()


def resident_mb(pid: int) -> float:
    """The process and its children."""
    return sum(_rss_kb(each) for each in _family(pid)) / 1e3


def renderer_mb(browser: Browser) -> float:
    """The greatest of the browser's processes that draw pages."""
    assert browser.driver.service.process is not None
    renderers = [
        each
        for each in _family(browser.driver.service.process.pid)
        if b"--type=renderer" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return max((_rss_kb(each) for each in renderers), default=0) / 1e3


def browser_cpu_ms(browser: Browser) -> float:
    """What the clock on the wall cannot tell on a machine in use."""
    assert browser.driver.service.process is not None
    family = _family(browser.driver.service.process.pid)
    ticks = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family]
    return sum(int(fields[11]) + int(fields[12]) for fields in ticks) * 1e3 / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    children = [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
    return [pid, *(each for child in children for each in _family(child))]


def _rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else "20000"
    print(*(report(int(asked)) if asked.isdecimal() else report(recording=Path(asked).resolve())), sep="\n")
