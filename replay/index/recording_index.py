"""`RecordingIndex`: opens a recording's index, builds it where there is none, and takes in what came since.

Readers take a connection of their own with `connect`; one process at a time writes. It must not know what is asked.
"""

import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from engine.core.errors import EngineError
from engine.core.vocabulary import CoreKeyframe, RecordingClosed
from replay.index.extent import Extent
from replay.index.indexer import Indexer, life_values
from replay.index.location import files_key, index_path, lives_key
from replay.index.resuming import NoLongerTheSame, Resume
from replay.index.schema import LATE_INDEXES, OPEN_INDEXES, TABLES
from replay.index.sink import Sink
from replay.lives import Run
from replay.progress import Progress

FIRST_COMMIT, ENTRIES_PER_COMMIT = 500, 20_000  # from one to the other by doubling: what is there is seen soon
CACHE_KIB = 64 * 1024
Tell = Callable[[int, float], None]
_TABLES = (
    *("meta", "lives", "requests", "steps", "slices", "decisions", "preemptions", "marks", "block_events"),
    *("keyframes", "reasons"),
)


class IndexUnwritable(EngineError):
    """The index can be kept nowhere: where, why, and what to do."""


class RecordingIndex:
    """
    path     of the sqlite file
    run      the recording as it was at the last `update`
    """

    def __init__(self, recording: Path, folder: Path | None = None, *, verb: str = "index") -> None:
        """Opens without reading entries; `update` brings it up to date.

        folder   where it is kept, instead of the user's cache folder
        verb     that the progress line bears
        Raises RecordingError, IndexUnwritable.
        """
        self._recording = recording
        self._verb = verb
        self.run = Run.open(recording)
        self.path = index_path(self.run.recording, folder)
        self._sink = Sink()
        self._indexer: Indexer | None = None  # from the second update on
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600)
        except OSError as error:
            raise IndexUnwritable(
                f"the index {self.path} cannot be written: {error.strerror}; set XDG_CACHE_HOME to a folder that can"
            ) from error

    def connect(self) -> sqlite3.Connection:
        """Read-only; for one thread. Rows are `sqlite3.Row`."""
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=30)
        connection.row_factory = sqlite3.Row
        return connection

    def update(self, tell: Tell | None = None) -> int:
        """Index what is not indexed yet; returns the number of entries read for that. Nothing new costs some ms.

        tell   called as parts of it can be read by others, with the entries read so far and the share of all
        """
        with self._writing() as database:
            self.run = Run.open(self._recording)
            try:
                return self._update(database, tell)
            except (NoLongerTheSame, ValueError):  # ValueError: a meta value that is none of ours
                self._clear(database)
                return self._update(database, tell)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One process at a time; a file that is no database any more is begun anew."""
        with self.path.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                database = self._open()
            except sqlite3.DatabaseError:
                for path in self.path.parent.glob(f"{self.path.name}*"):
                    path.unlink()
                self._indexer = None
                database = self._open()
            with closing(database):
                yield database

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")  # it can be built again
        database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        database.executescript(TABLES + OPEN_INDEXES)
        return database

    def _clear(self, database: sqlite3.Connection) -> None:
        self._indexer = None
        if database.in_transaction:
            database.execute("ROLLBACK")
        database.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            database.execute(f"DELETE FROM {table}")
        database.execute("COMMIT")

    def _update(self, database: sqlite3.Connection, tell: Tell | None) -> int:
        meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
        recording = self.run.recording
        files, lives = files_key(recording), lives_key(recording)
        if meta.get("files") == files:
            return 0
        if not f"{lives},".startswith(meta.get("lives", "") + "," * ("lives" in meta)):
            raise NoLongerTheSame
        resume = Resume.from_json(meta["resume"]) if "resume" in meta else Resume()
        if self._indexer is not None and not self._indexer.stands_at(resume):
            self._indexer = None  # another process has gone on
        return self._read(database, resume, {"files": files, "lives": lives}, tell)

    def _read(self, database: sqlite3.Connection, resume: Resume, meta: dict[str, str], tell: Tell | None) -> int:
        is_new = self._indexer is None
        indexer, sink = self._indexer or Indexer(self._sink), self._sink
        self._indexer = None  # until all went well
        sink.discard()
        num_read, next_commit = 0, FIRST_COMMIT
        extent = Extent(self.run) if tell is not None and is_new else None
        self._begin(database)
        with Progress(self._verb, "entries") as progress:
            for _ in self._entries(indexer, resume, is_new, database):
                num_read += 1
                if num_read % 512 == 0:
                    progress.at(num_read)
                if num_read >= next_commit and not sink.is_shut:
                    next_commit = num_read + min(next_commit, ENTRIES_PER_COMMIT)
                    indexer.tell_open()
                    self._commit(database, indexer, resume, {"lives": meta["lives"]})
                    if tell is not None and extent is not None:
                        tell(num_read, extent.fraction(indexer.moment.life, indexer.moment.sequence))
                    self._begin(database)
        sink.is_shut = False
        indexer.tell_open()
        self._commit(database, indexer, resume, meta)
        database.executescript(LATE_INDEXES)
        self._indexer = indexer
        return num_read

    @staticmethod
    def _begin(database: sqlite3.Connection) -> None:
        """A transaction in which rows of what is under way make room: they are told again at its end."""
        database.execute("BEGIN IMMEDIATE")
        database.execute("DELETE FROM slices WHERE is_open")
        database.execute("DELETE FROM block_events WHERE is_open")

    def _entries(self, indexer: Indexer, resume: Resume, is_new: bool, database: sqlite3.Connection) -> Iterator[None]:
        """Has the indexer read them, one after the other. Raises NoLongerTheSame."""
        first_life = resume.from_life if is_new else max(1, resume.life)
        for number, life in enumerate(self.run.lives, 1):
            if number < first_life:
                continue
            goes_on = number == first_life and resume.life > 0
            self._sink.is_shut = number <= resume.life
            if is_new or number > resume.life:
                self._tell_end(database, indexer)
                database.execute(f"INSERT OR REPLACE INTO lives VALUES ({'?, ' * 11}?)", life_values(number, life))
                indexer.begin_life(number, life, resume if goes_on else None)
            since = max(0, resume.from_sequence if is_new else resume.sequence) if goes_on else 0
            was_seen = number != resume.life or resume.sequence < 0
            for entry in life.entries(since, keyframes=True):
                is_known = resume.covers(number, entry.sequence)
                is_last = (number, entry.sequence) == (resume.life, resume.sequence)
                self._sink.is_shut = is_known
                if is_last and not isinstance(entry.event, CoreKeyframe | RecordingClosed):
                    was_seen = entry.now_ns == resume.now_ns
                if is_new or not is_known:
                    indexer.read(entry)
                    yield
            if not was_seen:
                raise NoLongerTheSame

    def _commit(self, database: sqlite3.Connection, indexer: Indexer, before: Resume, meta: dict[str, str]) -> None:
        """While entries are read again that are indexed, it goes on where it was to."""
        self._sink.write(database)
        self._tell_end(database, indexer)
        now = indexer.resume()
        resume = before if before.covers(now.life, now.sequence) else now
        values = {**meta, "resume": resume.to_json()}
        database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
        database.execute("COMMIT")

    def _tell_end(self, database: sqlite3.Connection, indexer: Indexer) -> None:
        moment = indexer.moment
        if moment.sequence >= 0:
            database.execute(
                "UPDATE lives SET last_sequence = ?, last_ns = ? WHERE life = ?",
                (moment.sequence, moment.now_ns, moment.life),
            )
