"""A recording that is being made: the daemon's own /viewer keeps up with its load, and takes input meanwhile."""

import asyncio
from pathlib import Path

from tests.browser.chromium import Browser
from tests.daemon.served import Served, serving

TOKEN = "viewer-token-of-the-tests"
NUM_BEFORE, NUM_STREAMS = 4, 12
AT_END = "const [, last] = reprise.bounds(); return reprise.state.to >= last"


def test_the_page_keeps_up_with_a_daemon_under_load(browser: Browser, tmp_path: Path) -> None:
    asyncio.run(watch_a_daemon(browser, tmp_path))


async def watch_a_daemon(browser: Browser, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN, "ascii")
    async with serving(tmp_path / "recordings", max_num_seqs=8, viewer_token_file=str(token_file)) as served:
        await load(served, NUM_BEFORE)
        await asyncio.to_thread(look, browser, f"{served.base_url}/viewer/?token={TOKEN}")
        num_steps = browser.run("return reprise.state.recording.lives[0].num_steps")
        working = asyncio.create_task(load(served, NUM_STREAMS))
        await asyncio.to_thread(browser.until, lambda: browser.run(grown_by(num_steps)), "steps come in")
        browser.press("w")  # input is taken while the tail grows
        await working
        await asyncio.to_thread(
            browser.until, lambda: num_requests(browser) >= NUM_BEFORE + NUM_STREAMS, "all are there"
        )
        await asyncio.to_thread(browser.until, lambda: browser.run(AT_END), "the newest is in view")
        assert browser.refusals() == []
        await asyncio.to_thread(browser.open, "about:blank")  # its stream of events ends before the daemon does


def look(browser: Browser, url: str) -> None:
    browser.open_page(url)
    assert TOKEN not in browser.run("return location.href")
    browser.until_text("#status", "live")
    browser.click("#follow")


def grown_by(num_steps: int) -> str:
    return f"return reprise.state.recording.lives[0].num_steps > {num_steps} + 100"


def num_requests(browser: Browser) -> int:
    return int(browser.run("return reprise.state.recording.lives[0].num_requests"))


async def load(served: Served, num_streams: int) -> None:
    answers = await asyncio.gather(*(served.complete(max_tokens=120, seed=number) for number in range(num_streams)))
    assert {status for status, _ in answers} == {200}
