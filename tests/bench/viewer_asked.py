"""How soon the viewer's page and its server answer on a long recording: inspectors, tiles, strips, selections, search.

By the clock, as a reader meets it: inspectors from the click until they are shown, questions through HTTP out of the
page until the whole answer is there. Each several times, at places that differ.
"""

import random
from collections.abc import Callable, Iterator

from tests.browser.chromium import Browser

TIMES = 7
SHOWN = """
const begun = performance.now();
const isShown = () => {
  const panel = document.querySelector("#panel");
  return panel?.innerText.includes(WANTED) && !panel.querySelector(".busy, [role=status]");
};
const look = () => (isShown() ? done(performance.now() - begun) : setTimeout(look, 2));
reprise.update(PATCH);
setTimeout(look, 0);
"""
ASKED = """
const begun = performance.now();
fetch(arguments[0]).then(async (response) => {
  await response.arrayBuffer();
  done(response.ok ? performance.now() - begun : response.status * 1e6);
});
"""


def inspectors(browser: Browser, step: int, request: int) -> Iterator[tuple[str, list[float]]]:
    """(what, milliseconds of each time)."""
    opened = (
        (f"step inspector at {step:,}", "panel: 'step', step", step, "In the batch"),
        (f"block map at {step:,}", "panel: 'blocks', blockStep", step, "step"),
        (f"request inspector at {request:,}", "panel: 'request', request", request, "TTFT"),
    )
    for what, patch, place, wanted in opened:
        found = []
        for time in range(TIMES):
            browser.run("reprise.update({ panel: '' })")
            constants = f"const PATCH = {{ {patch}: {place - time * 31} }}, WANTED = {wanted!r};"
            found.append(float(browser.run_async(f"{constants} {SHOWN}")))
        yield what, found
    browser.run("reprise.update({ panel: '' })")


def questions(browser: Browser, to_ns: float, num_requests: int) -> Iterator[tuple[str, list[float]]]:
    """(what, milliseconds of each time)."""
    draw = random.Random(1)

    def view(narrowest: float = 1e-5) -> str:
        span = to_ns * narrowest ** draw.random()
        begin = draw.uniform(0, to_ns - span)
        return f"life=1&axis=time&from={begin}&to={begin + span}"

    every = f"life=1&axis=time&from=0&to={to_ns}"
    asked: dict[str, Callable[[], str]] = {
        "tile of 64 rows": lambda: f"timeline?{view()}&width=768&group=tenant&rows={draw.randrange(num_requests)},64",
        "tile of who lives in view": lambda: f"timeline?{view()}&width=768&group=tenant&rows=0,64&alive=1",
        "strips, any view": lambda: f"strips?{view()}&width=512",
        "strips of all": lambda: f"strips?{every}&width=512",
        "selection, any view": lambda: f"area?{view()}",
        "selection of all": lambda: f"area?{every}",
        "search": lambda: f"search?q={draw.randrange(num_requests)}",
        "marks": lambda: f"marks?{view()}",
        "arrows": lambda: f"arrows?{view()}",
    }
    for what, path in asked.items():
        yield what, [float(browser.run_async(ASKED, f"api/{path()}")) for _ in range(TIMES)]
