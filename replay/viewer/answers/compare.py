"""Two recordings side by side, as `reprise diff --json` has them, first difference first."""

import json
from pathlib import Path
from typing import Any

from replay.diff.diff import diff
from replay.diff.report import as_json
from replay.viewer.errors import BadQuestion
from replay.viewer.viewed import Viewed


def compare(viewed: Viewed, other: Path | None) -> dict[str, Any]:
    """`other` is named on the command line only: a page reads no files of its choice. Raises CannotCompare."""
    if other is None:
        raise BadQuestion("no other recording was given: reprise view REC OTHER", "other", 404)
    values: dict[str, Any] = json.loads(as_json(diff(viewed.path, other)))
    return values
