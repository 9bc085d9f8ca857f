"""`/viewer` of a daemon: shut without its own token, and with it the recording as it is written."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from daemon.api_keys import ApiKeys
from daemon.viewer_token import InvalidViewerToken, read_viewer_token
from tests.daemon.served import Served
from tests.daemon.test_server import KEY, tell_alone

TOKEN = "viewer-token-of-the-tests"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return str(path)


async def get(served: Served, place: str, **headers: str) -> tuple[int, Any]:
    async with served.session.get(f"/viewer/{place}", headers=headers, allow_redirects=False) as response:
        body = await response.read()
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return response.status, json.loads(body) if is_json else body


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_without_a_token_there_is_no_viewer(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        assert (await get(served, ""))[0] == 404
        assert (await get(served, f"?token={TOKEN}"))[0] == 404

    tell_alone(story, tmp_path / "run")


def test_the_token_opens_the_viewer_and_nothing_else_does(tmp_path: Path, token_file: str) -> None:
    async def story(served: Served) -> None:
        await served.complete()
        for place in ("", "api/recording", "api/step/1/0", "main.js", "?token=", "?token=x"):
            for headers in ({}, bearer(""), bearer(TOKEN + "x"), {"Cookie": "reprise_viewer=x"}):
                assert (await get(served, place, **headers))[0] in (401, 404), place
        async with served.session.get("/v1/models", headers=bearer(TOKEN)) as response:
            assert response.status == 401
        status, page = await get(served, "", **bearer(TOKEN))
        assert status == 200
        assert b"<title>" in page
        await its_cookie_stands_for_it(served)

    tell_alone(story, tmp_path / "run", api_key=KEY, viewer_token_file=token_file)


async def its_cookie_stands_for_it(served: Served) -> None:
    async with served.session.get(f"/viewer?token={TOKEN}", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (308, f"/viewer/?token={TOKEN}")
    async with served.session.get(f"/viewer/?token={TOKEN}", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/viewer/")
        cookie = response.cookies["reprise_viewer"]
        assert TOKEN not in cookie.value
        assert cookie["httponly"]
        assert cookie["path"] == "/viewer/"
        assert response.headers["Cache-Control"] == "no-store"
    status, recording = await get(served, "api/recording", Cookie=f"reprise_viewer={cookie.value}")
    assert status == 200
    assert recording["is_live"]
    status, _ = await get(
        served, "api/recording", Cookie=f"reprise_viewer={cookie.value}", **{"Sec-Fetch-Site": "cross-site"}
    )
    assert status == 403


def test_it_grows_while_the_daemon_serves_and_its_process_ends_with_it(tmp_path: Path, token_file: str) -> None:
    pids: list[int] = []

    async def story(served: Served) -> None:
        await served.complete()
        headers = bearer(TOKEN)
        async with served.session.get("/viewer/api/live", headers=headers) as events:
            assert events.headers["Content-Type"] == "text/event-stream"
            assert "script-src 'self'" in events.headers["Content-Security-Policy"]
            first = await steps_known(served, events, more_than=0)
            await asyncio.gather(*[served.complete() for _ in range(3)])
            assert await steps_known(served, events, more_than=first) > first
        status, answer = await post(served, "SELECT count(*) FROM requests")
        assert (status, answer["rows"]) == (200, [[4]])
        status, answer = await post(served, "DELETE FROM requests")
        assert (status, answer["error"]["field"]) == (400, "sql")
        status, answer = await post(served, "SELECT 1 -- " + "x" * 70_000)
        assert status == 413
        pids.extend(viewer_processes())
        assert pids

    tell_alone(story, tmp_path / "run", viewer_token_file=token_file)
    assert not set(pids) & set(viewer_processes())


async def steps_known(served: Served, events: aiohttp.ClientResponse, more_than: int) -> int:
    """Once the page is told of growth until there are more steps."""
    async with asyncio.timeout(60):
        while True:
            _, recording = await get(served, "api/recording", **bearer(TOKEN))
            num_steps: int = sum(life["num_steps"] for life in recording["lives"])
            if num_steps > more_than:
                return num_steps
            while not (await events.content.readline()).startswith(b"event: "):
                pass


async def post(served: Served, sql: str) -> tuple[int, Any]:
    async with served.session.post("/viewer/api/sql", json={"sql": sql}, headers=bearer(TOKEN)) as response:
        return response.status, await response.json()


def viewer_processes() -> list[int]:
    """Children of this process that serve a viewer."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"replay.viewer.serving" in command and int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def test_where_nothing_is_recorded_there_is_nothing_to_see(token_file: str) -> None:
    async def story(served: Served) -> None:
        status, answer = await get(served, "api/recording", **bearer(TOKEN))
        assert status == 404
        assert "nothing is being recorded" in answer["error"]["message"]

    tell_alone(story, viewer_token_file=token_file)


@pytest.mark.parametrize("text", ["", "short", "two words of some length", "ümlaut-that-is-long-enough", "x" * 2_000])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidViewerToken, match="--viewer-token-file"):
        read_viewer_token(str(path), ApiKeys())
    with pytest.raises(InvalidViewerToken, match="cannot be read"):
        read_viewer_token(str(tmp_path / "nowhere"), ApiKeys())
    assert read_viewer_token("", ApiKeys()) == ""
