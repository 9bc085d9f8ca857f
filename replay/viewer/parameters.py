"""The parameters of a question, read with their bounds; what is wrong with one is said under its name."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from replay.viewer.errors import BadQuestion

MAX_WIDTH = 8_192
MAX_ROWS = 4_096


class Range(NamedTuple):
    """
    axis         "time" (nanoseconds) or "step"
    begin, end   on that axis; begin < end
    width        pixels
    """

    axis: str
    begin: float
    end: float
    width: int


class Parameters:
    """Each reader raises BadQuestion."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str, default: str = "", max_chars: int = 1_000) -> str:
        value = self._values.get(name, default)
        if len(value) > max_chars:
            raise BadQuestion(f"{name} has {len(value):,} characters, at most {max_chars:,} are taken", name)
        return value

    def one_of(self, name: str, default: str, *allowed: str) -> str:
        value = self._values.get(name, default) or default
        if value not in allowed:
            raise BadQuestion(f"{name} is {value[:50]!r}: give {' or '.join(allowed)}", name)
        return value

    def integer(self, name: str, default: int | None = None, low: int = 0, high: int = 2**63 - 1) -> int:
        """Without a default it must be given."""
        given = self._values.get(name, "")
        if given == "" and default is not None:
            return default
        try:
            value = int(given)
        except ValueError:
            raise BadQuestion(f"{name} is {given[:50]!r}: give a whole number", name) from None
        if not low <= value <= high:
            raise BadQuestion(f"{name} is {value}: give {low} to {high}", name)
        return value

    def number(self, name: str, default: float) -> float:
        given = self._values.get(name, "")
        if given == "":
            return default
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadQuestion(f"{name} is {given[:50]!r}: give a number", name)
        return value

    def pair(self, name: str, default: tuple[int, int], high: int) -> tuple[int, int]:
        """`first,count`."""
        given = self._values.get(name, "")
        if given == "":
            return default
        first, _, count = given.partition(",")
        if not (first.isdecimal() and count.isdecimal()) or int(count) > high or int(first) > 2**40:
            raise BadQuestion(f"{name} is {given[:50]!r}: give first,count with at most {high} of them", name)
        return int(first), int(count)

    def names(self, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """Comma-separated; all of them where none is given."""
        given = tuple(item for item in self._values.get(name, "").split(",") if item)
        unknown = [item for item in given if item not in allowed]
        if unknown:
            raise BadQuestion(f"{name} has {unknown[0][:50]!r}: give some of {', '.join(allowed)}", name)
        return given or allowed

    def numbers(self, name: str, max_count: int) -> tuple[int, ...]:
        """Comma-separated whole numbers; none where none is given."""
        given = [item for item in self._values.get(name, "").split(",") if item]
        if len(given) > max_count or not all(item.isdecimal() and len(item) < 19 for item in given):
            raise BadQuestion(f"{name}: give at most {max_count} whole numbers with commas between", name)
        return tuple(int(item) for item in given)

    def range(self, whole: Mapping[str, tuple[float, float]]) -> Range:
        """`whole`: axis → all there is, which counts where from or to is not given."""
        axis = self.one_of("axis", "time", *whole)
        begin, end = whole[axis]
        begin, end = self.number("from", begin), self.number("to", end)
        if end <= begin:
            end = begin + 1
        return Range(axis, begin, end, self.integer("width", 1_024, 1, MAX_WIDTH))
