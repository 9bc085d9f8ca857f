"""`view --html`: one file, opened from disk, shows the recording without any network."""

from pathlib import Path

from replay.viewer.single_file import write_page
from tests.browser.chromium import Browser


def test_the_file_shows_timeline_and_inspectors_from_disk(browser: Browser, crowded: Path, tmp_path: Path) -> None:
    written = write_page(crowded, tmp_path / "report.html", tmp_path / "index")
    assert written.num_bytes < 20e6
    url = written.path.as_uri()
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    try:
        browser.open_page(url)
        browser.until_text("#status", "72 requests")
        browser.until(lambda: browser.run(PAINTED) > 1_000, "slices are painted")
        browser.open_page(f"{url}#panel=request&request=24")
        browser.until_text("#panel", "Everything about it")
        browser.open_page(f"{url}#axis=step&from=900&to=1000&panel=marks")
        browser.until_text("#panel", "thrashing")
        browser.open_page(f"{url}#panel=ask&sql=SELECT 1")
        browser.until_text("#panel .failure", "left out of this file")
        asked = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [name for name in asked if name.startswith(("http", "ws"))] == []
    finally:
        browser.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
        )


PAINTED = "return reprise.timeline.raster.pixels.reduce((sum, pixel) => sum + (pixel !== 0), 0)"
