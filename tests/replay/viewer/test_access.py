"""Who has the token sees the recording; nobody else sees anything, and every answer forbids what a page must not do."""

import re
from pathlib import Path

import aiohttp
import pytest

from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry
from replay.viewer.access import Access, Asked
from replay.viewer.page_files import page_files
from tests.replay.recorded_runs import rewrite
from tests.replay.viewer.http import TOKEN, tell

BEARER = {"Authorization": f"Bearer {TOKEN}"}
PLACES = ("/", "/main.js", "/api/recording", "/api/step/1/0", "/api/live", "/api/questions", "/nothing")


def test_only_the_token_its_cookie_or_a_bearer_opens_it(run: Path, index_folder: Path) -> None:
    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        wrong = [
            {},
            {"Cookie": f"{access.cookie_name}={TOKEN}"},
            {"Authorization": TOKEN},
            {"Authorization": "Bearer x"},
        ]
        for place in PLACES:
            for headers in wrong:
                async with session.get(place, headers=headers) as answer:
                    assert answer.status == 401, place
                    assert "token" in (await answer.json())["error"]["message"]
        async with session.get("/api/recording?token=wrong") as answer:
            assert answer.status == 401
        async with session.get("/?token=" + TOKEN, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.cookies[access.cookie_name]
        assert cookie["httponly"]
        assert cookie["samesite"] == "Lax"
        assert cookie.value == access.cookie_value != TOKEN
        for headers in ({"Cookie": f"{access.cookie_name}={cookie.value}"}, BEARER):
            async with session.get("/api/recording", headers=headers) as answer:
                assert answer.status == 200

    tell(story, run, index_folder)


def test_another_name_for_this_machine_is_refused_and_so_is_another_site(run: Path, index_folder: Path) -> None:
    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80"):
            async with session.get("/api/recording", headers={**BEARER, "Host": host}) as answer:
                assert answer.status == 421
        for site in ("cross-site", "same-site"):
            async with session.get("/api/recording", headers={**BEARER, "Sec-Fetch-Site": site}) as answer:
                assert answer.status == 403
            headers = {**BEARER, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
            async with session.get("/", headers=headers) as answer:
                assert answer.status == 200  # a link to a view, on a page of somebody's

    tell(story, run, index_folder)


def test_every_answer_forbids_what_a_page_must_not_do(run: Path, index_folder: Path) -> None:
    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        for headers in ({}, BEARER):
            for place in (*PLACES, "/api/timeline?life=x", "/api/timeline"):
                async with session.get(place, headers=headers) as answer:
                    assert answer.headers["Cache-Control"] == "no-store"
                    policy = answer.headers["Content-Security-Policy"]
                    assert "script-src 'self'" in policy
                    assert "unsafe" not in policy
                    assert answer.headers["X-Content-Type-Options"] == "nosniff"
                    assert answer.headers["Referrer-Policy"] == "no-referrer"

    tell(story, run, index_folder)


def test_no_file_but_the_pages_can_be_reached(run: Path, index_folder: Path) -> None:
    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        from yarl import URL

        base = str(session._base_url).rstrip("/")
        for place in (
            *("/../application.py", "/..%2fapplication.py", "/%2e%2e/application.py", "//etc/passwd", "/page_files.py"),
            *("/vendor/../../access.py", "/%00", "/main.js%00.css", "/\\..\\access.py", "/.", "/vendor", "/vendor/"),
        ):
            async with session.get(URL(base + place, encoded=True), headers=BEARER) as answer:
                assert answer.status in (400, 404), place
        for name in page_files():
            async with session.get(f"/{name}", headers=BEARER) as answer:
                assert answer.status == 200
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, "/api/recording", headers=BEARER) as answer:
                assert answer.status == 405

    tell(story, run, index_folder)


@pytest.mark.parametrize("token", ["", "x", "ünï", "\ud800", "x" * 100_000])
def test_any_text_may_be_tried_as_a_token(token: str) -> None:
    access = Access("right")
    assert access.refusal(Asked("", token=token, cookie=token, authorization=f"Bearer {token}")) is not None
    assert access.refusal(Asked("", authorization="bearer right")) is None


HOSTILE = ("<script>alert(1)</script>", "\u202egnp.evil\u202c", "\x1b[31m\x07\x00", "a'\"&--><!--", "n" * 100_000)


def test_hostile_names_come_through_as_they_are(run: Path, index_folder: Path, tmp_path: Path) -> None:
    def renamed(entries: list[Entry]) -> list[Entry]:
        return [
            entry._replace(event=entry.event._replace(request_id=HOSTILE[entry.event.request], tenant=HOSTILE[0]))
            if isinstance(entry.event, RequestArrived) and entry.event.request < len(HOSTILE)
            else entry
            for entry in entries
        ]

    hostile = rewrite(run, tmp_path / "<b>&'run", renamed)

    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        async with session.get("/api/live", headers=BEARER) as events:
            while not (await events.content.readline()).startswith(b"event: ready"):
                pass
        for number, name in enumerate(HOSTILE):
            async with session.get(f"/api/request/1/{number}", headers=BEARER) as answer:
                assert answer.content_type == "application/json"
                told = (await answer.json())["request"]
            assert (told["request_id"], told["tenant"]) == (name, HOSTILE[0])
        async with session.get("/api/search", params={"q": "<script>"}, headers=BEARER) as answer:
            assert [it["number"] for it in (await answer.json())["requests"]] == [0, 1, 2, 3, 4]
        async with session.get("/api/command?kind=request&number=1", headers=BEARER) as answer:
            assert re.search(r"'.*<b>&'\"'\"'run' --request 1$", (await answer.json())["command"])

    tell(story, hostile, tmp_path / "index")


def test_two_recordings_are_compared_first_difference_first(run: Path, index_folder: Path, tmp_path: Path) -> None:
    def shorter(entries: list[Entry]) -> list[Entry]:
        changed = entries[40]._replace(now_ns=entries[40].now_ns + 1)
        return [*entries[:40], changed, *entries[41:]]

    other = rewrite(run, tmp_path / "other", shorter)

    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        async with session.get("/api/compare", headers=BEARER) as answer:
            compared = await answer.json()
        assert compared["verb"] == "diff"
        assert compared["result"] == "equal"
        async with session.get("/api/recording?which=other", headers=BEARER) as answer:
            assert (await answer.json())["name"] == "other"

    tell(story, run, index_folder, other)

    async def alone(session: aiohttp.ClientSession, access: Access) -> None:
        for place in ("/api/compare", "/api/recording?which=other"):
            async with session.get(place, headers=BEARER) as answer:
                assert answer.status == 404
                assert "REC OTHER" in (await answer.json())["error"]["message"]

    tell(alone, run, index_folder)
