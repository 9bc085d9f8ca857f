"""Why a request waited: each reason it was told, how long that held, what it lacked, and behind whom it stood."""

import sqlite3
from typing import Any

from replay.viewer.rows import name_of_request

MAX_WAITS = 2_000
_TOLD = """
SELECT kind, sequence, step, now_ns - :opened AS now_ns, reason, needed, free,
       CASE WHEN kind = 'RequestDeferred' AND other_request >= 0 THEN other_request END AS behind
FROM decisions WHERE life = :life AND request = :request
    AND kind IN ('RequestDeferred', 'RequestAdmitted', 'RequestFinished', 'RequestRejected')
ORDER BY sequence, at LIMIT :limit
"""


def waits(database: sqlite3.Connection, life: int, opened_ns: int, request: int) -> list[dict[str, Any]]:
    """In order; until_ns: when the next was told, or it was admitted, or ended; None while the reason holds.

    needed, free, behind   None where the reason is not one of blocks, or of another's turn
    """
    values = {"life": life, "opened": opened_ns, "request": request, "limit": MAX_WAITS + 1}
    told = [dict(row) for row in database.execute(_TOLD, values)]
    found = []
    for at, row in enumerate(told):
        if row.pop("kind") != "RequestDeferred":
            continue
        row["until_ns"] = told[at + 1]["now_ns"] if at + 1 < len(told) else None
        if not row["needed"]:
            row["needed"] = row["free"] = None
        row["behind_id"] = None if row["behind"] is None else name_of_request(database, row["behind"])
        found.append(row)
    return found
