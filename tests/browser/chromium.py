"""A headless Chromium that goes nowhere but to the page, and notes whatever the page's policy or script refuses.

Debian's packages `chromium` and `chromium-driver` are used as they are installed; nothing is fetched.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--enable-precise-memory-info",
)
NOTE_VIOLATIONS = """
globalThis.refused = [];
addEventListener("securitypolicyviolation", (event) => refused.push(`${event.violatedDirective}: ${event.blockedURI}`));
addEventListener("error", (event) => refused.push(`error: ${event.message} ${event.filename}:${event.lineno}`));
addEventListener("unhandledrejection", (event) => refused.push(`rejected: ${event.reason?.message ?? event.reason}`));
"""
WAIT_S = 20


def missing() -> str:
    """Why no browser can be driven here; "" when one can."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and '.join(absent)} here: apt-get install chromium chromium-driver" if absent else ""


class Browser:
    """One window. `refusals` of the page that was left are kept: a test asks at its end."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Load afresh, also where only what stands behind # is another."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def open_page(self, url: str) -> None:
        """Load the viewer and wait until it has drawn what it asked for."""
        self.open(url)
        self.until_drawn()

    def go(self, place: str) -> None:
        """Elsewhere in the page that is open, as a reader does who edits the address behind its #."""
        self.run("location.hash = arguments[0]", place)

    def until_drawn(self) -> None:
        drawn = "return !!globalThis.reprise && reprise.timeline.shown?.length > 0 && !reprise.timeline.slices.isBusy"
        self.until(lambda: self.run(drawn), "the timeline is drawn")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def run_async(self, script: str, *arguments: Any) -> Any:
        """`done` in the script takes what is returned."""
        script = f"const done = arguments[arguments.length - 1]; {script}"
        return self.driver.execute_async_script(script, *arguments)

    def choose(self, selector: str, value: str) -> None:
        """Of a field: as somebody would choose it."""
        event = "input" if "input" in selector else "change"
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event(arguments[2], { bubbles: true }))",
            selector,
            value,
            event,
        )

    def until(self, holds: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
        try:
            return WebDriverWait(self.driver, seconds, 0.05).until(lambda _: holds())
        except TimeoutException:
            raise AssertionError(f"not within {seconds} s: {what}. The page says: {self.text('body')[:600]}") from None

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def until_text(self, selector: str, wanted: str) -> str:
        self.until(lambda: wanted in self.text(selector), f"{selector} has {wanted!r}")
        return self.text(selector)

    def click(self, selector: str) -> None:
        self.until(lambda: self.driver.find_elements(By.CSS_SELECTOR, selector), f"there is {selector}")
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def click_text(self, text: str, within: str = "#panel") -> None:
        """The first button that bears the text."""
        buttons = f"[...document.querySelectorAll('{within} button')]"
        find = f"return {buttons}.find((one) => one.textContent.trim() === arguments[0])"
        button = self.until(lambda: self.run(find, text), f"a button {text!r} in {within}")
        button.click()

    def click_canvas(self, x: float, y: float, selector: str = "#timeline") -> None:
        """CSS pixels from the canvas' corner."""
        box = self.run(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.y]", selector
        )
        place = {"type": "mousePressed", "x": box[0] + x, "y": box[1] + y, "button": "left", "clickCount": 1}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {**place, "type": "mouseMoved"})
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", place)
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {**place, "type": "mouseReleased"})

    def press(self, *keys: str) -> None:
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def state(self, name: str) -> Any:
        return self.run("return reprise.state[arguments[0]]", name)

    def refusals(self) -> list[str]:
        """Of the page that is open: violations of its policy, errors, rejected promises."""
        return list(self.run("return globalThis.refused ?? []"))

    def screenshot(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))


@contextmanager
def chromium(width: int = 1400, height: int = 900) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NOTE_VIOLATIONS})
            yield Browser(driver)
        finally:
            driver.quit()


__all__ = ["Browser", "Keys", "chromium", "missing"]
