"""The first place where two sequences part, where equality at a place means equality at all before it."""

from collections.abc import Sequence


def first_unequal(left: Sequence[object], right: Sequence[object]) -> int | None:
    """Index of the first unequal item, found by halving; the shorter one's length where only that differs; else None.

    left, right   running digests: once they differ they never agree again
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high) // 2
        if left[middle] == right[middle]:
            low = middle + 1
        else:
            high = middle
    if low < min(len(left), len(right)) or len(left) != len(right):
        return low
    return None
