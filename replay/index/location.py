"""Where a recording's index lies: in the user's cache folder, under a name made of what the recording is.

The same files at another place, or a copy that was cut or repaired, have an index of their own. It opens nothing.
"""

import hashlib
import os
from pathlib import Path

from engine.text.file_digests import cache_folder
from recorder.reader import Recording
from replay.index.schema import VERSION


def index_path(recording: Recording, folder: Path | None = None) -> Path:
    """`folder` instead of `index` in the cache folder ($REPRISE_CACHE, else $XDG_CACHE_HOME/reprise)."""
    parts = [os.fsencode(recording.path.resolve()), recording.header.salt]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    return (folder or cache_folder() / "index") / f"{key}-v{VERSION}.sqlite"


def lives_key(recording: Recording) -> str:
    """Which lives it has: while those that are indexed are the first of them, it has only grown."""
    return ",".join(
        f"{section.header.created_wall_ns}:{section.header.created_now_ns}:{section.header.first_sequence}"
        for section in recording.sections
    )


def files_key(recording: Recording) -> str:
    """As long as it is the same, nothing has been written."""
    return ",".join(f"{segment.path.name}:{segment.num_bytes}" for segment in recording.segments)
