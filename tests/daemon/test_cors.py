"""Pages of other sites may ask from a browser only where their origin is listed, and never with cookies."""

from typing import Any

import pytest

from daemon.config_sources import InvalidOption, read_config
from tests.daemon.served import Served, completion
from tests.daemon.test_server import tell_alone

OURS, OTHERS = "https://chat.example", "https://evil.example"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-stainless-os"}


async def answered(served: Served, method: str, path: str, origin: str, **options: Any) -> tuple[int, dict[str, str]]:
    headers = {"Origin": origin, **options.pop("headers", {})}
    async with served.session.request(method, path, headers=headers, **options) as response:
        await response.read()
        told = {name.lower(): value for name, value in response.headers.items()}
        assert "access-control-allow-credentials" not in told
        return response.status, told


def test_without_the_option_no_page_may_ask() -> None:
    async def story(served: Served) -> None:
        status, told = await answered(served, "OPTIONS", "/v1/completions", OURS, headers=ASKS)
        assert status == 405
        assert not any(name.startswith("access-control") for name in told)
        _, told = await answered(served, "POST", "/v1/completions", OURS, json=completion())
        assert not any(name.startswith("access-control") for name in told)

    tell_alone(story)


def test_a_listed_origin_may_and_no_other() -> None:
    async def story(served: Served) -> None:
        del served.session.headers["Authorization"]  # a preflight brings no key
        status, told = await answered(served, "OPTIONS", "/v1/completions", OURS, headers=ASKS)
        assert (status, told["access-control-allow-origin"], told["vary"]) == (204, OURS, "Origin")
        assert told["access-control-allow-methods"] == "GET, POST"
        assert told["access-control-allow-headers"] == "authorization, x-stainless-os"
        status, told = await answered(served, "POST", "/v1/completions", OURS, json=completion())
        assert (status, told["access-control-allow-origin"]) == (401, OURS)  # so that the page can read the refusal
        key = {"Authorization": "Bearer secret"}
        for body in (completion(), completion(stream=True)):
            status, told = await answered(served, "POST", "/v1/completions", OURS, json=body, headers=key)
            assert (status, told["access-control-allow-origin"]) == (200, OURS)
            assert "X-Request-Id" in told["access-control-expose-headers"]
        status, told = await answered(served, "OPTIONS", "/v1/completions", OTHERS, headers=ASKS)
        assert (status, "access-control-allow-origin" in told, told["vary"]) == (401, False, "Origin")
        for path in ("/config", "/incidents", "/metrics", "/health"):
            _, told = await answered(served, "GET", path, OURS, headers=key)
            assert "access-control-allow-origin" not in told

    tell_alone(story, cors_origins=(OURS,), api_key="secret")


def test_the_star_lets_every_page_ask_and_is_told_as_such() -> None:
    async def story(served: Served) -> None:
        status, told = await answered(served, "OPTIONS", "/v1/models", OTHERS, headers={**ASKS, **BAD_NAMES})
        assert (status, told["access-control-allow-origin"]) == (204, "*")
        assert "access-control-allow-headers" not in told, "what is no list of names is not repeated"
        assert "vary" not in told

    tell_alone(story, cors_origins=("*",))


BAD_NAMES = {"Access-Control-Request-Headers": "a, <b>"}


@pytest.mark.parametrize(
    "origin", ["chat.example", "https://chat.example/", "https://Chat.example", "null", "https://*.a"]
)
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(InvalidOption, match="give origins such as"):
        read_config({"cors_origins": origin}, {})
