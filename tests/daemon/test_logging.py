"""Log lines: JSON for machines, and never what clients wrote, not even with an error."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from daemon.logging import set_up_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    level = logging.getLogger("aiohttp.server").level
    yield
    structlog.reset_defaults()
    logging.getLogger("aiohttp.server").setLevel(level)


def fail_with(prompt: str) -> None:
    try:
        raise ArithmeticError(f"{len(prompt)} characters")
    except ArithmeticError:
        structlog.get_logger().exception("failed", request_id="r")


def test_a_line_is_json_where_no_person_watches() -> None:
    stream = io.StringIO()
    set_up_logging("info", stream)
    structlog.get_logger().debug("hidden")
    structlog.get_logger().info("shown", num_tokens=3)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line) | {"timestamp": ""} == {"event": "shown", "level": "info", "num_tokens": 3, "timestamp": ""}


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_an_errors_traceback_shows_no_local_variable(stream: io.StringIO) -> None:
    set_up_logging("info", stream)
    fail_with("a secret prompt")
    assert "ArithmeticError: 15 characters" in stream.getvalue()
    assert "secret" not in stream.getvalue()
