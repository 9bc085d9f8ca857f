"""One browser and one crowded recording for all tests; each test ends with the page having broken no rule."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser.chromium import Browser, chromium, missing
from tests.browser.recordings import CROWDED, record_crowded
from tests.browser.viewer_server import viewing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def one_browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    yield one_browser
    assert one_browser.refusals() == []


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_crowded(tmp_path_factory.mktemp("crowded") / "recording")


@pytest.fixture(scope="session")
def page(crowded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the viewer over the crowded recording, beside one of the same load in fewer blocks."""
    folder = tmp_path_factory.mktemp("other")
    other = record_crowded(folder / "recording", replace(CROWDED, num_kv_blocks=380))
    with viewing(crowded, other, folder / "index") as url:
        yield url
