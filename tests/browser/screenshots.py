"""The README's pictures: six views of a crowded recording, taken as somebody would look at them.

`python -m tests.browser.screenshots FOLDER`; each at most 170 kB.
"""

import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.browser.chromium import Browser, chromium, missing
from tests.browser.recordings import CROWDED, record_crowded
from tests.browser.viewer_server import viewing

MAX_BYTES = 170_000
BURST = "from=5600000000&to=13200000000"
VIEWS = {
    "timeline": (f"#{BURST}&group=state&row=9", "", "#status"),
    "step": (f"#{BURST}&row=26&panel=step&step=897", "Decisions in order", "#panel"),
    "request": (f"#{BURST}&row=44&panel=request&request=24", "Everything about it", "#panel"),
    "blocks": (
        f"#{BURST}&row=44&panel=blocks&blockStep=1000&block=42&request=17&theme=dark",
        "events, in order",
        "#panel",
    ),
    "compare": (
        f"#{BURST}&beside=1&group=difference&filter=search&rowHeight=34&panel=compare&difference=4",
        "difference 5 of",
        "#panel",
    ),
    "ask": (f"#{BURST}&row=44&panel=ask&sql={{sql}}", "rows in", "#panel"),
}
SQL = "SELECT victim, beneficiary, reason, step, tokens_lost, blocks_freed FROM preemptions ORDER BY tokens_lost DESC"


def take(browser: Browser, url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (place, text, where) in VIEWS.items():
        browser.open_page(url + place.replace("{sql}", SQL.replace(" ", "+")))
        browser.until_text(where, text)
        browser.until_drawn()
        browser.run("document.activeElement.blur()")
        browser.run_async("requestAnimationFrame(() => requestAnimationFrame(done))")
        target = folder / f"{name}.png"
        browser.screenshot(target)
        size = target.stat().st_size
        print(f"{target}: {size:,} bytes")
        if size > MAX_BYTES:
            raise SystemExit(f"{target} has {size:,} bytes, at most {MAX_BYTES:,} are wanted")


def main(arguments: list[str]) -> int:
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        recording = record_crowded(Path("recordings/crowded"))  # relative, for the pictures show it
        other = record_crowded(Path("recordings/fewer-blocks"), replace(CROWDED, num_kv_blocks=380))
        with viewing(recording, other, Path("index").resolve()) as url, chromium(1120, 700) as browser:
            take(browser, url, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
