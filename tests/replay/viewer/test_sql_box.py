"""The SQL box answers questions and does nothing else, whatever it is told."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from replay.viewer.answers.asking import questions, sql, tables
from replay.viewer.errors import BadQuestion
from replay.viewer.sql_box import MAX_CELL_CHARS, MAX_ROWS, ask
from replay.viewer.viewed import Viewed

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
ATTACKS = {
    "write": "INSERT INTO steps (life, step) VALUES (1, 1)",
    "update": "UPDATE requests SET tenant = 'x'",
    "delete": "DELETE FROM steps",
    "drop": "DROP TABLE steps",
    "create": "CREATE TABLE evil (a)",
    "temporary": "CREATE TEMP TABLE evil AS SELECT * FROM steps",
    "view": "CREATE TEMP VIEW evil AS SELECT 1",
    "trigger": "CREATE TEMP TRIGGER evil AFTER INSERT ON steps BEGIN SELECT 1; END",
    "attach": "ATTACH DATABASE '/etc/passwd' AS evil",
    "attach memory": "ATTACH ':memory:' AS evil",
    "detach": "DETACH main",
    "pragma": "PRAGMA writable_schema = 1",
    "pragma read": "PRAGMA database_list",
    "pragma function": "SELECT * FROM pragma_database_list",
    "extension": "SELECT load_extension('/tmp/evil.so')",
    "file": "SELECT readfile('/etc/passwd')",
    "file written": "SELECT writefile('/tmp/evil', 'x')",
    "tokenizer": "SELECT fts3_tokenizer('simple')",
    "blob": "SELECT randomblob(1000000000)",
    "zeroes": "SELECT zeroblob(1000000000)",
    "vacuum": "VACUUM INTO '/tmp/evil.sqlite'",
    "reindex": "REINDEX",
    "analyze": "ANALYZE",
    "transaction": "BEGIN EXCLUSIVE",
    "savepoint": "SAVEPOINT evil",
    "two": "SELECT 1; DELETE FROM steps",
    "virtual table": "CREATE VIRTUAL TABLE evil USING fts5(a)",
    "explain write": "EXPLAIN DELETE FROM steps",
    "with write": "WITH a AS (SELECT 1) DELETE FROM steps",
    "returning": "DELETE FROM steps RETURNING step",
    "nothing": "   ",
    "comment": "-- nothing",
    "no SQL": "<script>alert(1)</script>",
    "nul": "SELECT 1\0; DELETE FROM steps",
    "deep": "SELECT " + "(" * 3_000 + "1" + ")" * 3_000,
}


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_what_is_no_plain_question_is_refused_in_words(viewed: Viewed, attack: str) -> None:
    before = viewed.index.path.read_bytes()
    with pytest.raises(BadQuestion) as caught:
        ask(viewed.index.path, ATTACKS[attack], SystemClock())
    assert caught.value.field == "sql"
    assert str(caught.value)
    assert viewed.index.path.read_bytes() == before


@pytest.mark.parametrize(
    "endless",
    [
        FOREVER,
        "SELECT count(*) FROM steps a, steps b, steps c, steps d, steps e",
        FOREVER.replace("count(*) FROM n", "i FROM n ORDER BY i DESC"),
    ],
)
def test_what_takes_too_long_is_ended(viewed: Viewed, endless: str) -> None:
    with pytest.raises(BadQuestion, match=r"longer than 0\.05 s"):
        ask(viewed.index.path, endless, SystemClock(), time_limit_ns=50_000_000)


def test_rows_are_cut_at_the_limit_and_that_is_said(viewed: Viewed) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    answer = ask(viewed.index.path, endless, SystemClock(), 7)
    assert (answer.columns, answer.rows, answer.is_cut) == (["i"], [[number] for number in range(1, 8)], True)
    assert not ask(viewed.index.path, "SELECT 1", SystemClock(), 1).is_cut
    for limit in (0, MAX_ROWS + 1):
        with pytest.raises(BadQuestion, match="limit"):
            ask(viewed.index.path, "SELECT 1", SystemClock(), limit)


def test_cells_are_what_a_browser_can_read_without_loss(viewed: Viewed) -> None:
    answer = ask(
        viewed.index.path,
        "SELECT 9007199254740993 AS big, x'00ff' AS bytes, 1e308 * 10 AS endless, NULL AS empty, 1.5 AS number",
        SystemClock(),
    )
    assert answer.rows == [["9007199254740993", "00ff", "inf", None, 1.5]]
    (long,) = ask(viewed.index.path, "SELECT replace(hex('aaaaaaaaaa'), '6', printf('%2000d', 1))", SystemClock()).rows[
        0
    ]
    assert len(long) < MAX_CELL_CHARS + 50
    assert long.endswith("characters)")


def test_the_box_takes_the_bodys_sql_and_limit_and_nothing_else(viewed: Viewed) -> None:
    assert sql(viewed, {"sql": "SELECT count(*) FROM lives", "limit": 5})["rows"] == [[1]]
    bodies: list[Any] = [
        None,
        [],
        {"sql": 3},
        {},
        {"sql": "SELECT 1", "limit": "many"},
        {"sql": "SELECT 1", "limit": True},
    ]
    for body in bodies:
        with pytest.raises(BadQuestion):
            sql(viewed, body)


def test_hostile_names_are_data(tmp_path: Path) -> None:
    path = tmp_path / "hostile.sqlite"
    names = ["<script>alert(1)</script>", "\u202eevil", "a'; DROP TABLE requests; --", "\x00\x1b[31m", "x" * 100_000]
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE requests (request_id TEXT)")
        database.executemany("INSERT INTO requests VALUES (?)", [(name,) for name in names])
        database.execute("INSERT INTO requests VALUES (CAST(x'ff00fe' AS TEXT))")
    rows = [row[0] for row in ask(path, "SELECT request_id FROM requests", SystemClock()).rows]
    assert rows[:4] == names[:4]
    assert rows[4].startswith("xxx")
    assert "\ufffd" in rows[5]


def test_the_saved_questions_and_the_tables_are_told(viewed: Viewed) -> None:
    assert len(questions()["questions"]) >= 12
    assert "CREATE TABLE" in tables()["sql"]
    assert "requests" in tables()["text"]
