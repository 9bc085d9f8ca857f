"""Log lines: JSON for machines, plain text where a person watches, always to stderr, never with contents."""

import logging
import sys
from typing import TextIO

import structlog


def set_up_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """Configure structlog once, for the whole process, and send the libraries' own warnings the same way."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor
    if stream.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.WARNING, stream=stream, format='{"level": "%(levelname)s", "event": "%(message)s"}'
    )
