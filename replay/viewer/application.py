"""The viewer as aiohttp sees it: every route, each answered in a thread so that none holds up another.

All of it reads: nothing that a client asks changes a recording, or its index.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from replay.viewer.access import Access
from replay.viewer.answers import answers
from replay.viewer.answers.asking import questions, sql, tables
from replay.viewer.answers.beside import SIDE_BY_SIDE
from replay.viewer.answers.compare import compare
from replay.viewer.beside import Beside
from replay.viewer.errors import BadQuestion
from replay.viewer.following import Following
from replay.viewer.guard import forbid, guard
from replay.viewer.page_files import INDEX, content_type, page_files
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed

MAX_BODY_BYTES = 64 * 1024
KEEP_ALIVE_S = 15.0
MIN_COMPRESSED_BYTES = 4_096


class Viewer:
    """One recording, and the one that it is compared with."""

    def __init__(self, viewed: Viewed, other: Viewed | None = None, folder: Path | None = None) -> None:
        """`folder`: where indexes are kept."""
        self._viewed, self._other = viewed, other
        self._beside = Beside(viewed, other) if other is not None else None
        self._following = [Following(viewed, folder)]
        if other is not None:
            viewed.beside, other.beside = other.path.resolve().name, viewed.path.resolve().name
            viewed.beside_path, other.beside_path = other.shown_path, viewed.shown_path
            self._following.append(Following(other, folder, beside=self._following[0]))

    def application(self, access: Access | None) -> web.Application:
        """`access`: None where whoever can connect has been let in already."""
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[guard(access)])
        application.on_startup.append(self._start)
        application.on_cleanup.append(self._stop)
        get = [web.get(f"/api/{route}", self._answering(answer)) for route, answer in answers().items()]
        application.add_routes(
            [
                *get,
                web.get("/api/questions", _questions),
                web.get("/api/schema", _tables),
                web.post("/api/sql", self._sql),
                web.get("/api/compare", self._compare),
                *[web.get(f"/api/beside/{name}", self._side_by_side(answer)) for name, answer in SIDE_BY_SIDE.items()],
                web.get("/api/live", self._live),
                web.get("/{name:.*}", _page),
            ]
        )
        return application

    async def _start(self, application: web.Application) -> None:
        for following in self._following:
            await following.start()

    async def _stop(self, application: web.Application) -> None:
        for following in self._following:
            await following.stop()
        for viewed in (self._viewed, self._other):
            if viewed is not None:
                viewed.states.close()

    def _side_by_side(self, answer: Callable[[Beside, Parameters], Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self._beside is None:
                raise BadQuestion("no other recording was given: reprise view REC OTHER", status=404)
            found = await asyncio.to_thread(answer, self._beside, Parameters(request.query))
            return _binary(found) if isinstance(found, bytes) else await _json(found)

        return handle

    def _chosen(self, values: Mapping[str, str]) -> Viewed:
        if values.get("which", "") != "other":
            return self._viewed
        if self._other is None:
            raise BadQuestion("no other recording was given: reprise view REC OTHER", "which", 404)
        return self._other

    def _answering(self, answer: Callable[[Viewed, Parameters], Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            values = {**request.query, **request.match_info}
            found = await asyncio.to_thread(answer, self._chosen(values), Parameters(values))
            return _binary(found) if isinstance(found, bytes) else await _json(found)

        return handle

    async def _sql(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError as error:
            raise BadQuestion('the body is no JSON: give {"sql": "SELECT …"}', "sql") from error
        return await _json(await asyncio.to_thread(sql, self._chosen(request.query), body))

    async def _compare(self, request: web.Request) -> web.StreamResponse:
        other = self._other.path if self._other is not None else None
        return await _json(await asyncio.to_thread(compare, self._viewed, other))

    async def _live(self, request: web.Request) -> web.StreamResponse:
        following = self._following[0]
        if following.is_full:
            raise BadQuestion("too many pages listen already: close some", status=503)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        forbid(response)
        await response.prepare(request)
        await response.write(b": hello\n\n")
        events = following.listen()
        waiting: asyncio.Task[tuple[str, dict[str, Any]]] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(events))
                done, _ = await asyncio.wait([waiting], timeout=KEEP_ALIVE_S)
                if not done:
                    await response.write(b": still here\n\n")
                    continue
                name, data = waiting.result()
                waiting = None
                await response.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        except ConnectionResetError:  # the page was closed: that is how each of them ends
            pass
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await events.aclose()
        return response


async def _questions(request: web.Request) -> web.Response:
    return await _json(questions())


async def _tables(request: web.Request) -> web.Response:
    return await _json(tables())


async def _json(values: Any) -> web.Response:
    body = await asyncio.to_thread(lambda: json.dumps(values, allow_nan=False).encode())
    return _compressed(web.Response(body=body, content_type="application/json", charset="utf-8"), len(body))


def _binary(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/octet-stream")


def _compressed(response: web.Response, num_bytes: int) -> web.Response:
    if num_bytes >= MIN_COMPRESSED_BYTES:
        response.enable_compression()
    return response


async def _page(request: web.Request) -> web.Response:
    name = request.match_info["name"] or INDEX
    path = (await asyncio.to_thread(page_files)).get(name)
    if path is None:
        raise BadQuestion(f"there is no {name[:200]!r} here", status=404)
    body = await asyncio.to_thread(path.read_bytes)
    return web.Response(body=body, headers={"Content-Type": content_type(name)})
