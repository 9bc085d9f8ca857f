"""What operators and routers ask: is it alive, may requests come, what is served, what has it done."""

from typing import Any

from aiohttp import web

from daemon import errors
from daemon.config_sources import Configured
from daemon.config_view import config_table
from daemon.health import unhealthy_reason
from daemon.openai_api import unknown_model
from daemon.reload import IN_FLIGHT
from daemon.service import Service
from daemon.supervisor import EngineState
from daemon.telemetry.metrics import MetricsPage


class ProbeHandler:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._metrics = MetricsPage(service)

    async def health(self, request: web.Request) -> web.Response:
        """200 while the engine gets on with its work, starts, or drains; 503 when work waits and nothing moves."""
        engine = self._service.engine
        body = {
            "status": "ok",
            "engine": engine.supervisor.state,
            "num_live_requests": len(engine.live),
            "seconds_without_progress": round(engine.progress.stalled_seconds, 1),
            "num_engine_restarts": engine.supervisor.num_restarts,
            "num_requests_handed_over": engine.handover.num_handed_over,
            "recording": self._recording,
        }
        reason = unhealthy_reason(self._service)
        if reason:
            status = "failed" if engine.supervisor.state is EngineState.FAILED else "stalled"
            return web.json_response({**body, "status": status, "reason": reason}, status=503)
        return web.json_response(body)

    @property
    def _recording(self) -> str:
        if not self._service.config.is_recording:
            return "off"
        return "stopped" if self._service.engine.recorder.totals.is_stopped else "on"

    async def ready(self, request: web.Request) -> web.Response:
        """200 only when a request sent now would be taken, and got on with."""
        reason = self._service.not_ready_reason or unhealthy_reason(self._service)
        if reason:
            return web.json_response({"ready": False, "reason": reason}, status=503)
        return web.json_response({"ready": True})

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self._service.version})

    async def metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def config(self, request: web.Request) -> web.Response:
        """What is in force, or was read and waits for the next start; secrets masked. Not for tenants (middleware)."""
        configured = self._service.configured
        waiting = config_table(configured, IN_FLIGHT)
        options = config_table(Configured(self._service.config, configured.sources), IN_FLIGHT)
        for name, row in options.items():
            if row["value"] != waiting[name]["value"]:
                row["next_start"] = waiting[name]["value"]
        return web.json_response({"file": configured.path, "options": options})

    async def models(self, request: web.Request) -> web.Response:
        cards = [self._card(name) for name in self._service.served_names]
        return web.json_response({"object": "list", "data": cards})

    async def model(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._service.served_names:
            raise unknown_model(name, self._service.served_names)
        return web.json_response(self._card(name))

    def _card(self, name: str) -> dict[str, Any]:
        info = self._service.engine.supervisor.info
        if not info:
            raise errors.unavailable("the model is still being loaded", "engine_not_ready")
        return {
            "id": name,
            "object": "model",
            "created": self._service.created,
            "owned_by": "reprise",
            "root": self._service.config.model,
            "max_model_len": self._service.engine.max_model_len,
            "reprise": {
                "version": self._service.version,
                "backend": info.get("backend", ""),
                "numerics_class": info.get("numerics_class", ""),
                "p4_holds": info.get("p4_holds"),  # what the self-test at start found on this machine
                "system_fingerprint": self._service.system_fingerprint,
            },
        }
