"""Handlers of /tokenize and /detokenize, in vLLM's shapes: what a text costs, and what token ids read."""

from typing import Any

from aiohttp import web

from daemon import chat_messages, fields, openai_api
from daemon.chat_rendering import read_rendering
from daemon.errors import bad_request
from daemon.fields import Body
from daemon.request_body import read_object
from daemon.service import Service
from daemon.tools import read_tools

MAX_TEXT_CHARS = 16 * 1024 * 1024


class TokenizationHandler:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        token_ids = await self._encode(body)
        answer: dict[str, Any] = {
            "count": len(token_ids),
            "max_model_len": self._service.engine.max_model_len,
            "tokens": list(token_ids),
            "token_strs": None,
        }
        if fields.boolean(body, "return_token_strs"):
            answer["token_strs"] = [self._service.text_model.token_text(token_id) for token_id in token_ids]
        return web.json_response(answer)

    async def detokenize(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        text_model = self._service.text_model
        token_ids = fields.token_ids(body.get("tokens"), "tokens", text_model.vocab_size)
        return web.json_response({"prompt": text_model.decode(token_ids, skip_special_tokens=False)})

    async def _read(self, request: web.Request) -> Body:
        service = self._service
        service.engine.require_ready()
        body = await read_object(service, request)
        model = fields.text(body, "model", "", 1024)
        if model and model not in service.served_names:
            raise openai_api.unknown_model(model, service.served_names)
        return body

    async def _encode(self, body: Body) -> tuple[int, ...]:
        encoder = self._service.encoder
        if body.get("messages") is not None:
            messages, tools = chat_messages.read_messages(body), read_tools(body)
            rendering = read_rendering(body, messages)
            return await encoder.encode_chat(messages, rendering, tools.told if tools else ())
        if body.get("prompt") is None:
            raise bad_request("give a prompt, or the messages of a chat", "prompt")
        prompt = fields.text(body, "prompt", "", MAX_TEXT_CHARS)
        return await encoder.encode_text(prompt, "prompt", fields.boolean(body, "add_special_tokens", True))
