"""`/viewer` of a running daemon: who has the viewer's token sees the recording as it is written.

The daemon lets in and hands on; a process of its own (`viewer_child.py`) answers. Nothing here reads a recording.
"""

import aiohttp
from aiohttp import web

from daemon.errors import ApiError
from daemon.service import Service
from daemon.viewer_child import ViewerChild
from replay.viewer.access import Access
from replay.viewer.guard import forbid, guard

ROOT = "/viewer/"
MAX_BODY_BYTES = 64 * 1024
_PASSED_ON = ("Accept", "Accept-Encoding", "Content-Type")
_PASSED_BACK = ("Content-Type", "Content-Encoding", "Content-Length", "Vary")


def add_viewer(application: web.Application, service: Service) -> None:
    """Nothing, where no token is configured."""
    if not service.viewer_token:
        return
    viewer = Viewer(service)
    inner = web.Application(middlewares=[guard(Access(service.viewer_token, root=ROOT))])
    inner.add_routes([web.get("/{place:.*}", viewer.answer), web.post("/{place:.*}", viewer.answer)])
    inner.on_cleanup.append(viewer.stop)
    application.router.add_get(ROOT.rstrip("/"), _to_root)
    application.add_subapp(ROOT, inner)


async def _to_root(request: web.Request) -> web.Response:
    place = request.rel_url.with_path(ROOT, keep_query=True)
    return web.Response(status=308, headers={"Location": str(place), "Cache-Control": "no-store"})


class Viewer:
    def __init__(self, service: Service, child: ViewerChild | None = None) -> None:
        self._service = service
        self._child = child or ViewerChild()

    async def stop(self, application: web.Application) -> None:
        await self._child.stop()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Whatever the viewer's process answers. 404 where nothing is recorded."""
        recording = self._service.engine.supervisor.info.get("record_dir")
        if not recording:
            raise web.HTTPNotFound(reason="nothing is being recorded, so there is nothing to see")
        if (request.content_length or 0) > MAX_BODY_BYTES or (request.body_exists and request.content_length is None):
            raise web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES, request.content_length or 0)
        try:
            async with self._child.socket(str(recording)) as path:
                connector = aiohttp.UnixConnector(str(path), limit=1)
                timeout = aiohttp.ClientTimeout(total=None)
                async with aiohttp.ClientSession(
                    connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
                ) as session:
                    return await _hand_on(session, request)
        except ApiError as error:
            raise web.HTTPServiceUnavailable(reason=error.message) from error
        except aiohttp.ClientError as error:
            raise web.HTTPBadGateway(reason="the viewer's process ended meanwhile: ask again") from error


async def _hand_on(session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
    place = "/" + request.match_info["place"]
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    url = request.rel_url.with_path(place, keep_query=True)
    body = await request.read() or None
    async with session.request(request.method, f"http://viewer{url}", data=body, headers=headers) as answer:
        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        response = web.StreamResponse(status=answer.status, headers=passed)
        forbid(response)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        return response
