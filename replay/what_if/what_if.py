"""`reprise what-if`: the recorded load under other settings, or under this version's code.

Runs are read alike: the recorded one; the control, which is the recorded settings by the same means and tells whether
the answer is to be trusted; the one that was asked for; and both again with the machine's noise dealt out otherwise,
which tells what in their figures is chance. Each life of the engine begins anew; a stretch of one begins at a keyframe,
with whoever was under way there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.clock import SystemClock
from engine.core.events import StepCompleted
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from replay.lives import Life, Run
from replay.progress import Progress
from replay.refusal import CannotCompare
from replay.simulate.recording import SimulatedRecording
from replay.span import Span
from replay.stretch import Stretch, stretches_of
from replay.what_if.answer import Answered, Changed
from replay.what_if.counterfactual import Counterfactual, Fork, Reader, Steps
from replay.what_if.outcome import RunOutcome
from replay.what_if.part import Part, notes_on
from replay.what_if.predicted_steps import PredictedSteps
from replay.what_if.recorded_load import RecordedLoad
from replay.what_if.scenario import Scenario, scenario_of
from replay.what_if.step_times import StepTimes
from replay.what_if.trust import DISTANCES, MANY_STEPS, trust_in

OpenSteps = Callable[[Life, Scenario, RecordedLoad], Steps]


class Question(NamedTuple):
    """
    asked        fields of Limits and their other values; none: the recorded ones, by this version's code
    record_dir   where the counterfactual is recorded
    open_steps   who executes the steps; None predicts them
    span         what of the recording
    """

    asked: dict[str, Any]
    record_dir: Path | None = None
    open_steps: OpenSteps | None = None
    span: Span = Span()

    def as_text(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.asked.items())


def what_if(path: Path, question: Question) -> Answered:
    """Raises RecordingError, CannotCompare, InvalidLimits, UnknownPolicy, PolicyNotLoaded, RecordingUnwritable."""
    return _Performance(path, question).answer()


class _Performance:
    def __init__(self, path: Path, question: Question) -> None:
        self._path = path
        self._question = question
        self._run = Run.open(path)
        self._refusals: list[CannotCompare] = []
        self._began_ns = SystemClock().now_ns()

    def answer(self) -> Answered:
        stretches = stretches_of(self._run.lives, self._question.span, self._refusals.append)
        if not stretches:
            raise self._refusals[0] if self._refusals else CannotCompare("the recording holds no run of an engine")
        targets = self._scenario(stretches[0], self._question.asked).limits
        recorded = RunOutcome(targets)
        parts = [self._read(stretch, recorded) for stretch in stretches]
        samples = [sample for part in parts for sample in part.load.samples]
        times = None if self._question.open_steps else StepTimes(samples)
        exchanges = DISTANCES if times is not None and len(samples) <= MANY_STEPS else ()
        with Progress("what-if", "steps", len(samples) * (2 + 2 * len(exchanges))) as progress:
            self._count = _step_counter(progress)
            control, asked = RunOutcome(targets), RunOutcome(targets)
            for part in parts:
                self._serve(part, part.recorded, self._open_steps(part, part.recorded, times), control)
            forks = [self._serve_as_asked(part, times, asked) for part in parts]
            answers = {number: answer for part in parts for number, answer in part.load.answers.items()}
            values = [outcome.values(answers) for outcome in (recorded, control, asked)]
            redealt = [times.exchanged(distance) for distance in exchanges] if times is not None else []
            ranges = [
                [self._redealt(parts, other, targets, is_asked).values(answers) for other in redealt]
                for is_asked in (False, True)
            ]
        trust = trust_in(values[0], values[1], samples, times)
        fork, opened_ns = _first(forks, parts)
        return Answered(
            recording=str(self._path),
            changes={name: Changed(*pair) for name, pair in parts[0].asked.changes().items()},
            is_executed=self._question.open_steps is not None,
            recorded=values[0],
            control=values[1],
            asked=values[2],
            redealt=(tuple(ranges[0]), tuple(ranges[1])),
            trust=trust,
            fork=fork,
            opened_ns=opened_ns,
            done=(recorded.done, asked.done),
            notes=tuple(notes_on(parts, self._run, self._refusals)),
            seconds=(SystemClock().now_ns() - self._began_ns) / 1e9,
        )

    def _scenario(self, stretch: Stretch, asked: dict[str, Any]) -> Scenario:
        return scenario_of(stretch.header, asked, with_contents=self._question.open_steps is not None)

    def _read(self, stretch: Stretch, outcome: RunOutcome) -> Part:
        recorded, asked = self._scenario(stretch, {}), self._scenario(stretch, self._question.asked)
        outcome.begin(recorded.limits)
        for entry in stretch.under_way.entries() if stretch.under_way else ():
            outcome.read(entry)

        def entries() -> Iterator[Entry]:
            for entry in stretch.entries(self._refusals.append):
                outcome.read(entry)
                yield entry

        return Part(stretch, recorded, asked, RecordedLoad(recorded.limits, entries(), stretch.under_way))

    def _serve(self, part: Part, scenario: Scenario, steps: Steps, outcome: RunOutcome) -> None:
        """From the first event on."""
        outcome.begin(scenario.limits)
        run = Counterfactual(scenario.core(), steps, part.inputs(scenario), [outcome.read, self._count])
        run.run(part.load.last_ns, part.load.open_ended)

    def _redealt(self, parts: list[Part], times: StepTimes, targets: Limits, is_asked: bool) -> RunOutcome:
        outcome = RunOutcome(targets)
        for part in parts:
            scenario = part.asked if is_asked else part.recorded
            self._serve(part, scenario, PredictedSteps(part.load, times, scenario.header), outcome)
        return outcome

    def _serve_as_asked(self, part: Part, times: StepTimes | None, outcome: RunOutcome) -> Fork | None:
        """Predicted steps begin where the core first does something else; an executing model needs all of them."""
        asked, question = part.asked, self._question
        outcome.begin(asked.limits)
        steps = self._open_steps(part, asked, times)
        readers: list[Reader] = [outcome.read, self._count]
        recording = None
        if question.record_dir is not None:
            recording = SimulatedRecording(question.record_dir, asked.new_header(question.as_text()), steps.clock)
            readers.append(recording.read)
        try:
            run = Counterfactual(asked.core(), steps, part.inputs(asked), readers)
            fork = None
            if question.open_steps is None and part.stretch.under_way is None:
                fork = run.follow(asked.entries(part.stretch.entries(lambda refusal: None)))
                if fork is None:
                    return None
            run.run(part.load.last_ns, part.load.open_ended)
            return fork
        finally:
            if recording is not None:
                recording.close()

    def _open_steps(self, part: Part, scenario: Scenario, times: StepTimes | None) -> Steps:
        if times is not None:
            return PredictedSteps(part.load, times, scenario.header)
        assert self._question.open_steps is not None  # no times were made because it is there
        return self._question.open_steps(part.stretch.life, scenario, part.load)


def _first(forks: list[Fork | None], parts: list[Part]) -> tuple[Fork | None, int]:
    """The first fork, and the time that its own is counted from."""
    for fork, part in zip(forks, parts, strict=True):
        if fork is not None:
            return fork, part.stretch.life.opened_ns
    return None, 0


def _step_counter(progress: Progress) -> Reader:
    num_steps = 0

    def count(entry: Entry) -> None:
        nonlocal num_steps
        if isinstance(entry.event, StepCompleted):
            num_steps += 1
            progress.at(num_steps)

    return count
