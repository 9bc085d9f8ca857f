"""The SQL box as the page uses it: questions of one's own, those that are saved, and the tables."""

from typing import Any

from replay.index import schema
from replay.viewer.errors import BadQuestion
from replay.viewer.questions import QUESTIONS
from replay.viewer.sql_box import MAX_ROWS, ask
from replay.viewer.viewed import Viewed


def sql(viewed: Viewed, body: Any) -> dict[str, Any]:
    """`body`: {"sql": text, "limit": rows}."""
    if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
        raise BadQuestion('give a JSON object with "sql", a text', "sql")
    limit = body.get("limit", 1_000)
    if type(limit) is not int:
        raise BadQuestion(f"limit is {limit!r}: give 1 to {MAX_ROWS:,}", "limit")
    return ask(viewed.index.path, body["sql"], viewed.clock, limit)._asdict()


def questions() -> dict[str, Any]:
    return {"questions": [question._replace(sql=question.sql.strip())._asdict() for question in QUESTIONS]}


def tables() -> dict[str, Any]:
    """What the SQL box may be asked about."""
    return {"text": schema.__doc__, "sql": schema.TABLES}
