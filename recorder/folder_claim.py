"""One process at a time records into a folder."""

import fcntl
import os
from pathlib import Path

from recorder.errors import RecordingUnwritable


def claim_folder(directory: Path) -> int:
    """Make the folder (0700) or take it over from a process that is gone. Closing the descriptor gives up the claim.

    Raises RecordingUnwritable when it cannot be made, or another process holds it.
    """
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingUnwritable(f"cannot record in {directory}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise RecordingUnwritable(f"another process records in {directory}: give each run its own folder") from error
    return descriptor
