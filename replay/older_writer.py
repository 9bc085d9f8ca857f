"""Decisions as the recording's writer knew them: fields that came later hold their default, as they do when read back.

A recorded decision lacks the fields that its writer did not know, and reading gives them their defaults; what the core
decides now has them filled in. To compare both, the later ones are put back. It must not know the core.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.core.vocabulary import KINDS

Decided = tuple[Any, ...]


def as_written(schema: dict[int, list[Any]]) -> Callable[[Sequence[Any]], Decided]:
    """The function that makes decisions comparable with those of a writer with this `schema` (the header's)."""
    later: dict[type[Any], dict[str, Any]] = {}
    for kind, record_type in KINDS.items():
        known = schema.get(kind, [record_type.__name__, record_type._fields])[1]
        added = [name for name in record_type._fields if name not in known]
        if added:
            later[record_type] = {name: record_type._field_defaults[name] for name in added}

    def write(decisions: Sequence[Any]) -> Decided:
        if not later:
            return tuple(decisions)
        return tuple([decision._replace(**later.get(type(decision), {})) for decision in decisions])

    return write
