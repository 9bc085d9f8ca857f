"""A recording that is being written: what comes is told, and shown as if it had been there from the beginning."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from engine.clock import SystemClock
from recorder.folder_claim import claim_folder
from replay.viewer.access import Access
from replay.viewer.viewed import Viewed
from tests.replay.viewer.asked import ask_binary
from tests.replay.viewer.http import TOKEN, tell

BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def event(events: aiohttp.ClientResponse, name: str) -> dict[str, Any]:
    """The next of this name."""
    async with asyncio.timeout(60):
        while (await events.content.readline()).strip() != f"event: {name}".encode():
            pass
        data: dict[str, Any] = json.loads((await events.content.readline()).removeprefix(b"data: "))
        return data


async def recording(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get("/api/recording", headers=BEARER) as answer:
        found: dict[str, Any] = await answer.json()
        return found


def test_a_page_is_told_of_every_step_that_comes(run: Path, tmp_path: Path) -> None:
    (segment,) = run.glob("*.rpr")
    data = segment.read_bytes()
    growing = tmp_path / "run"
    growing.mkdir()
    file = growing / segment.name
    file.write_bytes(data[: len(data) // 4])
    claim = claim_folder(growing)

    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        async with session.get("/api/live", headers=BEARER) as events:
            await event(events, "ready")
            before = await recording(session)
            assert before["is_live"]
            assert before["index"]["state"] == "following"
            last_step = before["lives"][0]["last_step"]
            for part in (2, 3, 4):
                with file.open("ab") as appended:
                    appended.write(data[file.stat().st_size : len(data) * part // 4])
                while (grown := await event(events, "grown"))["to_step"] <= last_step:
                    pass  # what was there before the page came
                assert grown["from_step"] <= last_step + 1
                last_step = (await recording(session))["lives"][0]["last_step"]
                assert last_step >= grown["to_step"]
            os.close(claim)
            async with asyncio.timeout(60):
                while (await recording(session))["index"]["state"] != "ready":
                    await asyncio.sleep(0.1)
            assert not (await recording(session))["is_live"]

    tell(story, growing, tmp_path / "index")


def test_arrays_that_grew_are_those_read_at_once(run: Path, viewed: Viewed, tmp_path: Path) -> None:
    (segment,) = run.glob("*.rpr")
    data = segment.read_bytes()
    growing = tmp_path / "run"
    growing.mkdir()
    grown: Viewed | None = None
    for part in range(1, 10):
        (growing / segment.name).write_bytes(data[: len(data) * part // 9])
        grown = grown or Viewed.open(growing, SystemClock(), tmp_path / "index")
        grown.index.update()
        grown.refresh()
    assert grown is not None
    for route, parameters in (
        ("strips", {"axis": "step"}),
        ("strips", {"axis": "time", "width": 77}),
        ("timeline", {"axis": "step", "rows": "0,4096"}),
        ("timeline", {"group": "state", "rows": "0,4096", "width": 300}),
    ):
        expected, got = (ask_binary(each, route, **parameters) for each in (viewed, grown))
        assert got[0] | {"generation": 0} == expected[0] | {"generation": 0}
        for name, array in expected[1].items():
            assert np.array_equal(got[1][name], array, equal_nan=array.dtype.kind == "f"), (route, name)
    grown.states.close()


def test_an_index_that_cannot_be_built_is_said_and_what_is_known_is_shown(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"

    async def story(session: aiohttp.ClientSession, access: Access) -> None:
        async with session.get("/api/live", headers=BEARER) as events:
            await event(events, "ready")
            os.kill(indexing_process(folder), signal.SIGKILL)
            failed = await event(events, "failed")
            assert "indexing process ended" in failed["error"]
        index = (await recording(session))["index"]
        assert (index["state"], index["error"]) == ("failed", failed["error"])
        async with session.get("/api/step/1/7", headers=BEARER) as answer:
            assert answer.status == 200

    tell(story, run, folder)


def indexing_process(folder: Path) -> int:
    """The one that keeps its index in this folder."""
    (found,) = [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if {b"replay.viewer.indexing", str(folder).encode()} <= set(_read(entry / "cmdline").split(b"\0"))
    ]
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def test_arrays_that_were_kept_are_read_again_unless_the_index_is_another(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.viewer.viewed._MIN_STEPS_KEPT", 1)
    first = Viewed.open(run, SystemClock(), tmp_path)
    first.index.update()
    expected = ask_binary(first, "timeline", rows="0,4096"), ask_binary(first, "strips")
    first.keep()
    kept = sorted(tmp_path.glob("*.npz"))
    assert len(kept) == 2
    again = Viewed.open(run, SystemClock(), tmp_path)
    monkeypatch.setattr("replay.viewer.growing.Growing.take", lambda self, cursor: None)  # nothing is read anew
    got = ask_binary(again, "timeline", rows="0,4096"), ask_binary(again, "strips")
    for (_, mine), (_, theirs) in zip(got, expected, strict=True):
        assert all(
            np.array_equal(mine[name], array, equal_nan=array.dtype.kind == "f") for name, array in theirs.items()
        )
    monkeypatch.undo()
    for path in kept:
        path.write_bytes(b"PK\x03\x04 no such thing")
    damaged = Viewed.open(run, SystemClock(), tmp_path)
    assert np.array_equal(ask_binary(damaged, "timeline", rows="0,4096")[1]["from"], expected[0][1]["from"])
    for each in (first, again, damaged):
        each.states.close()
