"""POST /incidents: an operator keeps what is being recorded now, with a note, as `reprise mark` does from a shell.

It must not know the engine: the pin is a file beside the segment that is written to.
"""

import asyncio
from pathlib import Path

import structlog
from aiohttp import web

from daemon import fields
from daemon.errors import ApiError, bad_request
from daemon.request_body import read_object
from daemon.service import Service
from recorder.format import segment_paths
from recorder.incidents import Pin, pin_segment

MAX_NOTE_CHARS = 1_000

log = structlog.get_logger(__name__)


class IncidentHandler:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def mark(self, request: web.Request) -> web.Response:
        """201 with what is kept; 409 where nothing is recorded."""
        body = await read_object(self._service, request)
        note = fields.text(body, "note", "", MAX_NOTE_CHARS).strip()
        if not note:
            raise bad_request("note is missing or empty: say in a few words what happened", "note")
        directory = self._service.engine.supervisor.info.get("record_dir")
        if not directory:
            raise ApiError(409, "nothing is being recorded: there is nothing to keep", code="not_recording")
        pin = Pin(note, is_automatic=False, wall_ns=self._service.clock.wall_ns())
        try:
            segment = await asyncio.to_thread(_pin_newest, Path(directory), pin)
        except OSError as error:
            raise ApiError(500, f"the recording could not be marked: {error.strerror}", code="not_marked") from error
        log.info("incident marked", segment=str(segment), note=note)
        return web.json_response({"run": segment.parent.name, "segment": segment.stem, "note": note}, status=201)


def _pin_newest(run: Path, pin: Pin) -> Path:
    """Raises OSError."""
    segments = segment_paths(run)
    if not segments:
        raise FileNotFoundError(0, "no segment has been begun")
    pin_segment(segments[-1], pin)
    return segments[-1]
