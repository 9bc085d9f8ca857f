"""Log lines of both processes: fields for journald, JSON for other machines, plain text where a person watches. Never
with contents.

structlog brings asyncio along, and rich where that is installed: 90 ms, an eighth of the engine's start, for a process
that logs nothing when all goes well. So loggers here are made at their first line. It must not know what is logged.
"""

import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, ClassVar, TextIO

from engine.journal import Journal, open_journal

_METHOD_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}  # the others are errors


class Logger:
    """structlog's logger of this name, with all its methods; made when the first of them is asked for.

    level_to_set_up   what the process said with `set_up_at_first_line`; "" where nothing is left to do
    least             the level below which lines are dropped, a number of the standard library's
    """

    level_to_set_up: ClassVar[str] = ""
    least: ClassVar[int] = logging.INFO

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        if Logger.level_to_set_up:
            set_up_logging(Logger.level_to_set_up)
        return getattr(structlog.get_logger(self._name), method)


def set_up_at_first_line(level: str) -> None:
    """`set_up_logging`, but only once there is something to log."""
    Logger.level_to_set_up = level


def set_level(level: str) -> None:
    """From now on lines below this level are dropped, also those of loggers that have written already."""
    Logger.least = logging.getLevelNamesMapping()[level.upper()]


def set_up_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """Configure structlog once, for the whole process. Without, its errors show local variables: what clients wrote."""
    import structlog

    Logger.level_to_set_up = ""
    set_level(level)
    last: list[structlog.types.Processor]
    factory: Any = structlog.WriteLoggerFactory(stream)
    journal = None if stream.isatty() else open_journal(stream, os.environ)
    if stream.isatty():
        last = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    elif journal is not None:
        last = [structlog.processors.format_exc_info, journal.fields_of]
        factory = _always(journal)
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            _drop_below_level,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),  # a class cannot change its level later
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


def _always(journal: Journal) -> Callable[..., Journal]:
    return lambda *_names: journal


def _drop_below_level(logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    import structlog

    if _METHOD_LEVELS.get(method, logging.ERROR) < Logger.least:
        raise structlog.DropEvent
    return line
