"""What goes to the same place in a shell: the `reprise` command for what is selected."""

import shlex
from typing import Any

from replay.viewer.errors import BadQuestion
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed


def command(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """kind: recording, request, step, block, sequence or compare; number: which."""
    kind = asked.one_of("kind", "recording", "recording", "request", "step", "block", "sequence", "compare")
    path = shlex.quote(str(viewed.shown_path))
    if kind == "compare":
        if viewed.beside_path is None:
            raise BadQuestion("no other recording was given: reprise view REC OTHER", "kind", 404)
        return {"command": f"reprise diff {path} {shlex.quote(str(viewed.beside_path))}"}
    if kind == "recording":
        return {"command": f"reprise show {path}"}
    number = asked.integer("number")
    if kind == "request":
        return {"command": f"reprise show {path} --request {number}"}
    sequence = number if kind == "sequence" else _sequence(viewed, kind, asked.integer("life", 1), number)
    return {"command": f"reprise show {path} --transcript --around {sequence}"}


def _sequence(viewed: Viewed, kind: str, life: int, number: int) -> int:
    table = {"step": "steps WHERE life = ? AND step = ?", "block": "block_events WHERE life = ? AND block = ?"}[kind]
    with viewed.database() as database:
        (found,) = database.execute(f"SELECT max(sequence) FROM {table}", (life, number)).fetchone()
    if found is None:
        raise BadQuestion(f"no {kind} {number} is in life {life}", "number", 404)
    return int(found)
