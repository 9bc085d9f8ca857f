"""A stream whose client comes back: it gets exactly the rest, it alone, and only for a while."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from daemon.answer_stream import BEFORE_ALL, Position
from daemon.resume_journal import SUFFIX, ResumeJournal, runtime_key
from tests.daemon.served import Served, completion, serving

Story = Callable[[Served], Coroutine[Any, Any, None]]
PATH = "/v1/completions"
BODY = completion(max_tokens=60, stream=True, stream_options={"include_usage": True}, logprobs=2)
KEY = b"k" * 32


def tell(story: Story, **options: Any) -> None:
    async def run() -> None:
        async with serving(**options) as served:
            await story(served)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def headers(request_id: str, **more: str) -> dict[str, str]:
    return {"X-Request-Id": request_id, "X-Reprise-Resume-Seconds": "60", **more}


async def begin(served: Served, request_id: str, num_events: int, **more: str) -> list[bytes]:
    """Read so many events, then break the connection."""
    async with served.session.post(PATH, json=BODY, headers=headers(request_id, **more)) as response:
        assert response.status == 200, await response.text()
        assert response.headers["X-Reprise-Resume-Seconds"] == "60"
        return [await read_event(response) for _ in range(num_events)]


async def read_event(response: aiohttp.ClientResponse) -> bytes:
    event = b""
    while not event.endswith(b"\n\n"):
        event += await response.content.readuntil(b"\n")
    return event


async def rest(served: Served, request_id: str, last_id: str, **more: str) -> list[bytes]:
    given = {"X-Request-Id": request_id, "Last-Event-ID": last_id, **more}
    async with served.session.post(PATH, headers=given) as response:
        assert response.status == 200, await response.text()
        return split(await response.read())


def split(data: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in data.split(b"\n\n") if event and not event.startswith(b":")]


def id_of(event: bytes) -> str:
    return event.split(b"\n")[0].removeprefix(b"id: ").decode()


def told(events: list[bytes]) -> list[Any]:
    """Without what names the call."""
    return [
        {name: value for name, value in json.loads(event.partition(b"data: ")[2]).items() if name != "id"}
        for event in events
        if b"[DONE]" not in event
    ]


def test_every_break_is_followed_by_exactly_the_rest() -> None:
    async def story(served: Served) -> None:
        async with served.session.post(PATH, json=BODY) as response:
            whole = split(await response.read())
        assert [id_of(event) for event in whole[-3:-1]] == ["60.1", "60.2"]
        expected = told(whole)
        for index, num_read in enumerate((1, 20, len(whole) - 1)):
            request_id = f"r{index}"
            first = await begin(served, request_id, num_read)
            middle = await rest(served, request_id, id_of(first[-1]))
            got = told(first + middle)
            for chunk in got:
                chunk["created"] = expected[0]["created"]
            assert got == expected
            again = await rest(served, request_id, "")
            assert len(again) == len(whole), "an answer that has ended is kept, too"

    tell(story)


def test_a_second_reader_takes_the_stream_over_and_get_does_the_same() -> None:
    async def story(served: Served) -> None:
        body = {**BODY, "max_tokens": 400}
        async with served.session.post(PATH, json=body, headers=headers("r")) as response:
            first = [await read_event(response) for _ in range(5)]
            given = {"Last-Event-ID": id_of(first[-1])}
            async with served.session.get("/v1/streams/r", headers=given) as second:
                assert second.status == 200
                more = split(await second.read())
            assert Position.parse(id_of(more[0])) > Position.parse(id_of(first[-1]))
            assert [id_of(event) for event in more[-3:-1]] == ["400.1", "400.2"]
            assert more[-1] == b"data: [DONE]\n\n"
        await served.until(lambda: len(served.service.engine.live) == 0)

    tell(story)


def test_without_the_header_a_broken_connection_cancels() -> None:
    async def story(served: Served) -> None:
        engine = served.service.engine
        async with served.session.post(PATH, json={**BODY, "max_tokens": 400}, headers={"X-Request-Id": "r"}) as got:
            await read_event(got)
        await served.until(lambda: engine.timeline.totals.finished["cancelled"] == 1)
        async with served.session.post(PATH, headers={"X-Request-Id": "r", "Last-Event-ID": "1"}) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "resume_unknown"

    tell(story)


def test_whoever_does_not_come_back_in_time_finds_it_gone() -> None:
    async def story(served: Served) -> None:
        body = {**BODY, "max_tokens": 400}
        async with served.session.post(PATH, json=body, headers=headers("r")) as response:
            await read_event(response)
        resumables = served.service.resumables
        await served.until(lambda: len(resumables) == len(served.service.engine.live) == 0)
        async with served.session.get("/v1/streams/r", headers={"Last-Event-ID": "1"}) as gone:
            assert gone.status == 410
            assert "X-Reprise-Resume-Seconds" in (await gone.json())["error"]["message"]

        assert served.service.engine.timeline.totals.finished["cancelled"] == 1

    tell(story, max_resume_s=0.2)  # what the client asks for is cut to it


def test_what_cannot_be_kept_is_refused_in_words() -> None:
    async def story(served: Served) -> None:
        for body, given in ((completion(), "5"), ({**BODY, "prompt": [[1], [2]]}, "5"), (BODY, "soon")):
            async with served.session.post(PATH, json=body, headers={"X-Reprise-Resume-Seconds": given}) as response:
                assert response.status == 400
                assert "X-Reprise-Resume-Seconds" in (await response.json())["error"]["message"]
        async with served.session.get("/v1/streams/r", headers={"Last-Event-ID": "x"}) as response:
            assert response.status == 400

    tell(story)


def test_another_tenant_finds_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        "[tenants.a]\nsha256 = ['ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb']\n"
        "[tenants.b]\nsha256 = ['3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d']\n"
    )  # of "a" and "b"

    async def story(served: Served) -> None:
        events = await begin(served, "r", 2, Authorization="Bearer a")
        given = {"X-Request-Id": "r", "Last-Event-ID": "1", "Authorization": "Bearer b"}
        async with served.session.post(PATH, headers=given) as response:
            assert response.status == 404
        assert await rest(served, "r", id_of(events[-1]), Authorization="Bearer a")

    tell(story, api_key_file=str(keys))


def test_positions_are_ordered_as_events_are() -> None:
    texts = ["", "0", "1", "60", "60.1", "60.2"]
    positions = [Position.parse(text) for text in texts]
    assert positions == sorted(positions)
    assert positions[0] == BEFORE_ALL
    assert [str(position) for position in positions[1:]] == texts[1:]


# ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────────────


def journal(story: Callable[[ResumeJournal], Coroutine[Any, Any, None]], folder: Path, key: bytes = KEY) -> None:
    async def run() -> None:
        opened = ResumeJournal(folder, key)
        await story(opened)
        await opened.close()

    asyncio.run(run())


def test_what_was_written_is_read_back_in_order_and_goes_on(tmp_path: Path) -> None:
    async def first(opened: ResumeJournal) -> None:
        name = await opened.begin({"a": 1})
        for number in range(5):
            opened.append(name, (number, "CANARY"))
        gone = await opened.begin({"b": 1})
        opened.remove(gone)

    async def second(opened: ResumeJournal) -> None:
        ((name, _written_ns, records),) = opened.read()
        assert records == [{"a": 1}, *[(number, "CANARY") for number in range(5)]]
        opened.append(name, (5, "more"))

    async def third(opened: ResumeJournal) -> None:
        assert opened.read()[0][2][-1] == (5, "more")

    for story in (first, second, third):
        journal(story, tmp_path)
    (path,) = tmp_path.iterdir()
    assert b"CANARY" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_tail_costs_what_lies_behind_it_and_another_key_reads_nothing(tmp_path: Path) -> None:
    async def write(opened: ResumeJournal) -> None:
        name = await opened.begin({"a": 1})
        opened.append(name, (1,))

    async def read(opened: ResumeJournal) -> None:
        assert [records for _name, _ns, records in opened.read()] == [[{"a": 1}]]

    async def read_nothing(opened: ResumeJournal) -> None:
        assert opened.read() == []

    journal(write, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    journal(read, tmp_path)
    journal(read_nothing, tmp_path, b"x" * 32)
    assert not list(tmp_path.glob("*" + SUFFIX))


def test_the_key_lies_in_the_runtime_directory_for_its_owner_alone(tmp_path: Path) -> None:
    key = runtime_key({"RUNTIME_DIRECTORY": str(tmp_path / "service")})
    assert key == runtime_key({"RUNTIME_DIRECTORY": str(tmp_path / "service")})
    assert (tmp_path / "service" / "resume.key").stat().st_mode & 0o777 == 0o600
    assert runtime_key({"XDG_RUNTIME_DIR": str(tmp_path)}) != key
    assert (tmp_path / "reprise" / "resume.key").exists()
