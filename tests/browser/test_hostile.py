"""Hostile contents in ids, tenants and texts render as text: nothing runs, nothing turns around, nothing floods."""

from pathlib import Path
from typing import Any

import pytest

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, Message
from tests.browser.chromium import Browser
from tests.browser.viewer_server import viewing
from tests.replay.recorded_runs import record_run

SCRIPT = "<script>globalThis.owned = 1</script><img src=x onerror=owned=1>"
TURNED = "safe\u202egnp.exe\u2066\u200f"
CONTROL = "nul\x00 bell\x07 esc\x1b[31m\nnext\ttab\x9b"
LONG = "n" * 100_000
QUOTES = "\"'><svg onload=owned=1>${owned=1}{{owned}}"
IDS = (SCRIPT, TURNED, CONTROL, LONG, QUOTES, "]]></script><b>bold</b>")

PANELS = {
    "panel=rows": "Requests in view",
    "panel=step&step=4": "In the batch",
    "panel=ask&query=<": "Requests:",
    "panel=rows&group=tenant": "Requests in view",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    messages: list[tuple[int, Message]] = [
        (
            number,
            Arrive(
                number,
                text,
                IDS[-1 - number],
                0,
                number,
                12,
                SamplingParams(seed=number, ignore_eos=True),
                RequestContents((number + 1, 2, 3)),
            ),
        )
        for number, text in enumerate(IDS)
    ]
    return record_run(tmp_path_factory.mktemp("hostile") / "recording", messages)


def test_nothing_recorded_becomes_markup_or_script(browser: Browser, hostile: Path, tmp_path: Path) -> None:
    with viewing(hostile, index_folder=tmp_path / "index") as url:
        browser.open_page(url)
        for number in range(len(IDS)):
            browser.go(f"#panel=request&request={number}")
            browser.until_text("#panel h2", f"Request {number}")
            browser.until_text("#panel", "Everything about it")
            assert_harmless(browser)
        for panel, text in PANELS.items():
            browser.go(f"#{panel}")
            browser.until_text("#panel", text)
            assert_harmless(browser)
        browser.open_page(f"{url}#panel=ask&sql=SELECT * FROM requests")
        browser.until_text("#panel", "The answer")
        assert_harmless(browser)
        browser.run(HOVER)
        assert_harmless(browser)
        assert no_markup_in(drawing_of(browser))


HOVER = """
const canvas = document.getElementById("timeline");
const box = canvas.getBoundingClientRect();
for (let y = 240; y < 360; y += 9) {
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.x + 60, clientY: box.y + y, bubbles: true }));
}
"""


def assert_harmless(browser: Browser) -> None:
    found: dict[str, Any] = browser.run(
        """
        return {
          owned: globalThis.owned ?? null,
          markup: document.querySelectorAll("#panel :is(script, img, b, svg[onload]), #tooltip img").length,
          unseen: /[\\u202a-\\u202e\\u2066-\\u2069\\u200f\\u0000\\u001b\\u009b]/.test(document.body.innerText),
          length: document.body.innerText.length,
        };
        """
    )
    length = found.pop("length")
    assert found == {"owned": None, "markup": 0, "unseen": False}
    assert length < 60_000  # a name of 100 kB is cut, and its length told


def drawing_of(browser: Browser) -> str:
    return str(browser.run_async("import('./take_away.js').then((m) => done(m.svgOf(reprise.timeline)))"))


def no_markup_in(svg: str) -> bool:
    return not any(tag in svg for tag in ("<script", "<img", "<b>", "onload=owned=1>"))
