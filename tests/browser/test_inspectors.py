"""The inspectors tell what the recording says, in the figures that `reprise show --json` has."""

from pathlib import Path

from recorder.timeline import Timeline
from replay.figures import request_values
from replay.lives import Run
from tests.browser.chromium import Browser

SHOWN = ("num_prompt_tokens", "num_output_tokens", "num_preemptions", "queue_ms", "ttft_ms", "tpot_ms", "e2e_ms")

WAITS = "[...document.querySelectorAll('#panel table')].find((one) => one.caption.textContent.startsWith('Why it'))"
LAST_BATCH = """
const heading = [...document.querySelectorAll("#panel h3")].find((one) => one.textContent.startsWith("Its last batch"));
return [...heading.nextElementSibling.querySelectorAll("button")].map((one) => one.textContent);
"""
POOL = "reprise.state.recording.lives[0].limits.num_kv_blocks"


def shown_figures(browser: Browser) -> dict[str, str]:
    cells = "[...document.querySelectorAll('#panel .figures > div')].map((one) => [...one.children])"
    pairs = browser.run(f"return {cells}.map(([name, value]) => [name.textContent, value.textContent])")
    return dict(pairs)


def test_a_request_shows_the_figures_of_show(browser: Browser, page: str, crowded: Path) -> None:
    timeline = Timeline(keep_spans=True)
    for life in Run.open(crowded).lives:
        for entry in life.entries():
            timeline.apply(entry)
    for number in (3, 24, 40):
        browser.open_page(f"{page}#panel=request&request={number}")
        browser.until_text("#panel", "Everything about it")
        values, shown = request_values(timeline.spans[number]), shown_figures(browser)
        for name in SHOWN:
            assert float(shown[name.replace("_", " ")].replace(",", "")) == values[name], name


def test_a_preempted_request_names_whom_it_gave_way_to(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=ask&sql=SELECT victim, beneficiary FROM preemptions")
    browser.until_text("#panel", "The answer")
    victim = browser.run("return Number(document.querySelector('#panel td button').textContent)")
    browser.click("#panel td button")
    browser.until_text("#panel", "Preempted, or others for it")
    assert browser.state("request") == victim
    row = browser.run("return reprise.timeline.known.rowOf.get(arguments[0])", victim)
    top, height = browser.run("return [reprise.state.row, reprise.state.rowHeight]")
    assert 0 <= (row - top) * height < 900  # it was scrolled into view


def test_a_request_tells_why_it_waited_and_each_moment_leads_to_its_step(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=request&request=24")
    text = browser.until_text("#panel", "Why it waited")
    assert "watermark: its blocks were free, but too few would be left" in text
    step = browser.run(f"return {WAITS}.rows[1].querySelector('td:last-child button').textContent")
    browser.run(f"{WAITS}.rows[1].querySelector('td:last-child button').click()")
    browser.until_text("#panel", "Waiting, with the reason")
    assert browser.state("step") == int(step)
    browser.open_page(f"{page}#panel=request&request=24")
    browser.until_text("#panel", "Why it waited")
    browser.run(f"[...{WAITS}.rows].find((row) => row.cells[5].querySelector('button')).cells[5].firstChild.click()")
    browser.until(lambda: browser.state("request") != 24, "whom it was behind is opened")


def test_a_request_names_who_stood_in_its_last_batch(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=request&request=24")
    browser.until_text("#panel", "Its last batch")
    named = browser.run(LAST_BATCH)
    step = browser.run("return Number([...document.querySelectorAll('#panel h3 button')].pop().textContent)")
    browser.open_page(f"{page}#panel=step&step={step}")
    browser.until_text("#panel", "In the batch")
    batch = browser.run("return [...document.querySelectorAll('#panel table')[0].querySelectorAll('td:first-child')]")
    assert sorted([*named, "search-037"]) == sorted(cell.text for cell in batch)


def test_a_step_tells_budget_batch_waiting_with_reasons_and_decisions(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=step&step=950")
    text = browser.until_text("#panel", "Decisions in order")
    assert "Token budget" in text
    assert "In the batch:" in text
    assert "StepPlanned" in text
    assert "out_of_blocks" in text or "blocks" in text
    tables = "[...document.querySelectorAll('#panel table')]"
    waiting = browser.run(f"return {tables}.find((one) => one.caption.textContent.startsWith('Waiting')).rows.length")
    assert waiting > 1  # the head, and those that wait
    span = browser.until(lambda: browser.run("return reprise.timeline.stepSpan"), "the step is marked on the axis")
    assert 7e9 < span[0] < span[1] < 10e9
    browser.click_text("next →")
    browser.until_text("#panel", "Step 951")


def test_a_row_is_clicked_and_its_request_opens(browser: Browser, page: str) -> None:
    browser.open_page(page)
    top = browser.run("return document.getElementById('timeline').clientHeight") - 60
    browser.click_canvas(90, top - 200)
    browser.until_text("#panel", "Where its time went")
    assert browser.state("request") is not None


def test_the_block_map_moves_through_steps_and_tells_a_blocks_history(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=blocks&blockStep=1000")
    browser.until_text("#panel", "owned")
    first = browser.text("#panel .legend")
    browser.click_canvas(30, 30, "#panel canvas.grid")
    text = browser.until_text("#panel", "events, in order")
    assert "allocated" in text
    assert "written" in text
    browser.choose(".slider input", "100")
    browser.until(lambda: browser.text("#panel .legend") != first, "another step has another map")
    assert browser.state("blockStep") == 100


def test_marks_name_when_thrashing_began_and_ended(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=marks")
    text = browser.until_text("#panel", "thrashing")
    assert "more than 10 %; over when" in text  # on what figures it began and ended
    browser.click_text("▲ thrashing")
    assert browser.state("to") - browser.state("from") < 20e9  # zoomed to it


def test_the_rows_in_view_are_there_as_a_table(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=rows&from=7000000000&to=8000000000")
    browser.until_text("#panel", "requests live in what is shown")
    assert browser.run("return document.querySelectorAll('#panel tbody tr').length") > 5


def test_two_recordings_are_compared_first_difference_first(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=compare")
    text = browser.until_text("#panel", "The first difference")
    assert "380" in text  # the limit that differs
    assert text.index("The first difference") < text.index("Latencies")


def test_the_timeline_flips_to_the_other_recording_at_the_same_place(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=compare&from=6000000000&to=12000000000")
    before = browser.run("return " + POOL)
    browser.click_text("right")
    browser.until(lambda: browser.run("return " + POOL) == 380, "flipped")
    assert before == 400
    assert browser.state("from") == 6_000_000_000
    browser.until_drawn()
    browser.click_text("left")
    browser.until(lambda: browser.run("return " + POOL) == 400, "flipped back")
