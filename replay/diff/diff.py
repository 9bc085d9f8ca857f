"""`reprise diff A B`: two recordings aligned by request; decisions, tokens and latencies side by side.

Two runs are equal when every record is, but for times, and every token: latencies are shown and decide nothing, for no
two runs take the same. Two recordings of one load under other settings, or of two versions, are what it is for.
"""

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.limits import Limits
from replay.diff.alignment import Alignment, align
from replay.diff.first import FirstDifference, Firsts, find_firsts
from replay.diff.requests import Pair, latencies, pairs_of
from replay.diff.side import Side
from replay.divergence import MAX_DIFFERENCES, Classification, Divergence, Place, classify, differences
from replay.progress import Progress
from replay.refusal import CannotCompare
from replay.transcript import describe, name_of
from replay.verdict import EXIT_CODES, Outcome


@dataclass(frozen=True, slots=True)
class Compared:
    """
    divergences   the first record that differs, then, where it is another, the first that does something else; then
                  the first token that differs
    limits        limit → both sides, where they differ
    decisions     name → how many on each side
    """

    left: Side
    right: Side
    alignment: Alignment
    divergences: tuple[Divergence, ...]
    num_entries: int
    pairs: tuple[Pair, ...]
    limits: dict[str, tuple[Any, Any]]
    decisions: dict[str, tuple[int, int]]
    latencies: tuple[dict[str, Any], dict[str, Any]]
    refusal: CannotCompare | None

    @property
    def is_served_alike(self) -> bool:
        """Whatever differs, nobody was admitted, computed, preempted, answered or ended otherwise."""
        return not any(divergence.likely_cause == _OTHERWISE for divergence in self.divergences)

    @property
    def outcome(self) -> Outcome:
        if self.divergences or self.alignment.left_only or self.alignment.right_only:
            return Outcome.DIVERGED
        return Outcome.CANNOT_COMPARE if self.refusal else Outcome.EQUAL

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def diff(left_path: Path, right_path: Path) -> Compared:
    """Raises RecordingError, and CannotCompare when one of them holds no request or begins in mid-run."""
    with Progress("diff", "recordings", 2) as progress:
        left = Side(left_path)
        progress.at(1)
        right = Side(right_path)
        for side in (left, right):
            if not side.parties:
                raise CannotCompare(f"{side.path} holds no request", "give recordings of runs that served some")
        alignment = align(left, right)
        firsts = find_firsts(left, right, alignment)
        pairs = pairs_of(left, right, alignment)
    refusals = [*left.refusals, *right.refusals]
    return Compared(
        left,
        right,
        alignment,
        tuple(_divergences(left, right, firsts, pairs)),
        firsts.num_entries,
        tuple(pairs),
        _differing_limits(left.limits, right.limits),
        _decisions(left, right),
        (latencies(left), latencies(right)),
        refusals[0] if refusals else None,
    )


def _differing_limits(left: Limits, right: Limits) -> dict[str, tuple[Any, Any]]:
    ours, theirs = left.to_dict(), right.to_dict()
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


def _decisions(left: Side, right: Side) -> dict[str, tuple[int, int]]:
    counts = [
        Counter(name_of(decision) for entry in side.entries() for decision in entry.decisions) for side in (left, right)
    ]
    return {name: (counts[0][name], counts[1][name]) for name in sorted({*counts[0], *counts[1]})}


_OTHERWISE = "here the two runs part: what follows is served otherwise"


def _divergences(left: Side, right: Side, firsts: Firsts, pairs: list[Pair]) -> list[Divergence]:
    found = []
    same = firsts.record is not None and firsts.done is not None and firsts.record[:5] == firsts.done[:5]
    if firsts.record is not None and not same:
        found.append(_record_divergence(left, right, firsts.record, "the same is done, on other figures"))
    if firsts.done is not None:
        found.append(_record_divergence(left, right, firsts.done, _OTHERWISE))
    differing = [pair for pair in pairs if pair.first_token is not None]
    if differing:
        found.append(_token_divergence(left, differing))
    return found


def _record_divergence(left: Side, right: Side, first: FirstDifference, cause: str) -> Divergence:
    entry = first.left or first.right
    assert entry is not None  # two streams that have ended do not differ
    side = left if first.left is not None else right
    record = first.expected if first.expected is not None else first.got
    differing = differences(first.expected, first.got)
    there = first.right
    circumstances = [f"recorded is {left.path.name}, got is {right.path.name} under the same request numbers"]
    if there is not None:
        time_ms = (there.now_ns - right.header.created_now_ns) / 1e6
        circumstances.append(f"in {right.path.name}: sequence {there.sequence}, {time_ms:,.3f} ms")
    return Divergence(
        place=Place(
            sequence=entry.sequence,
            time_ns=entry.now_ns - side.header.created_now_ns,
            step=getattr(record, "step", getattr(entry.event, "step", -1)),
            record_index=first.record_index,
            num_records=len(entry.decisions),
            request=getattr(record, "request", -1),
        ),
        classification=Classification.STRUCTURAL,
        expected=first.expected,
        got=first.got,
        differences=tuple(differing[:MAX_DIFFERENCES]),
        num_more_differences=max(0, len(differing) - MAX_DIFFERENCES),
        decided_on=f"{name_of(entry.event)} {describe(entry.event)}",
        before=first.before,
        circumstances=tuple(circumstances),
        environment=(),
        likely_cause=cause,
        next_command=f"reprise show {shlex.quote(str(side.path))} --transcript --around {entry.sequence}",
    )


def _token_divergence(left: Side, differing: list[Pair]) -> Divergence:
    """Of the request that arrived first."""
    pair = differing[0]
    expected, got = pair.token(pair.left), pair.token(pair.right)
    number = pair.left.arrived.request
    found = differences(expected, got)
    return Divergence(
        place=Place(sequence=-1, time_ns=0, step=-1, request=number),
        classification=classify(expected, got),
        expected=expected,
        got=got,
        differences=tuple(found[:MAX_DIFFERENCES]),
        num_more_differences=max(0, len(found) - MAX_DIFFERENCES),
        decided_on=f"its {pair.first_token} tokens before, compared by {pair.compared_by}",
        before=(),
        circumstances=(f"{len(differing)} requests have other tokens, or another number of them",),
        environment=(),
        likely_cause=_token_cause(pair),
        next_command=f"reprise isolate {shlex.quote(str(left.path))} {number}",
    )


def _token_cause(pair: Pair) -> str:
    ours, theirs = pair.left.arrived, pair.right.arrived
    if ours.sampling != theirs.sampling or ours.num_prompt_tokens != theirs.num_prompt_tokens:
        return "they are not the same request: prompt length, seed or sampling parameters differ"
    if pair.left.span.outcome != pair.right.span.outcome:
        return f"one ended as {pair.left.span.outcome}, the other as {pair.right.span.outcome}"
    return "other prompts, other weights, or numbers that depend on company: isolate tells which"
