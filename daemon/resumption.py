"""A client comes back for the rest of its answer: POST again, or GET /v1/streams/{id}, with the id it read last.

The body of such a POST is not read. The answer goes on behind `Last-Event-ID`, exactly: the same events as the first
stream would have had. Refused with 404 for whoever did not ask the question, 410 when its time is over.
"""

import structlog
from aiohttp import web

from daemon.answer_stream import AnswerStream, Position
from daemon.choices import Choices
from daemon.errors import ApiError, bad_request, internal
from daemon.middleware import CALLER
from daemon.request_ids import REQUEST_ID, REQUEST_ID_HEADER, request_id_was_given
from daemon.resumable import Resumable
from daemon.service import Service
from daemon.streaming import EventStream

RESUME_HEADER = "X-Reprise-Resume-Seconds"
LAST_EVENT_ID = "Last-Event-ID"

log = structlog.get_logger(__name__)


def asks_for_the_rest(request: web.Request) -> bool:
    return LAST_EVENT_ID in request.headers and request_id_was_given(request)


def seconds_asked(request: web.Request, max_seconds: float, *, is_one_stream: bool) -> float:
    """For how long the answer is to be kept when its connection breaks; 0: not at all. Raises ApiError."""
    text = request.headers.get(RESUME_HEADER, "")
    if not text:
        return 0.0
    if not (text.isascii() and text.isdecimal()):
        raise bad_request(f"{RESUME_HEADER} must be a whole number of seconds", RESUME_HEADER)
    seconds = min(float(text[:9]), max_seconds)
    if seconds and not is_one_stream:
        message = f'{RESUME_HEADER} needs "stream": true and a single choice, and is not for /v1/responses'
        raise bad_request(message, RESUME_HEADER)
    return seconds


class Resumption:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def get(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/streams/{id}"""
        request[REQUEST_ID] = request.match_info["id"]
        return await self.answer(request)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        service = self._service
        try:
            after = Position.parse(request.headers.get(LAST_EVENT_ID, ""))
        except ValueError as error:
            message = f"{LAST_EVENT_ID} must be the id of an event of this answer, or empty for all of them"
            raise bad_request(message, LAST_EVENT_ID) from error
        text_model = service.text_model
        resumable = service.resumables.find(request[REQUEST_ID], request[CALLER].tenant)
        await service.resumables.attach(resumable)
        try:
            choices = Choices([resumable.telling.new_answer(text_model)], service.engine.lost_error)
            return await self._tell(request, resumable, choices, after)
        finally:
            service.resumables.detach(resumable)
            log.info("rest told", request_id=request[REQUEST_ID], after=str(after), keeps_s=resumable.seconds)

    async def _tell(
        self, request: web.Request, resumable: Resumable, choices: Choices, after: Position
    ) -> web.StreamResponse:
        headers = {**resumable.telling.headers, REQUEST_ID_HEADER: request[REQUEST_ID]}
        stream = await EventStream.begin(request, headers, self._service.config.client_timeout)
        keep_alive_seconds = self._service.config.keep_alive_interval
        resumable.log.rewind()
        try:
            await AnswerStream(resumable.telling.bodies, choices, 1, keep_alive_seconds, after).write(
                resumable.log.take, stream
            )
        except ApiError as error:
            await stream.send([error.body()])
        except ConnectionError:
            raise  # the client has gone again
        except Exception:
            log.exception("a stream failed", request_id=request[REQUEST_ID])
            await stream.send([internal().body()])
        return await stream.end()
