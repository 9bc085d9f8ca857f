"""Two recordings in two lanes of each row on one axis: what differs comes first, and keys lead from one to the next."""

import pytest

from tests.browser.chromium import Browser

SIDE_BY_SIDE = "#beside=1&group=difference&rowHeight=26&panel=compare"
HOVER = """
const canvas = document.getElementById("timeline");
const box = canvas.getBoundingClientRect();
const row = 210 + arguments[0] * 26;
canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.x + 60, clientY: box.y + row, bubbles: true }));
"""


def test_rows_hold_both_recordings_and_those_that_differ_come_first(browser: Browser, page: str) -> None:
    browser.open_page(page + SIDE_BY_SIDE)
    browser.until_text("#panel", "requests are served otherwise")
    sides = browser.run("return reprise.timeline.shown.map((tile) => tile.header.side)")
    assert set(sides) == {"left", "right"}
    differs = browser.until(lambda: which_differ(browser), "rows that differ are there, and others")
    assert differs == sorted(differs, reverse=True)
    for share, name in ((0.2, "A: "), (0.7, "B: ")):
        browser.run(HOVER, share)
        browser.until_text("#tooltip", name)
    top = browser.run("return document.querySelector('#panel caption').textContent")
    assert top.startswith("What differs")


def test_n_and_p_lead_from_difference_to_difference(browser: Browser, page: str) -> None:
    browser.open_page(page + SIDE_BY_SIDE)
    browser.until_text("#panel", "requests are served otherwise")
    browser.press("n")
    browser.until_text("#panel", "difference 1 of")
    first, request = browser.state("from"), browser.state("request")
    assert browser.state("to") - first < 5e9  # it was brought near
    browser.press("n")
    browser.until_text("#panel", "difference 2 of")
    assert browser.state("request") != request
    browser.press("p")
    browser.until_text("#panel", "difference 1 of")
    assert browser.state("request") == request
    link = browser.until(lambda: says_difference(browser), "the address says where")
    there = browser.state("from")
    assert there == pytest.approx(first)
    browser.open_page(link)
    assert browser.state("difference") == 0
    assert browser.state("from") == pytest.approx(there)


def test_preemptions_of_both_are_drawn_as_arrows_each_in_its_lane(browser: Browser, page: str) -> None:
    browser.open_page(page + SIDE_BY_SIDE)
    browser.until(lambda: browser.run("return reprise.timeline.otherArrows.length"), "arrows of B")
    lengths = browser.run("return [reprise.timeline.arrows.length, reprise.timeline.otherArrows.length]")
    assert lengths == [browser.run_async(NUM_PREEMPTIONS, which) for which in ("", "other")]
    rows = browser.until(lambda: browser.run(ROWS_OF_OTHER_ARROWS), "their rows are known")
    assert all(request == other for request, other in rows)
    browser.run("reprise.update({ beside: 0, group: 'tenant' })")
    browser.until(lambda: browser.run("return reprise.timeline.otherArrows.length") == 0, "one alone has no others")


NUM_PREEMPTIONS = """
const body = JSON.stringify({ sql: "SELECT count(*) FROM preemptions" });
fetch(`api/sql?which=${arguments[0]}`, { method: "POST", headers: { "Content-Type": "application/json" }, body })
  .then((answer) => answer.json()).then(({ rows }) => done(rows[0][0]));
"""
ROWS_OF_OTHER_ARROWS = """
const { known, otherArrows } = reprise.timeline;
const rows = otherArrows.map((one) => [one.victim, known.byRow.get(known.rowOfOther.get(one.victim))?.other.request]);
return rows.some(([, other]) => other === undefined) ? null : rows;
"""


def which_differ(browser: Browser) -> list[bool]:
    """Of the rows in view, from the first on; [] until both kinds are."""
    differs = browser.run("return [...reprise.timeline.known.byRow.values()].map((one) => one.differs)")
    return differs if any(differs) and not all(differs) else []


def says_difference(browser: Browser) -> str:
    link = str(browser.run("return location.href"))
    return link if "difference=0" in link else ""


def test_the_lower_lane_leads_to_the_other_recordings_request(browser: Browser, page: str) -> None:
    browser.open_page(page + SIDE_BY_SIDE)
    browser.until_text("#panel", "requests are served otherwise")
    other = browser.run("return reprise.timeline.known.byRow.get(0).other.request")
    browser.click_canvas(80, 210 + 0.75 * 26)
    browser.until_text("#panel", "Where its time went")
    assert browser.text("#panel h2").startswith("B")
    assert (browser.state("which"), browser.state("request")) == ("other", other)
    browser.click("#beside")
    browser.until(lambda: browser.state("beside") == 0 and browser.state("which") == "", "one alone")
