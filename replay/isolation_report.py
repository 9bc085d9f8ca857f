"""What `reprise isolate` tells about a request that differs alone: where, in whose company, and whose blocks it had."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recorder.vault import Contents
from replay.divergence import (
    MAX_DIFFERENCES,
    NUM_ENTRIES_BEFORE,
    Classification,
    Divergence,
    EmittedToken,
    Place,
    Raised,
    classify,
    differences,
)
from replay.history import LifeHistory, Moment, RequestHistory
from replay.lives import Life
from replay.model_runs.kv_blocks import OtherBlock
from replay.model_runs.reexecution import KVBlock, PromptLogprobsDigest
from replay.tokens import Computed
from replay.transcript import Trail

MAX_NAMED = 12  # requests named in one line of a report


class Unequal(NamedTuple):
    """The first output token that differs, after `num_equal`. `computed` is None when the request ended before it.

    block   the first that held other keys and values by then, of those that the request filled itself; when all tokens
            are equal it is what differs, for bits alone and in company are the same (P4)
    prompt  what it is told of its prompt alone, where that differs; told where tokens and blocks are equal
    """

    num_equal: int
    computed: Computed | None
    raised: Raised | None = None
    block: OtherBlock | None = None
    prompt: tuple[int, int, int] | None = None


class Subject(NamedTuple):
    """A request to be isolated, within its life."""

    life: Life
    history: LifeHistory
    contents: Contents
    request: RequestHistory


def report(path: Path, subject: Subject, unequal: Unequal, environment: tuple[str, ...]) -> Divergence:
    """The divergence of a subject at its first unequal token, or block."""
    request, number = subject.request, subject.request.arrived.request
    expected: EmittedToken | KVBlock | PromptLogprobsDigest
    got: EmittedToken | KVBlock | PromptLogprobsDigest | Raised | None
    if unequal.num_equal == len(request.tokens) and unequal.block is not None:
        index, *digests = unequal.block
        expected, got = [KVBlock(number, index, digest) for digest in digests]
        moment, classification = request.kv_moments[index], Classification.NUMERIC
    elif unequal.num_equal == len(request.tokens) and unequal.prompt is not None and request.prompt is not None:
        recorded, moment = request.prompt
        expected, got = PromptLogprobsDigest(*recorded), PromptLogprobsDigest(*unequal.prompt)
        classification = Classification.NUMERIC
    else:
        expected, moment = request.tokens[unequal.num_equal], request.moments[unequal.num_equal]
        got = unequal.computed.token if unequal.computed else unequal.raised
        top_logprobs = unequal.computed.top_logprobs if unequal.computed else ()
        classification = classify(expected, got if isinstance(got, EmittedToken) else None, top_logprobs)
    return Divergence(
        place=Place(moment.sequence, moment.now_ns - subject.life.opened_ns, moment.step, request=number),
        classification=classification,
        expected=expected,
        got=got,
        differences=tuple(differences(expected, got)[:MAX_DIFFERENCES]),
        num_more_differences=0,
        decided_on=(
            f"request {number} ({request.arrived.request_id}) alone, from its {request.arrived.num_prompt_tokens} "
            f"prompt tokens; {unequal.num_equal} of {len(request.tokens)} output tokens were equal before"
        ),
        before=_entries_before(subject.life, moment.sequence),
        circumstances=(*_circumstances(subject, moment), *_blocks(unequal)),
        environment=environment,
        likely_cause=_likely_cause(classification, moment, unequal),
        next_command=f"reprise execute {shlex.quote(str(path))}",
    )


def _entries_before(life: Life, sequence: int) -> tuple[str, ...]:
    trail = Trail(life.opened_ns, NUM_ENTRIES_BEFORE)
    for entry in life.entries():
        if entry.sequence >= sequence:
            break
        trail.pass_by(entry)
    return trail.lines()


def _circumstances(subject: Subject, moment: Moment) -> Iterator[str]:
    request = subject.request
    neighbours = subject.history.neighbours(moment.step, request.arrived.request)
    yield f"in step {moment.step} with {_numbers(neighbours)}" if neighbours else f"alone in step {moment.step}, too"
    yield f"before it: preempted {moment.num_preemptions} times, {moment.num_hit_blocks} blocks from the prefix cache"
    if request.lenders:
        lenders = [f"{number} (block {block})" for number, block in list(request.lenders.items())[:MAX_NAMED]]
        more = f" and {len(request.lenders) - MAX_NAMED} more" if len(request.lenders) > MAX_NAMED else ""
        yield f"its blocks were held before by requests {', '.join(lenders)}{more}"


def _blocks(unequal: Unequal) -> Iterator[str]:
    if unequal.block is not None:
        index, expected, got = unequal.block
        digests = f"{expected:016x}, alone {got:016x}"
        yield f"block {index} of its block table was filled with other keys and values: {digests}"


def _numbers(requests: list[int]) -> str:
    named = ", ".join(str(number) for number in requests[:MAX_NAMED])
    more = f" and {len(requests) - MAX_NAMED} more" if len(requests) > MAX_NAMED else ""
    return f"requests {named}{more}"


def _likely_cause(classification: Classification, moment: Moment, unequal: Unequal) -> str:
    if unequal.raised is not None:
        return "executing it alone raised: read the error"
    if unequal.computed is None and unequal.block is None and unequal.prompt is None:
        return "alone it ended earlier: a stop condition that depends on more than the request's own tokens"
    if classification is Classification.TIE:
        return "the two most likely tokens are as good as equal, so the smallest difference of bits swaps them"
    suspects = ["another request's keys and values in its blocks", "a kernel whose result depends on the batch"]
    if moment.num_hit_blocks:
        suspects.insert(0, "blocks from the prefix cache that do not hold its prompt's keys and values")
    if moment.num_preemptions:
        suspects.insert(0, "recomputing after preemption, or copies of a swap, that did not restore what was there")
    return "; or ".join(suspects) + ". If execute is equal, the fault is in the record's own run and happens every time"


def table(divergences: Sequence[Divergence]) -> Iterator[str]:
    """One line per request that differs, under a heading; nothing when none does."""
    if divergences:
        yield f"{'request':>7} {'token':>6} {'step':>7} {'what':<10} {'recorded':>9} {'alone':>9}  field"
    for divergence in divergences:
        expected, got = divergence.expected, divergence.got
        index, recorded, alone = "-", "-", "-"  # a block of keys and values, and no token
        if isinstance(expected, EmittedToken):
            index, recorded = str(expected.output_index), str(expected.token_id)
            alone = str(got.token_id) if isinstance(got, EmittedToken) else "(none)"
        fields = ", ".join(difference.field for difference in divergence.differences)
        yield (
            f"{expected.request:>7} {index:>6} {divergence.place.step:>7} "
            f"{divergence.classification:<10} {recorded:>9} {alone:>9}  {fields}"
        )
