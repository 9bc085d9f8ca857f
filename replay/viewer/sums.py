"""What a life's slices sum up to over any range, from running totals: no slice is looked at when somebody asks.

Of a range the slices that reach into it are those that begin before its end, less those that end before its beginning;
what they take of it is the difference of two running totals. Integers of 64 bits: they wrap, and so do not round.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replay.viewer.framing import Array


class _Ordered(NamedTuple):
    """Ascending values, and of each count the sum of the first so many (of these, and of what comes with them)."""

    values: Array
    sums: Array
    sums_beside: Array

    @classmethod
    def of(cls, values: Array, beside: Array) -> "_Ordered":
        order = np.argsort(values, kind="stable")
        values = values[order]
        sums = np.concatenate(([0], np.cumsum(values.astype(np.int64))))
        return cls(values, sums, np.concatenate(([0], np.cumsum(beside[order].astype(np.int64)))))

    def num_below(self, value: float, *, or_equal: bool = False) -> int:
        return int(np.searchsorted(self.values, value, "right" if or_equal else "left"))

    def passed(self, value: int) -> int:
        """The sum of value − each, over those below it; modulo 2⁶⁴."""
        num = self.num_below(value)
        return num * value - int(self.sums[num])


class _Kind(NamedTuple):
    begins: _Ordered
    ends: _Ordered


class Sums:
    """
    stretches   axis → begin and end of every slice, whole numbers
    """

    def __init__(self, names: tuple[str, ...], kinds: Array, tokens: Array, stretches: "Stretches") -> None:
        self._names, self._numbers, self._tokens, self._stretches = names, kinds, tokens, stretches
        self._kinds: dict[str, list[_Kind]] = {}

    def over(self, axis: str, begin: float, end: float) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
        """Kind → how many reach into the range and how much of it they take; tokens of those that end in it."""
        if axis not in self._kinds:
            self._kinds[axis] = self._ordered(axis)
        by_kind, tokens = {}, {}
        for name, kind in zip(self._names, self._kinds[axis], strict=True):
            count = kind.begins.num_below(end, or_equal=True) - kind.ends.num_below(begin)
            by_kind[name] = {"count": count, "busy": float(_busy(kind, end) - _busy(kind, begin))}
            first, last = kind.ends.num_below(begin), kind.ends.num_below(end, or_equal=True)
            tokens[name] = int(kind.ends.sums_beside[last] - kind.ends.sums_beside[first])
        return by_kind, {name: tokens[name] for name in ("prefill", "decode")}

    def _ordered(self, axis: str) -> list[_Kind]:
        begins, ends = self._stretches(axis)
        chosen = [np.flatnonzero(self._numbers == number) for number in range(len(self._names))]
        nothing = np.zeros(len(begins), np.int64)
        return [_Kind(_Ordered.of(begins[of], nothing[of]), _Ordered.of(ends[of], self._tokens[of])) for of in chosen]


Stretches = Callable[[str], tuple[Array, Array]]


def _busy(kind: _Kind, value: float) -> float:
    """What lies before it, of all slices together."""
    whole = int(np.floor(value))
    before = _wrapped(kind.begins.passed(whole) - kind.ends.passed(whole))
    at_work = kind.begins.num_below(whole, or_equal=True) - kind.ends.num_below(whole, or_equal=True)
    return before + at_work * (value - whole)


def _wrapped(value: int) -> int:
    """As a signed number of 64 bits, which it is when nothing rounds."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
