"""A difference that `execute` found, as a divergence: where, what, of which kind, its likely cause, where to go on."""

import shlex
from pathlib import Path

from engine.core.vocabulary import Entry
from replay.divergence import (
    MAX_DIFFERENCES,
    Classification,
    Divergence,
    EmittedToken,
    Place,
    Raised,
    classify,
    differences,
)
from replay.lives import Life
from replay.model_runs.reexecution import Difference, FilledBlock, KVBlock, PromptDigest, PromptLogprobsDigest
from replay.transcript import Trail, describe, name_of


def report(
    path: Path, life: Life, entry: Entry, difference: Difference, trail: Trail, environment: tuple[str, ...]
) -> Divergence:
    """The divergence found while following `entry`."""
    expected, got = difference.expected, difference.got
    record = expected if expected is not None else got
    differing = differences(expected, got)
    classification = _classification(difference)
    request = getattr(record, "request", -1)
    decided_on = entry.event if difference.plan is None else difference.plan
    if request >= 0 and not isinstance(record, PromptDigest):
        command = f"reprise isolate {shlex.quote(str(path))} {request}"
    else:
        command = f"reprise show {shlex.quote(str(path))} --transcript --around {entry.sequence}"
    return Divergence(
        place=Place(
            sequence=entry.sequence,
            time_ns=entry.now_ns - life.opened_ns,
            step=difference.plan.step if difference.plan else -1,
            request=request,
        ),
        classification=classification,
        expected=expected,
        got=got,
        differences=tuple(differing[:MAX_DIFFERENCES]),
        num_more_differences=max(0, len(differing) - MAX_DIFFERENCES),
        decided_on=f"{name_of(decided_on)} {describe(decided_on)}",
        before=trail.lines(),
        circumstances=(),
        environment=environment,
        likely_cause=_likely_cause(difference, classification),
        next_command=command,
    )


def _classification(difference: Difference) -> Classification:
    expected, got = difference.expected, difference.got
    is_token = isinstance(expected, EmittedToken) or isinstance(got, EmittedToken)
    return classify(expected, got, difference.top_logprobs) if is_token else Classification.STRUCTURAL


def _likely_cause(difference: Difference, classification: Classification) -> str:
    if isinstance(difference.got, Raised):
        return "carrying it out raised here and did not when recorded: read the error"
    if isinstance(difference.expected, PromptDigest):
        return "the vault's prompt is not the one that arrived, or the way digests are computed changed"
    if isinstance(difference.expected, KVBlock):
        return (
            "keys and values of a full block, though the tokens drawn so far are equal: what it was computed from was "
            "overwritten, stale or another's; or a kernel whose result is not fixed by its row"
        )
    if isinstance(difference.expected, PromptLogprobsDigest):
        return (
            "the prompt's log-probabilities have other bits, or were not told, though the tokens are equal: "
            "a row of the prompt was computed from other keys and values, or its logits depend on the batch"
        )
    if isinstance(difference.expected, FilledBlock) or isinstance(difference.got, FilledBlock):
        return "the tokens are equal, yet not the blocks they fill: the way digests are computed changed"
    match classification:
        case Classification.NUMERIC:
            return (
                "the same token from other bits: a kernel whose result is not fixed by its row (batch, chunk, thread "
                "count, memory placement), or keys and values that were overwritten or not yet written"
            )
        case Classification.TIE:
            return "the two most likely tokens are as good as equal here, so the smallest difference of bits swaps them"
        case Classification.TOKENS:
            return (
                "other tokens: keys and values of another request, a wrong block or position, another sampler state; "
                "or a kernel whose result depends on its batch"
            )
        case Classification.STRUCTURAL:
            return "a row emitted on one side only, or ended otherwise: stop conditions or the rows' counts changed"
