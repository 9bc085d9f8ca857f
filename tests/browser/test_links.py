"""A link restores the view exactly: life, range, axis, rows, selection, panel, query. What is taken away is true."""

from urllib.parse import parse_qs, urlsplit

from tests.browser.chromium import Browser

KEPT = (
    "life",
    "axis",
    "from",
    "to",
    "row",
    "rowHeight",
    "group",
    "filter",
    "panel",
    "step",
    "request",
    "block",
    "sql",
    "area",
    "marked",
    "theme",
)


def test_opening_the_same_link_again_restores_everything(browser: Browser, page: str) -> None:
    browser.open_page(
        page + "#life=1&axis=step&from=700.25&to=1100.5&row=7&rowHeight=14&group=state&panel=step&step=900&request=30"
        "&block=12&area=800,900,1,9&marked=750,950&theme=dark&sql=SELECT+1"
    )
    browser.until_text("#panel", "Token budget")
    browser.press("d", "w")
    before = {name: browser.state(name) for name in KEPT}
    link = browser.until(lambda: settled(browser), "the address has settled")
    browser.open_page(link)
    browser.until_text("#panel", "Token budget")
    assert {name: browser.state(name) for name in KEPT} == before
    assert browser.run("return location.href") == link


def settled(browser: Browser) -> str | None:
    link = str(browser.run("return location.href"))
    says = parse_qs(urlsplit(link).fragment)
    return (
        link
        if float(says["from"][0]) == browser.state("from") and float(says["to"][0]) == browser.state("to")
        else None
    )


def test_a_broken_link_opens_the_recording_all_the_same(browser: Browser, page: str) -> None:
    browser.open_page(page + "#life=99&from=NaN&to=-1&axis=sideways&panel=<script>&area=a,b&request=x")
    browser.until_text("#status", "72 requests")
    assert browser.state("life") == 1


def test_an_edited_address_is_followed(browser: Browser, page: str) -> None:
    browser.open_page(page)
    browser.run("location.hash = '#panel=request&request=5'")
    browser.until_text("#panel", "Where its time went")


def test_an_address_edited_while_the_page_is_about_to_write_it_is_followed(browser: Browser, page: str) -> None:
    browser.open_page(page)
    edit = """
    reprise.update({ panel: "marks" });
    const written = performance.now();
    setTimeout(() => {
      location.hash = "#panel=step&step=7";
      while (performance.now() < written + 200); // its own writing falls due meanwhile
    }, 60);
    """
    browser.run(edit)
    browser.until_text("#panel h2", "Step 7")


def test_the_drawing_is_well_formed_and_holds_what_is_shown(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#from=5600000000&to=13200000000&group=state&row=9&area=7000000000,8000000000,14,18")
    browser.until(lambda: browser.run("return reprise.timeline.arrows.length > 0"), "arrows")
    script = """
    import("./take_away.js").then(({ svgOf }) => {
      const parsed = new DOMParser().parseFromString(svgOf(reprise.timeline), "image/svg+xml");
      const error = parsed.querySelector("parsererror")?.textContent ?? "";
      done([error, parsed.querySelectorAll("rect").length, parsed.documentElement.textContent]);
    });
    """
    error, num_bars, text = browser.run_async(script)
    assert error == ""
    assert num_bars > 50
    for shown in ("batch-041", "free blocks", "▲", "▽", "10\u00a0s"):
        assert shown in text
    num_arrows = browser.run_async(script.replace('querySelectorAll("rect")', 'querySelectorAll("path[d*=C]")'))[1]
    assert num_arrows > 2


def test_the_command_leads_to_what_is_selected(browser: Browser, page: str) -> None:
    browser.open_page(f"{page}#panel=request&request=5")
    assert "--request 5" in browser.until_text("#panel .command", "reprise show")
