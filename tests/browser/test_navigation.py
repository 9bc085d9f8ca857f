"""Moving about: keys, wheel and mouse change what is shown as they say, and the link says it back."""

import time
from pathlib import Path

from tests.browser.chromium import Browser, Keys
from tests.browser.viewer_server import viewing


def span(browser: Browser) -> float:
    return float(browser.state("to") - browser.state("from"))


def test_the_whole_recording_is_shown_first(browser: Browser, page: str) -> None:
    browser.open_page(page)
    first, last = browser.run("return reprise.bounds()")
    assert browser.state("from") <= first
    assert browser.state("to") >= last
    browser.until_text("#status", "72 requests")
    assert browser.run("return reprise.timeline.known.byRow.size") == 64  # the rows of one tile
    painted = browser.run("return reprise.timeline.raster.numPainted")
    assert painted > 1_000


def test_keys_zoom_pan_scroll_and_fit(browser: Browser, page: str) -> None:
    browser.open_page(page)
    browser.click_canvas(800, 20)  # the axis: the step under it opens
    browser.until_text("#panel", "Token budget")
    browser.press(Keys.ESCAPE)
    before = span(browser)
    browser.press("w")
    assert span(browser) < before
    browser.press("s")
    assert abs(span(browser) - before) < before * 1e-6
    browser.press("w", "w")
    began = browser.state("from")
    browser.press("d")
    assert browser.state("from") > began
    browser.press("a")
    assert abs(browser.state("from") - began) < before * 1e-6
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.state("row") == 2
    browser.press(Keys.ESCAPE, "f")
    browser.until(lambda: abs(span(browser) - before) < before * 0.05, "F shows all again")


def test_the_value_under_the_cursor_stays_when_zooming(browser: Browser, page: str) -> None:
    browser.open_page(page)
    script = """
    const canvas = document.getElementById("timeline");
    const at = (x) => {
      const { from, to } = reprise.state;
      return from + ((x - 196) / (canvas.clientWidth - 196)) * (to - from);
    };
    const before = at(700);
    const box = canvas.getBoundingClientRect();
    const place = { clientX: box.x + 700, clientY: box.y + 400, bubbles: true, cancelable: true };
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -240, ctrlKey: true, ...place }));
    return [before, at(700)];
    """
    before, after = browser.run(script)
    assert abs(before - after) < 1e4  # 10 µs of 27 s


def test_help_marks_and_escape(browser: Browser, page: str) -> None:
    browser.open_page(page)
    browser.press("?")
    browser.until_text("#panel", "who preempted it")
    browser.press(Keys.ESCAPE)
    browser.until(lambda: browser.text("#panel") == "", "the panel is closed")
    browser.press("m")
    assert len(browser.state("marked")) == 1
    browser.press("m")
    assert browser.state("marked") == []
    browser.press("/")
    assert browser.run("return document.activeElement.id") == "search"
    browser.press("w")
    assert browser.run("return document.activeElement.value") == "w"


def test_the_axis_turns_into_steps_and_back_over_the_same_stretch(browser: Browser, page: str) -> None:
    browser.open_page(page + "#from=7000000000&to=9000000000")
    browser.choose("#axis", "step")
    browser.until(lambda: browser.state("axis") == "step" and span(browser) < 1_000, "steps are shown")
    assert 500 < browser.state("from") < browser.state("to") < 1_200
    browser.choose("#axis", "time")
    browser.until(lambda: browser.state("axis") == "time" and span(browser) > 1e9, "time is shown")
    assert abs(browser.state("from") - 7e9) < 1e8
    assert abs(browser.state("to") - 9e9) < 1e8


def test_an_area_is_selected_with_shift_and_told_in_figures(browser: Browser, page: str) -> None:
    browser.open_page(page)
    script = """
    const canvas = document.getElementById("timeline");
    const box = canvas.getBoundingClientRect();
    const common = { shiftKey: true, pointerId: 1, bubbles: true };
    const at = (x, y, type) =>
      canvas.dispatchEvent(new PointerEvent(type, { clientX: box.x + x, clientY: box.y + y, ...common }));
    canvas.setPointerCapture = () => {};
    at(500, 300, "pointerdown"); at(560, 400, "pointermove"); at(800, 500, "pointermove"); at(800, 500, "pointerup");
    """
    browser.run(script)
    browser.until_text("#panel", "By kind")
    assert "decode" in browser.text("#panel")
    assert len(browser.state("area")) == 4


def test_all_colours_of_slices_differ_in_lightness_or_pattern(browser: Browser, page: str) -> None:
    """Told apart without colour: no two kinds share both their pattern and their height."""
    browser.open_page(page)
    script = "import('./theme.js').then(({ KINDS }) => done(KINDS.map((k) => `${k.pattern} ${k.top} ${k.bottom}`)))"
    shapes = browser.run_async(script)
    assert len(set(shapes)) == len(shapes)


def test_dark_and_light_are_both_there(browser: Browser, page: str) -> None:
    backs = []
    for theme in ("dark", "light"):
        browser.open_page(f"{page}#theme={theme}")
        backs.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert backs == ["rgb(20, 23, 28)", "rgb(255, 255, 255)"]


LISTED = """
const { known, shown } = reprise.timeline;
const sorted = (requests) => requests.sort((one, other) => one - other);
return [
  sorted([...known.byRow.values()].map((row) => row.request)),
  sorted(shown[0].header.rows.map((row) => row.request)),
];
"""


def test_only_who_lives_in_view_is_listed_when_asked_for(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#alive=1&from=7000000000&to=8000000000")
    shown = browser.run("return reprise.timeline.shown[0].header")
    assert 5 < shown["num_rows"] < 60
    assert all(row["arrival_ns"] < shown["to"] for row in shown["rows"])
    browser.press("d", "d", "d", "d", "d", "d")
    browser.until_drawn()
    browser.until(lambda: len(set(map(tuple, browser.run(LISTED)))) == 1, "the rows that are known are those shown")


def test_a_server_that_is_gone_is_told_and_what_was_there_stays(
    browser: Browser, crowded: Path, tmp_path: Path
) -> None:
    with viewing(crowded, index_folder=tmp_path / "index") as url:
        browser.open_page(url)
    browser.press("w", "w", "w", "w")
    browser.until_text("#status", "the server does not answer")
    assert browser.run("return reprise.timeline.raster.numPainted > 0")
    asked = browser.run("return performance.getEntriesByType('resource').length")
    time.sleep(0.5)
    assert browser.run("return performance.getEntriesByType('resource').length") - asked < 20  # it does not hammer


def test_every_control_has_a_name_for_screen_readers(browser: Browser, page: str) -> None:
    for panel in ("step&step=900", "request&request=24", "blocks", "ask", "compare", "help"):
        browser.open_page(f"{page}#panel={panel}")
        browser.until_text("#panel h2", "")
        assert browser.run(NAMELESS) == []


NAMELESS = """
const named = (one) => one.ariaLabel || one.textContent.trim() || one.labels?.length || one.title
  || one.closest("[role=img]")?.ariaLabel;
return [...document.querySelectorAll("button, input, select, textarea, canvas, [role=img]")]
  .filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 120));
"""


def test_perfettos_keys_lead_from_slice_to_slice_and_make_an_area_of_a_life(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#request=24")
    browser.until(lambda: "3,024 steps" in browser.text("#status"), "all of it is indexed")
    browser.press("f")
    browser.until(lambda: browser.state("to") - browser.state("from") < 8e9, "its life is shown")
    browser.until_drawn()
    first = middle(browser)
    browser.press(".")
    browser.until(lambda: middle(browser) > first, "to the next one")
    browser.press(",")
    browser.until(lambda: middle(browser) <= first, "and back")
    browser.press("r")
    assert "1" in browser.until_text("#panel", "By kind")
    area, row = browser.state("area"), browser.run("return reprise.timeline.known.rowOf.get(24)")
    assert area[2:] == [row, row]
    browser.open_page(f"{page}#panel=step&step=900")
    browser.until_text("#panel", "Step 900")
    browser.press(".")
    browser.until_text("#panel", "Step 901")


def middle(browser: Browser) -> float:
    return float(browser.run("return (reprise.state.from + reprise.state.to) / 2"))
