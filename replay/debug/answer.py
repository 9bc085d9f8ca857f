"""What a command gives back: lines for people and the same as plain values; and the two ways in which it can fail."""

from typing import Any, NamedTuple

from replay.refusal import CannotCompare


class Answer(NamedTuple):
    """
    values   of plain types, for JSON
    """

    lines: tuple[str, ...]
    values: dict[str, Any]


class BadCommand(CannotCompare):
    """It cannot be understood or does not fit: reason and remedy."""


class NeverMet(CannotCompare):
    """The condition held nowhere on the way; the place is as before."""
