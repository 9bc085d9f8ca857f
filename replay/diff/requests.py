"""Pairs of requests: where their tokens part, and how long each waited on either side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recorder.request_span import RequestSpan
from replay.diff.alignment import Alignment
from replay.diff.side import Party, Side
from replay.divergence import EmittedToken
from replay.figures import quantiles

RANKS = (50, 90, 99)
IDS, DIGESTS, NOTHING = "ids", "digests", "nothing"
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Pair:
    """
    compared_by   token ids where both sides have them, else digests where both are of one numerics class
    first_token   0-based place of the first output token that differs, the end of the shorter output included
    """

    left: Party
    right: Party
    compared_by: str
    first_token: int | None

    @property
    def delay_ns(self) -> int:
        """How much later than on the left it ended, or else had its first token; 0 where it did neither."""
        for name in ("e2e_ns", "ttft_ns"):
            ours, theirs = getattr(self.left.span, name), getattr(self.right.span, name)
            if ours is not None and theirs is not None:
                return int(theirs - ours)
        return 0

    def token(self, party: Party) -> EmittedToken | None:
        """Its output token at `first_token`, under the left one's number; None behind its end."""
        index = self.first_token
        if index is None or index >= party.span.num_output_tokens:
            return None
        token_id = party.tokens[index] if party.tokens is not None and index < len(party.tokens) else _UNKNOWN
        digests = party.digests[index] if index < len(party.digests) else (0, 0)
        return EmittedToken(self.left.arrived.request, index, token_id, "", *digests)

    def values(self) -> dict[str, Any]:
        return {
            "request_id": self.left.arrived.request_id,
            "left": _span_values(self.left.span),
            "right": _span_values(self.right.span),
            "delay_ms": self.delay_ns / 1e6,
            "tokens_compared_by": self.compared_by,
            "first_differing_token": self.first_token,
        }


def pairs_of(left: Side, right: Side, alignment: Alignment) -> list[Pair]:
    same_numerics = left.numerics_class == right.numerics_class
    return [_pair(left.parties[ours], right.parties[theirs], same_numerics) for ours, theirs in alignment.pairs]


def _pair(left: Party, right: Party, same_numerics: bool) -> Pair:
    lengths = left.span.num_output_tokens, right.span.num_output_tokens
    if left.tokens is not None and right.tokens is not None:
        return Pair(left, right, IDS, _first_difference(left.tokens, right.tokens, lengths))
    if same_numerics:
        return Pair(left, right, DIGESTS, _first_difference(left.digests, right.digests, lengths))
    return Pair(left, right, NOTHING, min(lengths) if lengths[0] != lengths[1] else None)


def _first_difference(left: Sequence[Any], right: Sequence[Any], lengths: tuple[int, int]) -> int | None:
    """Only emitted tokens count: a request that ended while a step computed a token for it has one more."""
    shorter = min(lengths)
    for index, (ours, theirs) in enumerate(zip(left[:shorter], right[:shorter], strict=False)):
        if ours != theirs:
            return index
    return shorter if lengths[0] != lengths[1] else None


def latencies(side: Side) -> dict[str, Any]:
    """In milliseconds, over all requests of a side."""
    spans = list(side.timeline.spans.values())
    return {
        "ttft_ms": quantiles([span.ttft_ns for span in spans], RANKS),
        "itl_ms": quantiles([gap for span in spans for gap in span.itl_ns or ()], RANKS),
        "e2e_ms": quantiles([span.e2e_ns for span in spans if span.first_token_ns is not None], RANKS),
    }


def _span_values(span: RequestSpan) -> dict[str, Any]:
    return {
        "request": span.request,
        "outcome": str(span.outcome),
        "num_output_tokens": span.num_output_tokens,
        "num_preemptions": span.num_preemptions,
        "num_cached_tokens": max(0, span.num_cached_tokens),
        "ttft_ms": None if span.ttft_ns is None else span.ttft_ns / 1e6,
        "e2e_ms": None if span.e2e_ns is None else span.e2e_ns / 1e6,
    }
