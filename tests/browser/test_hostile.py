"""Hostile contents in ids, tenants and texts render as text: nothing runs, nothing turns around, nothing floods."""

from pathlib import Path
from typing import Any

import pytest

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, Message
from replay.viewer.single_file import write_page
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
    "panel=blocks&blockStep=4&block=0": "events, in order",
    "panel=area&area=0,1000000000000,0,9": "By kind",
    "panel=marks": "Marks of the recording",
    "panel=ask&filter=<": "SQL over this recording",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("hostile") / "recording", arrivals(IDS))


def arrivals(ids: tuple[str, ...]) -> list[tuple[int, Message]]:
    return [
        (
            number,
            Arrive(
                number,
                text,
                IDS[-1 - IDS.index(text)] if text in IDS else text,
                0,
                number,
                12,
                SamplingParams(seed=number, ignore_eos=True),
                RequestContents((number + 1, 2, 3)),
            ),
        )
        for number, text in enumerate(ids)
    ]


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


def test_nothing_recorded_becomes_markup_or_script_side_by_side(
    browser: Browser, hostile: Path, tmp_path: Path
) -> None:
    other = record_run(tmp_path / "other", arrivals(IDS[::-1]))  # others under those names, elsewhere in the order
    with viewing(hostile, other, tmp_path / "index") as url:
        browser.open_page(f"{url}#beside=1&group=difference&rowHeight=26&panel=compare")
        browser.until_text("#panel", "Latencies")
        assert_harmless(browser)
        browser.press("n")
        browser.run(HOVER)
        assert_harmless(browser)
        assert no_markup_in(drawing_of(browser))
        for which in ("", "other"):
            browser.go(f"#panel=request&request=0&which={which}")
            browser.until_text("#panel", "Everything about it")
            assert_harmless(browser)


def test_nothing_recorded_becomes_markup_or_script_in_a_single_file(
    browser: Browser, hostile: Path, tmp_path: Path
) -> None:
    written = write_page(hostile, tmp_path / "page.html", tmp_path / "index")
    browser.open_page(written.path.as_uri())
    for panel, text in {**PANELS, "panel=request&request=0": "Everything about it"}.items():
        if "area" in panel or "block=" in panel:  # not in a file, which says so
            text = "left out"
        browser.go(f"#{panel}")
        browser.until_text("#panel", text)
        assert_harmless(browser)
    browser.run(HOVER)
    assert_harmless(browser)
    assert no_markup_in(drawing_of(browser, "page/take_away.js"))


def test_contents_that_are_hostile_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    text = f"{SCRIPT} {TURNED} {CONTROL} {QUOTES}"
    recording = record_run(tmp_path / "recording", arrivals(("one",)), record_content=True)
    with viewing(recording, index_folder=tmp_path / "index") as url:
        browser.open_page(f"{url}#panel=request&request=0")
        browser.until_text("#panel", "Everything about it")
        browser.run(SHOW_TEXT, text)
        browser.click_text("read tokens and text (leaves an audit line)")
        browser.until_text("#panel", "<script>")
        assert_harmless(browser)


SHOW_TEXT = """
const [text] = arguments;
const ask = globalThis.fetch; // the recording's tokens, and a text that no small model would say
globalThis.fetch = async (...asked) => {
  const answer = await ask(...asked);
  if (!String(asked[0]).includes("contents=1")) return answer;
  const data = await answer.json();
  const contents = { prompt_tokens: [1, 2], output_tokens: [3], prompt_text: text, output_text: text, is_cut: false };
  return new Response(JSON.stringify({ ...data, contents }), { headers: { "Content-Type": "application/json" } });
};
"""
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


def drawing_of(browser: Browser, module: str = "./take_away.js") -> str:
    return str(browser.run_async(f"import('{module}').then((m) => done(m.svgOf(reprise.timeline)))"))


def no_markup_in(svg: str) -> bool:
    return not any(tag in svg for tag in ("<script", "<img", "<b>", "onload=owned=1>"))
