"""Whether an answer depends on its company: one workload three times, in company, in company again, and one by one.

All three ask the very same greedily, so every difference is the server's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from daemon.bench.client import Answer
from daemon.bench.plan import Plan
from daemon.bench.rounds import Bench
from daemon.bench.statistics import Figures, figures_of
from daemon.bench.workloads import ClosedLoop


@dataclass(frozen=True, slots=True)
class Difference:
    """
    position   of the first token, or character, that differs; counts from 0
    unit       "token" where both answers have token ids, else "character"
    """

    index: int
    position: int
    unit: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of all answers of two drives.

    not_compared   indexes of requests that failed in one of them
    """

    name: str
    num_compared: int
    not_compared: tuple[int, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """
    figures       of the three drives, by name
    comparisons   with the first of them
    errors        what the requests that are not compared ended with
    """

    figures: dict[str, Figures]
    comparisons: tuple[Comparison, ...]
    errors: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        """All could be compared, and nothing differs."""
        return not any(comparison.differences or comparison.not_compared for comparison in self.comparisons)


def measure_drift(plan: Plan, bench: Bench) -> Drift:
    """Drive the first endpoint of the plan three times."""
    workload = plan.workload
    alone = replace(workload, load=ClosedLoop(1, len(workload.requests)))
    figures, answers = dict[str, Figures](), dict[str, list[Answer]]()
    for name, load in (("first", workload), ("again", workload), ("alone", alone)):
        done = bench.drive("A", name, load, plan.content_seed)
        answers[name], figures[name] = done.answers, figures_of(done)
    first = answers["first"]
    comparisons = tuple(compare(f"{name} against first", first, answers[name]) for name in ("again", "alone"))
    errors = dict.fromkeys(answer.error for drive in answers.values() for answer in drive if answer.error)
    return Drift(figures, comparisons, tuple(errors))


def compare(name: str, left: Sequence[Answer], right: Sequence[Answer]) -> Comparison:
    """Both by index, one answer for each request."""
    pairs = list(zip(left, right, strict=True))
    whole = [(a, b) for a, b in pairs if not a.error and not b.error]
    differences = tuple(found for a, b in whole if (found := _first_difference(a, b)) is not None)
    return Comparison(name, len(whole), tuple(a.index for a, b in pairs if a.error or b.error), differences)


def _first_difference(left: Answer, right: Answer) -> Difference | None:
    if left.token_ids and right.token_ids:
        return _differing(left.index, left.token_ids, right.token_ids, "token")
    return _differing(left.index, left.text, right.text, "character")


def _differing(index: int, left: Sequence[object], right: Sequence[object], unit: str) -> Difference | None:
    for position, (a, b) in enumerate(zip_longest(left, right)):
        if a != b:
            return Difference(index, position, unit)
    return None
