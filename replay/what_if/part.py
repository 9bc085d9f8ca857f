"""A stretch of one life of the engine in a question: what it was, what it would be, and what a reader should know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay.lives import Run
from replay.refusal import CannotCompare
from replay.stretch import Stretch
from replay.what_if.inputs import Input
from replay.what_if.recorded_load import RecordedLoad
from replay.what_if.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Part:
    """recorded, asked: the settings that it had, and those that it would have."""

    stretch: Stretch
    recorded: Scenario
    asked: Scenario
    load: RecordedLoad

    def inputs(self, scenario: Scenario) -> list[Input]:
        """As they happen under those settings."""
        return [Input(at_ns, scenario.event(event)) for at_ns, event in self.load.inputs]


def notes_on(parts: Sequence[Part], run: Run, refusals: Sequence[CannotCompare]) -> Iterator[str]:
    """What changes nothing but should be known: guessed lengths, open ends, what was left out or is missing.

    refusals   why entries could not be read
    """
    num_guessed = sum(part.load.num_guessed for part in parts)
    if num_guessed:
        yield (
            f"{num_guessed} requests were refused or expired when recorded: their answers are taken to be as long "
            "as the median one"
        )
    num_open = sum(len(part.load.open_ended) for part in parts)
    if num_open:
        yield f"{num_open} requests have no end in the recording: they are served until its end"
    num_findings = sum(part.load.num_own_findings for part in parts)
    if num_findings:
        yield f"{num_findings} findings of the engine itself (wrong KV blocks, audits) are not predicted"
    for part in parts:
        if part.stretch.under_way is not None:
            num_live, place = len(part.stretch.under_way.arrivals), part.stretch.beginning.sequence
            yield (
                f"began at the keyframe at sequence {place}: {num_live} requests under way there arrive once more, in "
                "all runs but the recorded one, and their tokens are computed again with an empty cache"
            )
    yield from (refusal.reason for refusal in refusals)
    yield from run.notes()
