"""Every answer with its times, a JSON object a line, for whoever wants other figures than ours."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from daemon.bench.client import Answer


class AnswerFile:
    """Appends the answers of drive after drive; with a path of None it keeps nothing.

    A line has the fields of `client.Answer`, `side` ("A" or "B") and `drive` (a round's number, or a drive of drift).
    """

    def __init__(self, path: str | None) -> None:
        """An earlier file of this name is replaced. Raises OSError."""
        self._path = Path(path) if path else None
        if self._path:
            self._path.write_text("", "utf-8")

    def keep(self, side: str, drive: str, answers: Sequence[Answer]) -> None:
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            for answer in answers:
                usage = answer.usage._asdict() if answer.usage else None
                file.write(json.dumps({"side": side, "drive": drive, **asdict(answer), "usage": usage}) + "\n")
