"""Log lines: JSON for machines, plain text where a person watches, always to stderr, never with contents."""

import logging
import sys
from typing import TextIO

import structlog


def set_up_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """Configure structlog once, for the whole process, and send the libraries' own warnings the same way."""
    last: list[structlog.types.Processor]
    number = logging.getLevelNamesMapping()[level.upper()]
    if stream.isatty():
        # the default formatter shows local variables, and so what clients wrote
        last = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    # it logs a traceback for whatever is no HTTP, and has answered that already; our handlers' errors are logged by us
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    logging.basicConfig(
        level=logging.WARNING, stream=stream, format='{"level": "%(levelname)s", "event": "%(message)s"}'
    )
