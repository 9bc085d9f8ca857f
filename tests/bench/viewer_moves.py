"""How the viewer's page moves: frames, the longest waits between them and what they cost, while the view changes.

A move begins at a view and changes it by the clock, so that it is the same whatever the machine manages. CPU time is
told beside frames: on a machine in use only that can be compared.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.processes import cpu_ms, family
from tests.browser.chromium import Browser

FEW_STEPS = 20
MOVING = """
const { state, update, timeline } = reprise;
const { from, to } = state, span = to - from, middle = (from + to) / 2;
const gaps = [];
let before = 0;
const begun = performance.now();
const MOVES = {
  pan: (passed) => {
    const by = span * 0.3 * Math.sin(passed * 2);
    update({ from: from + by, to: to + by });
  },
  zoom: (passed) => {
    const width = span * (NARROWEST / span) ** ((1 - Math.cos((passed * 2 * Math.PI) / SECONDS)) / 2);
    update({ from: middle - width / 2, to: middle + width / 2 });
  },
  scroll: (passed) => update({ row: 400 * (1 - Math.cos(passed)) }),
};
const frame = (now) => {
  if (before) gaps.push(now - before);
  before = now;
  const seconds = (performance.now() - begun) / 1000;
  MOVES[MOVE](seconds);
  if (seconds < SECONDS) return requestAnimationFrame(frame);
  const at = (values, share) => [...values].sort((a, b) => a - b)[Math.floor(values.length * share)];
  const drawn = timeline.frames.slice(-gaps.length);
  const [gap, draw, slowDraw] = [at(gaps, 0.95), at(drawn, 0.5), at(drawn, 0.95)];
  return done({ frames: gaps.length, seconds, gap, longest: Math.max(...gaps), draw, slowDraw });
};
requestAnimationFrame(frame);
"""


class Move(NamedTuple):
    """
    share   of the recording that is in view when it begins
    kind    "pan": there and back; "zoom": from there to a few steps and back; "scroll": through the rows
    alive   only rows that live in view
    """

    what: str
    axis: str
    share: float
    kind: str
    alive: int = 0


def moves(num_steps: int) -> Iterator[Move]:
    few = FEW_STEPS / num_steps
    for axis in ("time", "step"):
        yield Move(f"{axis}: pan, {FEW_STEPS} steps in view", axis, few, "pan")
        yield Move(f"{axis}: pan, a thousandth", axis, max(few, 0.001), "pan")
        yield Move(f"{axis}: pan, a quarter", axis, 0.25, "pan")
        yield Move(f"{axis}: pan, all", axis, 1.0, "pan")
        yield Move(f"{axis}: zoom, a quarter to a few", axis, 0.25, "zoom")
        yield Move(f"{axis}: zoom, all to a few", axis, 1.0, "zoom")
    yield Move("time: scroll through the rows", "time", 0.25, "scroll")
    yield Move("time: pan, who lives in view", "time", max(few, 0.001), "pan", alive=1)


def moved(browser: Browser, move: Move, num_steps: int, seconds: float) -> str:
    """One line."""
    begin = (
        f"reprise.update({{ axis: '{move.axis}', alive: {move.alive}, row: 0 }}); const [a, b] = reprise.bounds();"
        f"const middle = a + (b - a) * 0.6, half = ((b - a) * {move.share}) / 2;"
        "reprise.update({ from: middle - half, to: middle + half }); return (b - a) / arguments[0]"
    )
    step = browser.run(begin, num_steps)
    browser.until_drawn()
    used = cpu_ms(browser_pids(browser))
    constants = f'const MOVE = "{move.kind}", SECONDS = {seconds}, NARROWEST = {FEW_STEPS * step};'
    found = browser.run_async(f"{constants} {MOVING}")
    used = (cpu_ms(browser_pids(browser)) - used) / found["frames"]
    return (
        f"{move.what:<32} {found['frames'] / found['seconds']:>3.0f} frames/s, p95 {found['gap']:>5.1f} ms between them"
        f" (longest {found['longest']:>4.0f}); CPU of a frame {used:>4.1f} ms, the whole browser, of which drawing "
        f"{found['draw']:.1f} by the clock (p95 {found['slowDraw']:.1f})"
    )


def browser_pids(browser: Browser) -> list[int]:
    assert browser.driver.service.process is not None
    return family(browser.driver.service.process.pid)
