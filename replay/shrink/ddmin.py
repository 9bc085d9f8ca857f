"""Delta debugging: the smallest part of a list that still fails, so that it fails no more without any one of its items.

It knows neither requests nor predicates; candidates are tried in order, several at once where the caller can.

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002, section 3.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
FirstFailing = Callable[[list[list[T]]], int | None]


def ddmin(items: Sequence[T], first_failing: FirstFailing[T]) -> list[T]:
    """`items` fail as a whole. Returns a 1-minimal part of them, if failing depends on nothing but the items.

    first_failing   the index of the first candidate that fails; None when none does
    """
    left, granularity = list(items), 2
    while len(left) >= 2:
        parts = _parts(left, granularity)
        candidates = parts if granularity == 2 else [*parts, *_complements(parts)]
        index = first_failing(candidates)
        if index is not None:
            left = candidates[index]
            granularity = 2 if index < len(parts) else max(granularity - 1, 2)
        elif granularity < len(left):
            granularity = min(2 * granularity, len(left))
        else:
            break
    return left


def without_one(items: Sequence[T]) -> list[list[T]]:
    """Every list that lacks one item."""
    return [[*items[:index], *items[index + 1 :]] for index in range(len(items))]


def _parts(items: list[T], count: int) -> list[list[T]]:
    bounds = [len(items) * index // count for index in range(count + 1)]
    return [items[begin:end] for begin, end in pairwise(bounds)]


def _complements(parts: list[list[T]]) -> list[list[T]]:
    return [[item for other in parts if other is not part for item in other] for part in parts]
