"""A server under load: where it is, which of its models is asked, and what every request to it says."""

import json
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from daemon.bench.errors import NoServer, UnusableOption
from daemon.bench.prompts import Prompt

_REACH_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """
    url          without the trailing /v1
    api_key      "" for none
    ignore_eos   ask that answers go on to max_tokens; not part of OpenAI's own API
    extra        further fields of every body; a null takes a field away
    """

    url: str
    model: str = ""
    api_key: str = field(default="", repr=False)
    ignore_eos: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def body(self, prompt: Prompt, num_output_tokens: int) -> bytes:
        """A greedy streaming request, as JSON."""
        fields = {
            "model": self.model,
            "max_tokens": num_output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
            **prompt.fields,
            **self.extra,
        }
        return json.dumps({name: value for name, value in fields.items() if value is not None}).encode("utf-8")


def plain_url(url: str) -> str:
    """As Endpoint wants it. Raises UnusableOption."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnusableOption(f"{url!r} is no address of a server: give it as http://HOST:PORT")
    return url.rstrip("/").removesuffix("/v1")


async def find_model(endpoint: Endpoint) -> str:
    """The model that `endpoint` names, else the only one that the server has.

    Raises NoServer, and UnusableOption when the server does not say which model it would be.
    """
    address = f"{endpoint.url}/v1/models"
    timeout = aiohttp.ClientTimeout(total=_REACH_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=endpoint.headers) as session,
            session.get(address) as response,
        ):
            status, answer = response.status, await response.read()
    except TimeoutError as error:
        raise NoServer(f"{endpoint.url} did not answer within {_REACH_TIMEOUT_S:g} s: is the server stuck?") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoServer(
            f"no server answers at {endpoint.url} ({_reason(error)}): start it, or name another address"
        ) from error
    if endpoint.model:
        return endpoint.model
    if status in (401, 403):
        raise UnusableOption(f"{address} answered HTTP {status}: give the server's key with --api-key")
    return _only_model(address, status, answer)


def _reason(error: Exception) -> str:
    """In the system's words where it has them, without the library's."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(getattr(error, "strerror", None) or error)


def _only_model(address: str, status: int, answer: bytes) -> str:
    try:
        models = [str(model["id"]) for model in json.loads(answer)["data"]] if status == 200 else []
    except (ValueError, TypeError, KeyError):
        models = []
    if len(models) == 1:
        return models[0]
    found = f"lists {len(models)} models ({', '.join(models)})" if models else f"lists none (HTTP {status})"
    raise UnusableOption(f"{address} {found}: name one with --model")
