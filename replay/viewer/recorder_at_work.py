"""Whether a process records into a folder at this moment: it holds the claim of `recorder/folder_claim.py`."""

import fcntl
import os
from pathlib import Path


def is_recorded_into(recording: Path) -> bool:
    """Of a run's folder; a single segment counts as what it is now."""
    if not recording.is_dir():
        return False
    try:
        descriptor = os.open(recording, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who ask do not see each other
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
