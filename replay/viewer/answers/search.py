"""Finding: requests by number, id or tenant, steps by number, and reasons that something was decided for."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed

MAX_FOUND = 50
_STEPS = """
SELECT s.life, step, planned_ns - opened_ns AS now_ns FROM lives l CROSS JOIN steps s ON s.life = l.life
WHERE step = :number ORDER BY s.life LIMIT :limit
"""
_REASONS = """
SELECT r.life, kind, reason, count, first_ns - opened_ns AS first_ns, first_step
FROM reasons r JOIN lives l ON l.life = r.life
WHERE instr(reason, :text) OR instr(lower(kind), lower(:text)) ORDER BY count DESC, r.life, kind, reason LIMIT :limit
"""


def search(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    text = asked.text("q").strip()
    if not text:
        return {"requests": [], "steps": [], "reasons": [], "is_cut": False}
    number = int(text.removeprefix("#")) if text.removeprefix("#").isdecimal() and len(text) < 19 else -1
    values = {"text": text, "number": number, "limit": MAX_FOUND + 1}
    found = {"requests": list(_requests(viewed, text, number))}
    with viewed.database() as database:
        for name, sql in (("steps", _STEPS), ("reasons", _REASONS)):
            found[name] = [dict(row) for row in database.execute(sql, values)]
    is_cut = any(len(rows) > MAX_FOUND for rows in found.values())
    return {**{name: rows[:MAX_FOUND] for name, rows in found.items()}, "is_cut": is_cut}


def _requests(viewed: Viewed, text: str, number: int) -> Iterator[dict[str, Any]]:
    """That of the number first, then those of that very id, then those that have the text in id or tenant."""
    with viewed.every_life() as opened_ns:
        columns = viewed.requests
        of_tenant = np.isin(columns.of("tenant"), [code for code, it in enumerate(columns.tenants.texts) if text in it])
        by_number = np.flatnonzero(columns.of("number") == number)
        having = columns.ids.having(text)
        very = [place for place in having if columns.ids[place] == text]
        found = dict.fromkeys(
            [*by_number, *very, *having[: MAX_FOUND + 1], *np.flatnonzero(of_tenant)[: MAX_FOUND + 1]]
        )
        for place in list(found)[: MAX_FOUND + 1]:
            life = int(columns.of("life")[place])
            yield {
                "life": life,
                "number": int(columns.of("number")[place]),
                "request_id": columns.ids[place],
                "tenant": columns.tenants.texts[columns.of("tenant")[place]],
                "reason": columns.reasons.texts[columns.of("reason")[place]] or None,
                "arrival_ns": int(columns.of("arrival_ns")[place]) - opened_ns[life],
            }
