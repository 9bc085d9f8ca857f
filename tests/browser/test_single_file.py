"""`view --html`: one file, opened from disk, shows the recording without any network."""

from pathlib import Path

from replay.viewer.single_file import write_page
from tests.browser.chromium import Browser
from tests.browser.recordings import record_crowded

MAX_ANSWER_BYTES = 250_000  # the overview, and some of the inspectors


def test_the_file_shows_timeline_and_inspectors_from_disk(browser: Browser, tmp_path: Path) -> None:
    recording = record_crowded(tmp_path / "recording", num_requests=24)
    written = write_page(recording, tmp_path / "report.html", tmp_path / "index", MAX_ANSWER_BYTES)
    assert any("steps" in line for line in written.left_out)
    url = written.path.as_uri()
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    try:
        browser.open_page(url)
        browser.until_text("#status", "24 requests")
        browser.until_text("#status", "left out: inspectors")
        browser.until(lambda: browser.run(PAINTED) > 1_000, "slices are painted")
        kept = browser.run(KEPT)
        browser.open_page(f"{url}#panel=request&request={kept}")
        browser.until_text("#panel", "Everything about it")
        browser.open_page(f"{url}#panel=area&area=6000000000,7000000000,3,5")
        browser.until_text("#panel .failure", "left out of this file")  # no figures of everything as those of a part
        browser.open_page(f"{url}#panel=rows&from=6000000000&to=7000000000")
        browser.until_text("#panel", "requests live in")
        assert 0 < browser.run("return document.querySelectorAll('#panel tbody tr').length") < 24
        browser.open_page(f"{url}#panel=ask&query=chat-0")
        browser.until_text("#panel", "Requests: ")
        browser.click_canvas(600, 120)
        browser.until_text("#panel h2", "Step")
        browser.open_page(f"{url}#axis=step&from=900&to=1000&panel=marks")
        browser.until_text("#panel", "Marks of the recording")
        browser.open_page(f"{url}#panel=ask&sql=SELECT 1")
        browser.until_text("#panel .failure", "left out of this file")
        asked = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [name for name in asked if name.startswith(("http", "ws"))] == []
    finally:
        browser.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
        )


PAINTED = "return reprise.timeline.raster.numPainted"
KEPT = """
const { packs } = JSON.parse(document.getElementById("reprise-data").textContent);
return packs.flatMap(({ paths }) => paths).find((path) => path.startsWith("api/request/")).split("/").pop();
"""
