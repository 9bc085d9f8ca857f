"""Two hundred random numbers on the page are those that `reprise show --json` prints for the same thing."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replay.show import View, show
from tests.browser.chromium import Browser

NUM_NUMBERS = 200
Walked = Iterator[tuple[str, Any, Any]]


@pytest.fixture(scope="module")
def transcript(crowded: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in show(crowded, View(transcript=True, as_json=True))]


@pytest.fixture(scope="module")
def requests(crowded: Path) -> dict[int, dict[str, Any]]:
    told = json.loads("\n".join(show(crowded, View(requests=True, as_json=True))))
    return {values["request"]: values for values in told}


def test_numbers_on_the_page_are_those_of_show(
    browser: Browser, page: str, transcript: list[dict[str, Any]], requests: dict[int, dict[str, Any]]
) -> None:
    draw = random.Random(11)
    plans = {it["step"]: it for entry in transcript for it in entry["decisions"] if it["record"] == "StepPlanned"}
    results = {entry["event"]["step"]: entry for entry in transcript if entry["event"]["record"] == "StepCompleted"}
    browser.open_page(f"{page}#axis=step&from=0&to=3000")
    browser.until_text("#status", "3,024 steps")
    walks: dict[str, Callable[[], Walked]] = {
        "request": lambda: of_request(browser, requests[draw.choice(sorted(requests))]),
        "step": lambda: of_step(browser, plans[step := draw.randrange(len(plans))], results[step]),
        "strips": lambda: of_strips(browser, plans[draw.randrange(len(plans))]),
        "blocks": lambda: of_blocks(browser, draw, draw.randrange(len(plans)), transcript),
    }
    walked = dict.fromkeys(walks, 0)
    while sum(walked.values()) < NUM_NUMBERS:
        name = min(walked, key=walked.__getitem__)
        for what, got, expected in walks[name]():
            assert got == expected, what
            walked[name] += 1
    assert min(walked.values()) >= NUM_NUMBERS // 8


def of_request(browser: Browser, expected: dict[str, Any]) -> Walked:
    number = expected["request"]
    browser.go(f"#panel=request&request={number}")
    browser.until(lambda: shown_figures(browser).get("request") == f"{number:,}", f"request {number} is told")
    shown = shown_figures(browser)
    for name, value in expected.items():
        text = shown[name.replace("_", " ")]
        if isinstance(value, dict):
            told = {key: number_of(figure) for key, figure in re.findall(r"(\w+) ([\d.,]*\d)", text)}
            yield f"request {number}: {name}", told, value
        else:
            yield f"request {number}: {name}", number_of(text) if isinstance(value, int | float) else text, value


def of_step(browser: Browser, plan: dict[str, Any], result: dict[str, Any]) -> Walked:
    step = plan["step"]
    browser.go(f"#panel=step&step={step}")
    browser.until_text("#panel h2", f"Step {step}")
    browser.until(lambda: browser.run(f"return {BATCH}.length") == len(plan["rows"]), f"step {step} is told")
    text = browser.text("#panel")
    budget = re.search(
        r"([\d,]+) for prompts, ([\d,]+) for streams, ([\d,]+) left of [\d,]+; ([\d,]+) running, ([\d,]+) waiting, "
        r"([\d,]+) blocks free",
        text,
    )
    assert budget, text[:400]
    prompts, streams, *told = map(number_of, budget.groups())
    yield f"step {step}: tokens", prompts + streams, sum(count for *_, count in plan["rows"])
    names = ("token_budget_left", "num_running", "num_waiting", "num_blocks_free")
    for name, got in zip(names, told, strict=True):
        yield f"step {step}: {name}", got, plan[name]
    batch = browser.run(f"return {BATCH}.map((row) => [row.cells[2].textContent, row.cells[3].textContent])")
    expected = [[start, count] for _, start, count in plan["rows"]]
    yield f"step {step}: rows", [[number_of(start), number_of(count)] for start, count in batch], expected
    executed = re.search(r"execute ([\d.,]+)\u00a0ms", text)
    yield f"step {step}: execute", executed and number_of(executed[1]), round(result["event"]["execute_ns"] / 1e6, 3)


def of_strips(browser: Browser, plan: dict[str, Any]) -> Walked:
    step = plan["step"]
    browser.go(f"#axis=step&from={step - 4}&to={step + 5}")
    browser.until(lambda: browser.run(IS_FINE, step), f"tiles of step {step} are there")
    told = browser.run(HOVER_STRIPS, step + 0.5)
    for name, field in (("running", "num_running"), ("waiting", "num_waiting"), ("free blocks", "num_blocks_free")):
        yield f"strip at step {step}: {name}", told.get(name), f"{plan[field]:,}"
    yield f"strip at step {step}: budget used", told.get("budget used"), f"{sum(it[2] for it in plan['rows']):,}"


def of_blocks(browser: Browser, draw: random.Random, step: int, transcript: list[dict[str, Any]]) -> Walked:
    browser.go(f"#panel=blocks&blockStep={step}")
    browser.until(lambda: browser.run(GRID_TELLS, step), f"the pool at step {step} is drawn")
    holders = holders_at(transcript, step)
    for block in draw.sample(range(400), 10):
        text = browser.run_async(HOVER_BLOCK, block)
        held = re.fullmatch(rf"block {block}: \w+(?:, held by (\d+): request (\d+)( and others)?)?; .*", text)
        assert held, text
        yield f"block {block} at step {step}", int(held[1] or 0), len(holders.get(block, ()))
        assert not held[2] or int(held[2]) in holders[block]


def holders_at(transcript: list[dict[str, Any]], step: int) -> dict[int, list[int]]:
    """Block → requests that have it when the step has been planned."""
    tables: dict[int, list[int]] = {}
    for entry in transcript:
        for it in entry["decisions"]:
            match it["record"]:
                case "RequestAdmitted":
                    tables[it["request"]] = list(it["block_ids"])
                case "RequestFinished" | "RequestPreempted":
                    tables.pop(it["request"], None)
                case "StepPlanned":
                    for request, block in it["new_blocks"]:
                        tables[request].append(block)
                    if it["step"] == step:
                        found: dict[int, list[int]] = {}
                        for request, table in tables.items():
                            for block in table:
                                found.setdefault(block, []).append(request)
                        return found
    raise AssertionError(f"no step {step} was planned")


def number_of(text: str) -> float:
    return float(text.replace(",", ""))


def shown_figures(browser: Browser) -> dict[str, str]:
    return dict(browser.run(f"return [...document.querySelectorAll('{FIGURES} > div')].map({NAME_AND_VALUE})"))


FIGURES = '#panel [aria-label="figures of the request"]'
NAME_AND_VALUE = "(one) => [one.children[0].textContent, one.children[1].textContent]"
BATCH = """
[...([...document.querySelectorAll("#panel table")].find((one) => one.caption.textContent.startsWith("In the batch"))
  ?.tBodies[0].rows ?? [])]
""".strip()
IS_FINE = """
return reprise.timeline.shownCounters?.some((tile) => tile.to - tile.from <= 16 && tile.from <= arguments[0]
  && arguments[0] < tile.to) && reprise.state.to - reprise.state.from < 10;
"""
HOVER_STRIPS = r"""
const canvas = document.getElementById("timeline");
const { state } = reprise;
const plot = canvas.clientWidth - 196;
const x = 196 + ((arguments[0] - state.from) / (state.to - state.from)) * plot;
const box = canvas.getBoundingClientRect();
const told = {};
for (const y of [63, 105, 147]) {
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.x + x, clientY: box.y + y, bubbles: true }));
  for (const line of document.querySelectorAll("#tooltip .tooltip div")) {
    const [, name, value] = line.textContent.match(/^(.*) (\S+)$/) ?? [];
    if (name) told[name] = value;
  }
}
return told;
"""
GRID_TELLS = """
const grid = document.querySelector("#panel canvas.grid");
return grid?.ariaLabel.includes(`at step ${arguments[0]}:`) && !document.querySelector("#panel .busy");
"""
HOVER_BLOCK = """
const grid = document.querySelector("#panel canvas.grid");
const perRow = Math.floor(grid.clientWidth / 12);
const box = grid.getBoundingClientRect();
const [column, row] = [arguments[0] % perRow, Math.floor(arguments[0] / perRow)];
const place = { clientX: box.x + column * 12 + 5, clientY: box.y + row * 12 + 5 };
grid.dispatchEvent(new PointerEvent("pointermove", { ...place, bubbles: true }));
setTimeout(() => done(document.querySelector("#panel [aria-live]").textContent), 30);
"""
