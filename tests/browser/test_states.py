"""What is not as it should be is said: the server is gone, the recording ends in the middle, nothing arrived in it."""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from tests.browser.chromium import Browser
from tests.browser.recordings import CROWDED, record_crowded
from tests.browser.viewer_server import viewing

GOLDEN = Path("tests/golden")


@pytest.mark.slow
def test_a_server_that_is_gone_is_missed_and_found_again(browser: Browser, tmp_path: Path) -> None:
    recording = record_crowded(tmp_path / "recording", num_requests=6)
    with viewing(recording, index_folder=tmp_path / "index") as url:
        browser.open_page(url)
        browser.until_text("#status", "6 requests")
    browser.until_text("#status", "the server does not answer")
    port = urlsplit(url).port or 0
    with viewing(recording, index_folder=tmp_path / "index", port=port):
        browser.until_text("#status", "the server answers again")
        assert "does not answer" not in browser.text("#status")
        browser.go("#panel=request&request=1")
        browser.until_text("#panel", "Everything about it")
    with viewing(GOLDEN / "keyframes", index_folder=tmp_path / "index", port=port):
        browser.until_text("#status", "10 requests")  # another recording: the page begins anew
        browser.until(lambda: browser.state("request") is None, "nothing of the one before is selected")
        browser.open("about:blank")


def test_a_recording_that_ends_in_the_middle_says_so(browser: Browser, tmp_path: Path) -> None:
    shutil.copytree(record_crowded(tmp_path / "whole", num_requests=12), tmp_path / "cut")
    (segment,) = (tmp_path / "cut").glob("*.rp?")
    segment.chmod(0o600)
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size * 2 // 3])
    with viewing(tmp_path / "cut", index_folder=tmp_path / "index") as url:
        browser.open_page(url)
        text = browser.until_text("#status", "the recording is cut off here")
        assert "are lost" in text


def test_a_recording_in_which_nothing_arrived_opens(browser: Browser, tmp_path: Path) -> None:
    run_simulation(CROWDED, [], StepCost(), record_dir=tmp_path / "recording", trace="nobody")
    with viewing(tmp_path / "recording", index_folder=tmp_path / "index") as url:
        browser.open(url)
        browser.until_text("#status", "nothing arrived in it")
        for panel in ("rows", "marks", "step", "blocks", "request"):
            browser.click(f"#tab-{panel}")
            browser.until(lambda: browser.text("#panel"), f"{panel} says something")
            assert "this page failed" not in browser.text("#panel")


def test_an_address_that_names_another_axis_shows_all_of_it(browser: Browser, page: str) -> None:
    browser.open_page(page)
    assert "cut off" not in browser.until_text("#status", "3,024 steps")
    browser.go("#axis=step")
    browser.until(lambda: browser.state("axis") == "step", "the axis of steps")
    assert -100 < browser.state("from") < browser.state("to") < 3_200
