"""The audit line: whenever contents are read, who reads what is said on stderr, as JSON. It never holds contents."""

import getpass
import os
import sys
from pathlib import Path


def contents_read(path: Path, num_requests: int, num_unreadable: int) -> None:
    """
    num_unreadable   records whose key was erased or is not here
    """
    import structlog  # here, for most who read a recording read no contents

    logger = structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
    )
    logger.info(
        "contents read",
        audit="contents",
        recording=str(path.resolve()),
        user=_user(),
        uid=os.getuid(),
        pid=os.getpid(),
        num_requests=num_requests,
        num_unreadable=num_unreadable,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in the password database
        return ""
