"""One life of the engine in a question: what it was, what it would be, and what a reader should know of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay.lives import Life, Run
from replay.refusal import CannotCompare
from replay.what_if.inputs import Input
from replay.what_if.recorded_load import RecordedLoad
from replay.what_if.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Part:
    """recorded, asked: the settings that it had, and those that it would have."""

    life: Life
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
    for life in run.lives:
        if life.refusal is not None:
            yield f"left out: {life.refusal.reason}"
    yield from (refusal.reason for refusal in refusals)
    yield from run.notes()
