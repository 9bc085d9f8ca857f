"""Search and SQL: what is found leads into the timeline, and nothing can be changed."""

from tests.browser.chromium import Browser, Keys


def test_search_finds_requests_and_leads_to_them(browser: Browser, page: str) -> None:
    browser.open_page(page)
    browser.press("/")
    browser.press("chat-0", Keys.ENTER)
    browser.until_text("#panel", "Requests:")
    browser.click("#panel td button")
    browser.until_text("#panel", "Where its time went")
    browser.open_page(f"{page}#panel=ask&query=out_of_blocks")
    assert "RequestPreempted" in browser.until_text("#panel", "Reasons")


def test_what_was_found_can_be_all_that_is_shown(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=ask&query=search&row=30")
    browser.click("#only-found")
    browser.until(lambda: browser.run(TENANTS) == ["search"], "only their rows are shown")
    browser.open_page(browser.until(lambda: filtered(browser), "the address says so"))
    browser.until(lambda: browser.run(TENANTS) == ["search"], "and a link restores it")
    browser.click("#filter")
    browser.until(lambda: len(browser.run(TENANTS)) == 3, "all rows again")


TENANTS = "return [...new Set([...reprise.timeline.known.byRow.values()].map((one) => one.tenant))]"


def filtered(browser: Browser) -> str:
    link = str(browser.run("return location.href"))
    return link if "filter=search" in link else ""


def test_every_saved_question_is_answered(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=ask")
    browser.until(lambda: browser.run("return document.querySelectorAll('#questions option').length") > 10, "questions")
    num = browser.run("return document.querySelectorAll('#questions option').length")
    for index in range(num - 1):
        browser.choose("#questions", str(index))
        browser.until(
            lambda: (
                browser.run("return !document.getElementById('run-sql').disabled")
                and " rows in " in browser.text("#panel")
            ),
            f"question {index} is answered",
        )
        assert browser.run("return document.querySelector('#panel .failure')") is None


def test_sql_cannot_write_and_says_so(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=ask&sql=DELETE FROM steps")
    browser.until(lambda: browser.text("#panel .failure"), "a refusal")
    browser.open_page(f"{page}#panel=ask&sql=SELECT count(*) AS steps FROM steps")
    assert "3,024" in browser.until_text("#panel", "1 rows in") or "1 rows" in browser.text("#panel")
