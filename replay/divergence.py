"""A divergence: the first place where replay and recording part, with all that is needed to look further.

It is built from two records, the recorded one and the one that replay produced; it knows neither core nor runner.
`rendering.py` makes text and JSON of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from replay.proof import Proof

NUM_ENTRIES_BEFORE = 5  # shown in a report
MAX_DIFFERENCES = 8  # fields or items named in a report; the rest are counted
TIE_GAP = 1e-5  # nats between the two most likely tokens: within the rounding of an fp32 sum over a vocabulary


class Classification(StrEnum):
    """What kind of thing differs."""

    STRUCTURAL = "structural"  # a decision, or which rows emitted
    NUMERIC = "numeric"  # the same tokens from other bits
    TIE = "tie"  # other tokens, but the two most likely ones were as good as equal
    TOKENS = "tokens"  # other tokens


class EmittedToken(NamedTuple):
    """One output token as recorded, or as computed again.

    output_index    0-based place among the request's output tokens
    flag            FinishFlag of its row
    hidden_digest   u64 digest of the final hidden row
    logprob_bits    bits of the token's fp32 log-probability
    """

    request: int
    output_index: int
    token_id: int
    flag: str
    hidden_digest: int
    logprob_bits: int


class Raised(NamedTuple):
    """What stood in the place of a record: an error."""

    error: str


class FieldDifference(NamedTuple):
    """One field, or one item of a field, on both sides."""

    field: str
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the recording.

    sequence       of the entry
    time_ns        since the recording's opening
    step           the step concerned, -1 where there is none
    record_index   which of the entry's decisions, 0-based; -1 is the event itself
    num_records    how many decisions the recorded entry holds
    request        the request concerned, -1 where there is none
    """

    sequence: int
    time_ns: int
    step: int
    record_index: int = -1
    num_records: int = 0
    request: int = -1


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference and what surrounds it.

    expected, got    the recorded record and the one computed again; None where one side has none
    differences      the fields in which they differ, at most MAX_DIFFERENCES
    decided_on       the event (or planned step) it was computed from, as text
    before           the entries before it, as transcript lines
    circumstances    what else a reader wants to know: neighbours in the step, preemptions, cache hits
    environment      what differs between the recording's environment and this one
    next_command     narrows it further
    proof            what lies beneath it, where that was asked for
    """

    place: Place
    classification: Classification
    expected: Any
    got: Any
    differences: tuple[FieldDifference, ...]
    num_more_differences: int
    decided_on: str
    before: tuple[str, ...]
    circumstances: tuple[str, ...]
    environment: tuple[str, ...]
    likely_cause: str
    next_command: str
    proof: Proof | None = None


def differences(expected: Any, got: Any) -> list[FieldDifference]:
    """Every field in which two records differ; long arrays item by item. Empty when they are equal."""
    if expected is None or got is None or type(expected) is not type(got):
        return [FieldDifference("record", expected, got)]
    found: list[FieldDifference] = []
    for name, left, right in zip(expected._fields, expected, got, strict=True):
        if left != right:
            found += _in_field(name, left, right)
    return found


def _in_field(name: str, expected: Any, got: Any) -> Iterable[FieldDifference]:
    if not (isinstance(expected, tuple) and isinstance(got, tuple)):
        return [FieldDifference(name, expected, got)]
    if hasattr(expected, "_fields") and type(expected) is type(got):
        return [item._replace(field=f"{name}.{item.field}") for item in differences(expected, got)]
    found = [
        FieldDifference(f"{name}[{index}]", left, right)
        for index, (left, right) in enumerate(zip(expected, got, strict=False))
        if left != right
    ]
    for index in range(len(got), len(expected)):
        found.append(FieldDifference(f"{name}[{index}]", expected[index], None))
    for index in range(len(expected), len(got)):
        found.append(FieldDifference(f"{name}[{index}]", None, got[index]))
    return found


def classify(
    expected: EmittedToken | None, got: EmittedToken | None, top_logprobs: tuple[tuple[int, float], ...] = ()
) -> Classification:
    """What kind of difference two output tokens show.

    top_logprobs   the most likely tokens as computed again, where the request asked for them: they tell a tie
    """
    if expected is None or got is None or (expected.flag != got.flag and expected.token_id == got.token_id):
        return Classification.STRUCTURAL
    if expected.token_id == got.token_id:
        return Classification.NUMERIC
    if len(top_logprobs) > 1 and expected.hidden_digest != got.hidden_digest:
        (first, best), (second, next_best) = top_logprobs[:2]
        if {first, second} == {expected.token_id, got.token_id} and best - next_best <= TIE_GAP:
            return Classification.TIE
    return Classification.TOKENS
