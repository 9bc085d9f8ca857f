"""Syncing, in a thread of its own: a disk that stalls in fsync delays neither appending nor what waits for it.

It knows files under way (`FramedFile`) and nothing of what is in them. What a file's sync failed with stays on the
file, for its writer to see; so does that somebody has removed it, which no write would tell.
"""

import contextlib
import errno
import threading
from queue import Empty, SimpleQueue

from recorder.frames import FramedFile, sync_directory


class DiskSync:
    """Writers tell it which files grew; at the interval after the first of these they are synced together.

    It sleeps while nothing is appended. Power loss loses at most the interval, and what the disk itself is late with.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1e3
        self._queue: SimpleQueue[FramedFile | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sync_until_closed, name="recorder-sync", daemon=True)
        self._thread.start()

    def note(self, file: FramedFile) -> None:
        """Writer thread: the file is new, or has grown. Never waits."""
        if not file.waits_for_sync:
            file.waits_for_sync = True
            self._queue.put(file)

    def retire(self, file: FramedFile) -> None:
        """Writer thread: nothing is appended to it any more; it is synced at once with the others, then closed."""
        file.is_retired = True
        self._queue.put(file)

    def close(self, timeout_s: float) -> bool:
        """Sync and close what is left; whether the disk was done in this time."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _sync_until_closed(self) -> None:
        is_closing = False
        while not is_closing:
            files = [self._queue.get()]
            self._closing.wait(self._interval_s)
            with contextlib.suppress(Empty):
                while True:
                    files.append(self._queue.get_nowait())
            is_closing = None in files
            for file in dict.fromkeys([file for file in files if file is not None]):
                self._sync(file)

    def _sync(self, file: FramedFile) -> None:
        if file.is_closed:
            return
        file.waits_for_sync = False  # before the sync: what is appended during it needs another
        try:
            if file.is_removed and not file.is_retired:
                raise FileNotFoundError(errno.ENOENT, "somebody has removed the file under way")
            if not file.is_named:
                sync_directory(file.path.parent)
                file.is_named = True
            file.sync()
        except OSError as error:
            file.sync_error = error
        if file.is_retired:
            file.close()
