"""`reprise shrink`: a failing recording becomes the smallest one that still fails.

Requests go first, by delta debugging; then lengths, gaps, cancels, what callers ask for beside tokens, and limits. The
rounds are repeated until nothing more goes. Then what is left is rearranged around one request fewer, as long as that
is found to fail, too; and at the end every request is left out once more, to prove that the failure needs each of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from recorder.reader import NoContents
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.shrink import reductions
from replay.shrink.ddmin import ddmin, without_one
from replay.shrink.evidence import Evidence
from replay.shrink.invariants import Finding
from replay.shrink.predicates import parse
from replay.shrink.rearranging import rearranged
from replay.shrink.scenario import Caller, Scenario, scenario_of_stretch
from replay.shrink.trial import Setting, Trial, Tried
from replay.shrink.workers import TimeOver, Workers
from replay.shrink.written import with_limits, write_recording
from replay.span import Span
from replay.stretch import stretches_of

MAX_ROUNDS = 6
FEW_CALLERS = 2  # of so few none is there to fill another's gap
DRAWS, DRAWS_WITH_MODEL = 500, 40  # for each caller beyond; to perform so few by counts takes some milliseconds


@dataclass(frozen=True, slots=True)
class Shrunk:
    """
    before, after   the scenario as recorded, and what is left of it
    finding         what fails in it
    is_minimal      proved at the end: without any one of its requests it does not fail
    is_cut_short    the time limit came first
    target          where it was written
    """

    before: Scenario
    after: Scenario
    finding: Finding
    is_minimal: bool
    is_cut_short: bool
    num_tries: int
    seconds: float
    target: Path


def shrink(
    path: Path,
    setting: Setting,
    target: Path,
    *,
    num_jobs: int = 1,
    time_limit_s: float = 0.0,
    span: Span = Span(),  # noqa: B008  # immutable
) -> Shrunk | None:
    """Write the smallest failing scenario into `target`, a folder that does not exist yet.

    span   what of the recording; whoever was under way where it begins comes there with the tokens that it had
    Returns None when the recording does not fail, performed again as it is.
    Raises CannotCompare, RecordingError, UnknownPredicate and what opening a model raises.
    """
    began = Trial(setting)
    found = _first_failing(path, setting, began, span)
    if found is None:
        return None
    scenario, tried = found
    assert tried.finding is not None
    about = parse(setting.predicate).of_request(tried.finding.request).text  # this failure, not any of its kind
    with Workers(replace(setting, predicate=about), num_jobs, time_limit_s) as workers:
        num_draws = 0 if setting.at_pace else DRAWS_WITH_MODEL if setting.uses_model else DRAWS
        shrinking = _Shrinking(scenario, workers, num_draws)
        is_minimal = is_cut_short = False
        try:
            shrinking.drop_later_callers(tried)
            is_minimal = shrinking.run()
        except TimeOver:
            is_cut_short = True
        last = workers.own.attempt(shrinking.best)
        assert last.finding is not None, "the shrunk scenario has just failed, and does no more: it is not repeatable"
        _write(last, target)
        return Shrunk(
            scenario, shrinking.best, last.finding, is_minimal, is_cut_short, workers.num_tries, workers.seconds, target
        )


def _first_failing(path: Path, setting: Setting, trial: Trial, span: Span) -> tuple[Scenario, Tried] | None:
    refusals: list[CannotCompare] = []
    num_performed = 0
    for stretch in stretches_of(Run.open(path).lives, span, refusals.append):
        scenario = scenario_of_stretch(stretch, refusals.append, with_contents=setting.uses_model)
        if not scenario.callers:
            continue
        if setting.uses_model:
            scenario = _with_contents(scenario)
        num_performed += 1
        tried = trial.attempt(scenario)
        if tried.finding is not None:
            return scenario, tried
    if not num_performed:
        raise refusals[0] if refusals else CannotCompare("the recording holds no request", "there is nothing to shrink")
    return None


def _with_contents(scenario: Scenario) -> Scenario:
    """Those whose prompts were kept; a refused request's never are."""
    kept = tuple([caller for caller in scenario.callers if caller.contents is not None])
    if not kept:
        raise NoContents(Path(str(scenario.header.config.get("record_dir", ""))))
    return scenario.only(kept)


def _write(tried: Tried, target: Path) -> None:
    performed = tried.performed
    evidence = Evidence.of_performed(performed, None)
    header = with_limits(performed.header, performed.limits)
    write_recording(target, header, performed.entries, evidence.contents, error=performed.error)


class _Shrinking:
    """`best` is the smallest scenario so far that fails.

    num_draws   rearrangements to be tried for each request beyond FEW_CALLERS
    """

    def __init__(self, scenario: Scenario, workers: Workers, num_draws: int) -> None:
        self.best = scenario
        self._workers = workers
        self._num_draws = num_draws

    def drop_later_callers(self, tried: Tried) -> None:
        """Whoever came after the failure was seen has no part in it, most of the time."""
        assert tried.finding is not None
        entries, sequence = tried.performed.entries, tried.finding.sequence
        if sequence < 0:
            return
        ends_ns = entries[min(sequence, len(entries) - 1)].now_ns
        earlier = tuple([caller for caller in self.best.callers if caller.at_ns <= ends_ns])
        if 0 < len(earlier) < len(self.best.callers):
            self._try([self.best.only(earlier)])

    def run(self) -> bool:
        """Until nothing more goes; whether the last look found that no request can go."""
        self._simplify()
        while num_beyond := max(0, len(self.best.callers) - FEW_CALLERS):
            if not self._try(list(rearranged(self.best, num_beyond * self._num_draws))):
                break
            self._simplify()
        return self._is_minimal()

    def _simplify(self) -> None:
        for _round in range(MAX_ROUNDS):
            before = self.best
            self._drop_callers()
            for candidates in self._simpler():
                self._try(candidates)
            if self.best == before:
                break

    def _drop_callers(self) -> None:
        def first_failing(parts: list[list[Caller]]) -> int | None:
            index = self._workers.first_failing([self.best.only(tuple(part)) for part in parts])
            if index is not None:
                self.best = self.best.only(tuple(parts[index]))
            return index

        ddmin(self.best.callers, first_failing)

    def _is_minimal(self) -> bool:
        while len(self.best.callers) > 1:
            if not self._try([self.best.only(tuple(part)) for part in without_one(self.best.callers)]):
                return True
            self._drop_callers()
        return True

    def _simpler(self) -> Iterator[list[Scenario]]:
        """Candidates for each thing that may become simpler, made from the best so far when they are asked for."""
        of_callers: tuple[Callable[[Scenario, int], list[Scenario]], ...] = (
            reductions.shorter_outputs,
            reductions.shorter_prompts,
            reductions.closer,
            reductions.plainer_callers,
        )
        yield reductions.all_at_once(self.best)
        for reduce in of_callers:
            for place in range(len(self.best.callers)):
                yield reduce(self.best, place)
        yield reductions.fewer_interruptions(self.best)
        names = len(list(reductions.plainer_limits(self.best)))
        for place in range(names):
            groups = list(reductions.plainer_limits(self.best))
            if place < len(groups):
                yield groups[place]

    def _try(self, candidates: list[Scenario]) -> bool:
        """Take the first that fails."""
        index = self._workers.first_failing(candidates) if candidates else None
        if index is not None:
            self.best = candidates[index]
        return index is not None


def setting_for(predicate: str, *, has_vault: bool, at_pace: bool = False) -> Setting:
    """Counts where they decide it; the model where tokens do, or may: what dies or diverges with it may not without."""
    by_name = predicate.partition(":")[0]
    uses_model = parse(predicate).needs_model or (has_vault and by_name in ("diverges", "engine-dies"))
    return replace(Setting(predicate, uses_model), at_pace=at_pace)
