"""Handlers of /v1/completions, /v1/chat/completions and /v1/responses: a body becomes a checked and tokenized `Turn`.

Everything that can be refused is refused before the first byte: fields, model, prompt, and what the core refuses.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog
from aiohttp import web

from daemon import openai_api
from daemon.fields import Body
from daemon.gateway_headers import header_priority
from daemon.question import Question
from daemon.request_body import read_object
from daemon.request_ids import REQUEST_ID, request_id_was_given
from daemon.resumption import Resumption, asks_for_the_rest
from daemon.service import Service
from daemon.turn import Turn

log = structlog.get_logger(__name__)


class GenerationHandler:
    """Shared by all calls; a call's own state lies in its `Turn`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._resumption = Resumption(service)
        self._unknown_fields: set[str] = set()

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, openai_api.read_completion)

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, openai_api.read_chat)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, openai_api.read_response)

    async def _answer(self, request: web.Request, read: Callable[[Body, int], Question]) -> web.StreamResponse:
        if asks_for_the_rest(request):
            return await self._resumption.answer(request)
        service = self._service
        await service.engine.pacer.turn()
        service.engine.require_serving()
        vocab_size = service.text_model.vocab_size
        body = await read_object(service, request)
        arrival_ns = service.clock.now_ns()
        question = read(body, vocab_size)
        if question.request_id and not request_id_was_given(request):
            request[REQUEST_ID] = question.request_id
        if question.model is not None and question.model not in service.served_names:
            raise openai_api.unknown_model(question.model, service.served_names)
        self._note_unknown_fields(question)
        if (priority := header_priority(request)) is not None and question.urgency.priority is None:
            question = replace(question, urgency=question.urgency._replace(priority=priority))
        structure = question.tools.structure(service.text_model) if question.tools else question.structure
        if structure is not None:
            question = replace(question, grammar=await service.grammars.make(structure))
        prompts = await service.encoder.encode(question, service.engine.max_model_len)
        return await Turn(service, request, question, prompts, arrival_ns).answer()

    def _note_unknown_fields(self, question: Question) -> None:
        """Each name is logged once, and a bounded number of them."""
        for name in question.unknown_fields:
            if name not in self._unknown_fields and len(self._unknown_fields) < 256:
                self._unknown_fields.add(name)
                log.info("unknown field ignored", field=name[:64])
