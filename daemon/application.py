"""The HTTP side as aiohttp sees it: every route, and the sockets it listens on.

aiohttp takes a quarter of a second to import, so `server.py` starts the engine first.
"""

from collections.abc import Sequence
from socket import socket

from aiohttp import web
from aiohttp.typedefs import Handler

from daemon.accepting import AcceptingSite
from daemon.connections import OpenConnections
from daemon.cors import preflight_middleware, tell_origin
from daemon.drain import CallCounter
from daemon.generation import GenerationHandler
from daemon.incidents import IncidentHandler
from daemon.listening import listening_sockets
from daemon.malformed_http import OPEN_CONNECTIONS, SERVER, ApiRunner
from daemon.middleware import crowd_middleware, error_middleware, key_middleware
from daemon.openapi import OpenApiHandler
from daemon.probes import ProbeHandler
from daemon.resumption import Resumption
from daemon.service import Service
from daemon.slow_readers import reader_middleware
from daemon.tokenization import TokenizationHandler

CLOSE_SECONDS = 0.5  # for idle connections when the server ends


async def listen(service: Service, calls: CallCounter, inherited: Sequence[socket] = ()) -> web.AppRunner:
    """Take calls until `cleanup()`, on `inherited` sockets, or else on the configured address.

    Raises OSError where it cannot be listened on.
    """
    config = service.config
    sockets = listening_sockets(config.host, config.port, inherited, config.client_timeout)
    runner = ApiRunner(
        build_application(service, calls),
        handler_cancellation=True,  # a handler ends when its client leaves
        shutdown_timeout=CLOSE_SECONDS,
        keepalive_timeout=config.client_timeout,  # also for a head that comes byte by byte, and for none
        access_log=None,  # one line per request comes from the handler, with what counts
    )
    await runner.setup()
    for each in sockets:
        await AcceptingSite(runner, each, lambda: service.tls.context if service.tls else None).start()
    return runner


def build_application(service: Service, calls: CallCounter) -> web.Application:
    """All routes over one service."""
    generation, probes = GenerationHandler(service), ProbeHandler(service)
    tokenization = TokenizationHandler(service)

    def counted(handler: Handler) -> Handler:
        async def count(request: web.Request) -> web.StreamResponse:
            with calls:
                return await handler(request)

        return count

    open_connections = OpenConnections(service.config.max_connections)
    application = web.Application(
        client_max_size=service.config.max_body_size,
        middlewares=[
            reader_middleware(lambda: service.config.client_timeout),
            error_middleware(lambda: service.is_draining, service.refusals.note),
            crowd_middleware(open_connections),
            preflight_middleware(lambda: service.config.cors_origins),
            key_middleware(lambda: service.api_keys),
        ],
    )
    application.on_response_prepare.append(_name_no_versions)
    application.on_response_prepare.append(tell_origin(lambda: service.config.cors_origins))
    application[OPEN_CONNECTIONS] = open_connections
    application.add_routes(
        [
            web.post("/v1/completions", counted(generation.completions)),
            web.post("/v1/chat/completions", counted(generation.chat_completions)),
            web.post("/v1/responses", counted(generation.responses)),
            web.get("/openapi.json", OpenApiHandler(service).get),
            web.post("/tokenize", counted(tokenization.tokenize)),
            web.post("/detokenize", counted(tokenization.detokenize)),
            web.get("/v1/streams/{id}", counted(Resumption(service).get)),
            web.get("/v1/models", probes.models),
            web.get("/v1/models/{name:.+}", probes.model),
            web.get("/health", probes.health),
            web.get("/ready", probes.ready),
            web.get("/metrics", probes.metrics),
            web.get("/version", probes.version),
            web.get("/config", probes.config),
            web.post("/incidents", IncidentHandler(service).mark),
        ]
    )
    if service.viewer_token:
        from daemon.viewer import add_viewer  # here, for most daemons have no viewer

        add_viewer(application, service)
    return application


async def _name_no_versions(request: web.Request, response: web.StreamResponse) -> None:
    """aiohttp's own name would say which versions to look for faults in."""
    response.headers["Server"] = SERVER
