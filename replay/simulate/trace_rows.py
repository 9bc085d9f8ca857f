"""One row of a trace, its fields by name, each checked: a wrong one is an error with file, place, field and value."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from replay.simulate.arrivals import NS_PER_S, UnusableTrace

MAX_TOKENS = 10_000_000  # of a prompt or an output
MAX_SECONDS = 100_000_000_000
MAX_IDS = 1_000_000
_MAX_ID = 1 << 64
_SHOWN_CHARACTERS = 40
_MAX_DIGITS = 60


class Row(NamedTuple):
    """
    place   "line 12" or "item 3"
    """

    path: Path
    place: str
    values: Mapping[str, Any]

    def tokens(self, *names: str, least: int = 0, default: int | None = None) -> int:
        """A count of tokens: the first of these fields that the row has."""
        name = self.first_of(names)
        if name is None:
            return default if default is not None else self.fail(names[0], "is missing")
        return self.whole(name, least, MAX_TOKENS)

    def whole(self, name: str, least: int, most: int) -> int:
        value = self._number(name)
        if value != int(value) or not least <= value <= most:
            self.fail(name, f"must be a whole number from {least} to {most}")
        return int(value)

    def at_ns(self, name: str, ns_per_unit: int) -> int:
        """A time, to the nanosecond."""
        value = self._number(name)
        if not 0 <= value * ns_per_unit <= MAX_SECONDS * NS_PER_S:
            self.fail(name, f"must be a time from 0 to {MAX_SECONDS} s")
        return round(value * ns_per_unit)

    def positive(self, name: str, most: float) -> float:
        value = self._number(name)
        if not 0 < value <= most:
            self.fail(name, f"must be above 0, and {most:g} at most")
        return float(value)

    def text(self, name: str) -> str:
        value = self.values.get(name, "")
        return value if isinstance(value, str) else self.fail(name, "must be text")

    def ids(self, name: str) -> tuple[int, ...]:
        values = self.values.get(name, [])
        if not isinstance(values, list) or len(values) > MAX_IDS:
            self.fail(name, f"must be a list of at most {MAX_IDS} ids")
        if not all(type(value) is int and 0 <= value < _MAX_ID for value in values):
            self.fail(name, "must hold whole numbers from 0 on")
        return tuple(values)

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def first_of(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self.has(name)), None)

    def fail(self, name: str, problem: str) -> NoReturn:
        found = repr(self.values[name])[:_SHOWN_CHARACTERS] if name in self.values else "missing"
        raise UnusableTrace(f"{self.path}, {self.place}: {name} is {found}: it {problem}")

    def _number(self, name: str) -> int | float:
        value = self.values.get(name)
        if isinstance(value, str):
            try:
                value = float(value) if len(value) <= _MAX_DIGITS else math.nan
            except ValueError:
                value = math.nan
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fail(name, "must be a number")
        return value
