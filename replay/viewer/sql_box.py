"""The SQL box: any SELECT over a recording's index, and nothing else.

Three locks, one behind the other: the file is opened read-only, an authorizer allows SELECT, READ, recursion and
functions that only compute, and a progress handler ends what takes longer than its time. It must not know HTTP.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from engine.clock import Clock
from replay.viewer.errors import BadQuestion

TIME_LIMIT_NS = 2_000_000_000
MAX_ROWS = 10_000
MAX_SQL_CHARS = 20_000
MAX_CELL_CHARS = 10_000
MAX_RESULT_CHARS = 8_000_000
MAX_PATTERN_CHARS = 200  # of LIKE and GLOB: matching is one step of sqlite's machine, which nothing interrupts
_STEPS_BETWEEN_CHECKS = 10_000  # of sqlite's virtual machine: about a tenth of a millisecond

_NAMES = """
abs avg ceil ceiling char coalesce concat concat_ws count cume_dist date datetime dense_rank exp first_value floor
format glob group_concat hex ifnull iif instr json json_array json_array_length json_each json_extract json_group_array
json_group_object json_object json_type json_valid julianday lag last_value lead length like ln log log10 log2 lower
ltrim max min mod nth_value ntile nullif octet_length percent_rank pow power printf rank replace round row_number rtrim
sign sqrt strftime string_agg substr substring sum time total trim trunc typeof unicode unixepoch upper -> ->>
"""
FUNCTIONS = frozenset(_NAMES.split())


class Answer(NamedTuple):
    """
    is_cut   there are more rows than `limit`, or than may be sent
    """

    columns: list[str]
    rows: list[list[Any]]
    is_cut: bool
    elapsed_ms: float


def ask(path: Path, sql: str, clock: Clock, limit: int = MAX_ROWS, time_limit_ns: int = TIME_LIMIT_NS) -> Answer:
    """Raises BadQuestion with sqlite's own words and what to do."""
    if not sql.strip() or len(sql) > MAX_SQL_CHARS:
        raise BadQuestion(f"give one SELECT of 1 to {MAX_SQL_CHARS:,} characters, not {len(sql):,}", "sql")
    if not 1 <= limit <= MAX_ROWS:
        raise BadQuestion(f"limit is {limit}: give 1 to {MAX_ROWS:,}", "limit")
    began_ns = clock.now_ns()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as database:
        database.text_factory = _text
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RESULT_CHARS)
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_CHARS)
        database.set_authorizer(_authorize)
        database.set_progress_handler(lambda: clock.now_ns() - began_ns > time_limit_ns, _STEPS_BETWEEN_CHECKS)
        try:
            cursor = database.execute(sql)
            if cursor.description is None:
                raise BadQuestion("that is no question: give one SELECT", "sql")
            columns = [column[0] for column in cursor.description]
            rows, is_cut = _fetch(cursor, limit)
        except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
            raise _refusal(error, time_limit_ns) from error
    return Answer(columns, rows, is_cut, (clock.now_ns() - began_ns) / 1e6)


def _fetch(cursor: sqlite3.Cursor, limit: int) -> tuple[list[list[Any]], bool]:
    rows: list[list[Any]] = []
    num_chars = 0
    for row in cursor:
        if len(rows) == limit or num_chars > MAX_RESULT_CHARS:
            return rows, True
        rows.append([_cell(value) for value in row])
        num_chars += sum(len(value) if isinstance(value, str) else 8 for value in rows[-1])
    return rows, False


def _cell(value: Any) -> Any:
    """As JSON that a browser reads without loss: large integers as text, bytes in hexadecimal."""
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, int) and abs(value) > 2**53:
        return str(value)
    if isinstance(value, str) and len(value) > MAX_CELL_CHARS:
        return f"{value[:MAX_CELL_CHARS]}… ({len(value):,} characters)"
    if isinstance(value, float) and value - value != 0:  # JSON has neither infinities nor NaN
        return str(value)
    return value


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second is not None and second.lower() in FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _refusal(error: BaseException, time_limit_ns: int) -> BadQuestion:
    words = str(error)
    if words == "interrupted":
        return BadQuestion(f"it took longer than {time_limit_ns / 1e9:g} s: ask for fewer rows or steps", "sql")
    if "not authorized" in words or "prohibited" in words:
        return BadQuestion(f"{words}: only SELECT over the index is allowed, with functions that only compute", "sql")
    if "readonly" in words:
        return BadQuestion(f"{words}: the index is only read here", "sql")
    return BadQuestion(words or type(error).__name__, "sql")
