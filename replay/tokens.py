"""Output tokens of two executions side by side. It knows how a step's result lists them, not who computed them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.core.contents import TokenOutput
from engine.core.events import StepCompleted
from replay.divergence import EmittedToken

UNKNOWN_TOKEN = -1  # the vault does not hold it: a torn tail


class OutputCounter:
    """How many tokens each request has emitted, so that an emitted row gets its index."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def begin(self, request: int, num_output_tokens: int) -> None:
        """So many of its tokens were emitted by an engine before this one."""
        if num_output_tokens:
            self._counts[request] = num_output_tokens

    def next_index(self, request: int) -> int:
        index = self._counts.get(request, 0)
        self._counts[request] = index + 1
        return index


class Computed(NamedTuple):
    """A token computed again, and the alternatives beside it where the request asked for them."""

    token: EmittedToken
    top_logprobs: tuple[tuple[int, float], ...] = ()


def recorded_tokens(
    completed: StepCompleted, token_ids: Sequence[tuple[int, int]], counter: OutputCounter
) -> list[EmittedToken]:
    """The rows a recorded step emitted, with their tokens from the vault.

    token_ids   (request, token id) in the order of completed.emitted; shorter where the vault ends early
    """
    known = dict(token_ids)
    return [
        EmittedToken(request, counter.next_index(request), known.get(request, UNKNOWN_TOKEN), flag, digest, bits)
        for request, flag, digest, bits in completed.emitted
    ]


def computed_tokens(completed: StepCompleted, outputs: Sequence[TokenOutput], counter: OutputCounter) -> list[Computed]:
    """The rows that an execution emitted now."""
    by_request = {output.request: output for output in outputs}
    computed = []
    for request, flag, digest, bits in completed.emitted:
        output = by_request.get(request) or TokenOutput(request, UNKNOWN_TOKEN, 0.0)  # a failed row may have drawn none
        token = EmittedToken(request, counter.next_index(request), output.token_id, flag, digest, bits)
        computed.append(Computed(token, output.top_logprobs))
    return computed


def comparable_with(
    got: EmittedToken, expected: EmittedToken, *, compare_bits: bool, compare_flags: bool = True
) -> EmittedToken:
    """`got`, with what cannot be compared taken over from `expected`."""
    if not compare_flags:
        got = got._replace(flag=expected.flag)
    if expected.token_id == UNKNOWN_TOKEN:
        got = got._replace(token_id=UNKNOWN_TOKEN)
    if not compare_bits:
        got = got._replace(hidden_digest=expected.hidden_digest, logprob_bits=expected.logprob_bits)
    return got


def first_difference(
    expected: Sequence[EmittedToken], got: Sequence[Computed], *, compare_bits: bool, compare_flags: bool = True
) -> tuple[EmittedToken | None, Computed | None] | None:
    """The first row of a step that differs, both sides; None on the side that emitted no such row."""
    for left, right in _pairs(expected, got):
        if left is None or right is None:
            return left, right
        comparable = comparable_with(right.token, left, compare_bits=compare_bits, compare_flags=compare_flags)
        if comparable != left:
            return left, right
    return None


def _pairs(
    expected: Sequence[EmittedToken], got: Sequence[Computed]
) -> Iterator[tuple[EmittedToken | None, Computed | None]]:
    yield from zip(expected, got, strict=False)
    for left in expected[len(got) :]:
        yield left, None
    for right in got[len(expected) :]:
        yield None, right
