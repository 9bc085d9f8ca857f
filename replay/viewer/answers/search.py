"""Finding: requests by number, id or tenant, steps by number, and reasons that something was decided for."""

from typing import Any

from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed

MAX_FOUND = 50
_REQUESTS = """
SELECT r.life, number, request_id, tenant, reason, arrival_ns - opened_ns AS arrival_ns
FROM requests r JOIN lives l ON l.life = r.life
WHERE number = :number OR instr(request_id, :text) OR instr(tenant, :text)
ORDER BY number = :number DESC, request_id = :text DESC, r.life, number LIMIT :limit
"""
_STEPS = """
SELECT s.life, step, planned_ns - opened_ns AS now_ns FROM steps s JOIN lives l ON l.life = s.life
WHERE step = :number ORDER BY s.life LIMIT :limit
"""
_REASONS = """
SELECT d.life, d.kind, d.reason, count(*) AS count, min(d.now_ns) - opened_ns AS first_ns, min(d.step) AS first_step
FROM decisions d JOIN lives l ON l.life = d.life
WHERE d.reason <> '' AND (instr(d.reason, :text) OR instr(lower(d.kind), lower(:text)))
GROUP BY d.life, d.kind, d.reason ORDER BY count DESC LIMIT :limit
"""


def search(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    text = asked.text("q").strip()
    if not text:
        return {"requests": [], "steps": [], "reasons": [], "is_cut": False}
    number = int(text.removeprefix("#")) if text.removeprefix("#").isdecimal() and len(text) < 19 else -1
    values = {"text": text, "number": number, "limit": MAX_FOUND + 1}
    with viewed.database() as database:
        found = {
            name: [dict(row) for row in database.execute(sql, values)]
            for name, sql in (("requests", _REQUESTS), ("steps", _STEPS), ("reasons", _REASONS))
        }
    is_cut = any(len(rows) > MAX_FOUND for rows in found.values())
    return {**{name: rows[:MAX_FOUND] for name, rows in found.items()}, "is_cut": is_cut}
