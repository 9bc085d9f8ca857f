"""The daemon's log: its own lines as `engine/log.py` writes them, and the libraries' warnings on the same stream."""

import logging
import sys
from typing import TextIO

from engine import log


def set_up_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """Once, for the whole process."""
    log.set_up_logging(level, stream)
    # it logs a traceback for whatever is no HTTP, and has answered that already; our handlers' errors are logged by us
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    logging.basicConfig(
        level=logging.WARNING, stream=stream, format='{"level": "%(levelname)s", "event": "%(message)s"}'
    )
