"""GET /openapi.json: what can be asked here, for tools that read it. Fields and bounds come from `field_table.py`."""

from typing import Any

from aiohttp import web

from daemon.field_table import CHAT_FIELDS, COMPLETION_FIELDS, RESPONSES_FIELDS
from daemon.service import Service

Json = dict[str, Any]

_ERROR: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_TOKENIZE: dict[str, Json] = {
    "model": {"type": ["string", "null"], "maxLength": 1024},
    "prompt": {"type": ["string", "null"]},
    "messages": CHAT_FIELDS["messages"],
    "tools": CHAT_FIELDS["tools"],
    "tool_choice": CHAT_FIELDS["tool_choice"],
    "add_special_tokens": {"type": ["boolean", "null"], "default": True},
    **{name: CHAT_FIELDS[name] for name in ("add_generation_prompt", "continue_final_message", "chat_template_kwargs")},
    "return_token_strs": {"type": ["boolean", "null"], "default": False},
}
_DETOKENIZE: dict[str, Json] = {
    "model": {"type": ["string", "null"], "maxLength": 1024},
    "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
}


def document(version: str) -> Json:
    """OpenAPI 3.1 of the endpoints that answer clients. A body may hold other fields; they are passed over."""
    posts = {
        "/v1/completions": _post("A completion", COMPLETION_FIELDS, ["prompt"], streams=True),
        "/v1/chat/completions": _post("An answer in a chat", CHAT_FIELDS, ["messages"], streams=True),
        "/v1/responses": _post("An answer, as a response", RESPONSES_FIELDS, ["input"], streams=True),
        "/tokenize": _post("Token ids of a text or a chat", _TOKENIZE, []),
        "/detokenize": _post("The text of token ids", _DETOKENIZE, ["tokens"]),
    }
    gets = {
        "/v1/models": _get("The served model", {}),
        "/health": _get("Whether the engine makes progress", {"503": _answer("it does not", {"type": "object"})}),
        "/ready": _get("Whether a request would be taken now", {"503": _answer("it would not", {"type": "object"})}),
        "/version": _get("The version", {}),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Reprise", "version": version},
        "paths": {path: {"post": post} for path, post in posts.items()}
        | {path: {"get": get} for path, get in gets.items()},
        "components": {"schemas": {"Error": _ERROR}, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


class OpenApiHandler:
    def __init__(self, service: Service) -> None:
        self._document = document(service.version)

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._document)


def _post(summary: str, fields: dict[str, Json], required: list[str], *, streams: bool = False) -> Json:
    body = {"type": "object", "properties": fields, "required": required}
    answer = _answer("the answer", {"type": "object"})
    if streams:
        answer["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "summary": summary,
        "security": [{}, {"key": []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": answer, **_refusals()},
    }


def _get(summary: str, others: dict[str, Json]) -> Json:
    return {"summary": summary, "responses": {"200": _answer("it", {"type": "object"}), **others, "default": _error()}}


def _refusals() -> dict[str, Json]:
    return {status: _error() for status in ("400", "401", "404", "408", "413", "429", "503", "504", "default")}


def _error() -> Json:
    return _answer("why not", {"$ref": "#/components/schemas/Error"})


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
