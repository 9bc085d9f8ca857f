"""Predicates: what makes a recording a failure, said in a few words on the command line.

    parse("ttft-above:500").holds(Path("recordings/RUN"))      also of a list of entries, or of an Evidence
    parse("isolation-differs").find(evidence)                  the finding: a sentence, and whose request it is

`predicate_help.py` lists them. They look at an `Evidence`; what they find says which request is guilty.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from engine.core.decisions import FinishReason, StarvationSeen, ThrashingBegan
from engine.core.errors import EngineError
from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry
from recorder.request_span import RequestSpan
from replay.history import LifeHistory
from replay.shrink.evidence import Evidence, evidences_of
from replay.shrink.expressions import compile_expression, value_of
from replay.shrink.invariants import Finding, first_broken
from replay.shrink.second_opinion import differs_elsewhere
from replay.tokens import comparable_with

_NS_PER_MS = 1_000_000
_WHOLE_ENDS = (FinishReason.STOP, FinishReason.LENGTH)


class UnknownPredicate(EngineError):
    """The text names no predicate, or lacks its figure."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(
            f"{text!r} is no predicate: {why}. Known are diverges, isolation-differs, output-contains:TEXT, "
            "output-lacks:TEXT, ttft-above:MS, preempted-more-than:N, thrashing, starvation, invariant-broken, "
            "engine-dies and expr:EXPRESSION"
        )


class Predicate(ABC):
    """
    needs_model   tokens or bits decide it, so the model runs for it, and the vault is read
    request       whom it asks about, by id or number; "": about all
    """

    needs_model = False

    def __init__(self, text: str, request: str = "") -> None:
        self.text = text
        self.request = request

    @abstractmethod
    def find(self, evidence: Evidence) -> Finding | None:
        """The first place where it holds; None where it does not. Deterministic, but for `diverges`."""

    def of_request(self, request: int) -> "Predicate":
        """The same about one request, where it can be asked so."""
        return self

    def may_concern(self, arrivals: Iterable[RequestArrived]) -> bool:
        """Whether anybody whom it asks about is among them."""
        return not self.request or any(_is_named(self.request, each.request, each.request_id) for each in arrivals)

    def holds(self, recording: Path | Sequence[Entry] | Evidence) -> bool:
        """Of any life of a recording on disk (a model is not opened for it), of entries, or of an evidence."""
        if isinstance(recording, Evidence):
            return self.find(recording) is not None
        if isinstance(recording, Path):
            found = evidences_of(recording, with_contents=self.needs_model)
            return any(self.find(evidence) is not None for evidence in found)
        return self.find(Evidence.of_entries(recording)) is not None


def parse(text: str) -> Predicate:
    """The predicate that `text` names. Raises UnknownPredicate."""
    name, colon, rest = text.partition(":")
    name, _, of_request = name.partition("@")
    if name in _PLAIN and not colon:
        return _Plain(text, _PLAIN[name])
    match name:
        case "expr" if rest:
            return _Expression(text, rest)
        case "diverges" if not colon:
            return _Diverges(text)
        case "isolation-differs":
            return _IsolationDiffers(text, rest)
        case "output-contains" | "output-lacks" if rest:
            return _Output(text, rest, of_request, is_wanted=name == "output-contains")
        case "ttft-above" | "preempted-more-than":
            return _above(text, name, *rest.partition(":")[::2])
    raise UnknownPredicate(text, f"there is no {name}" if not colon or not rest else "its form is another")


def _above(text: str, name: str, figure: str, request: str) -> Predicate:
    try:
        bound = float(figure)
    except ValueError:
        raise UnknownPredicate(text, f"{figure!r} is no number") from None
    return _Above(text, name, bound, request)


class _Plain(Predicate):
    def __init__(self, text: str, find: Callable[[Evidence], Finding | None]) -> None:
        super().__init__(text)
        self._find = find

    def find(self, evidence: Evidence) -> Finding | None:
        return self._find(evidence)


def _thrashing(evidence: Evidence) -> Finding | None:
    for entry in evidence.entries:
        for decision in entry.decisions:
            if isinstance(decision, ThrashingBegan):
                return Finding("thrashing began", -1, entry.sequence)
    return None


def _starvation(evidence: Evidence) -> Finding | None:
    for entry in evidence.entries:
        for decision in entry.decisions:
            if isinstance(decision, StarvationSeen):
                return Finding(
                    f"request {decision.request} starves: {decision.cause}", decision.request, entry.sequence
                )
    return None


def _dies(evidence: Evidence) -> Finding | None:
    if not evidence.error:
        return None
    last = evidence.entries[-1] if evidence.entries else None
    request = getattr(last.event, "request", -1) if last else -1
    return Finding(f"the engine dies: {evidence.error}", request, last.sequence if last else -1)


def _invariant(evidence: Evidence) -> Finding | None:
    return first_broken(evidence.entries, evidence.limits, has_died=bool(evidence.error)) or _dies(evidence)


_PLAIN = {"thrashing": _thrashing, "starvation": _starvation, "engine-dies": _dies, "invariant-broken": _invariant}


class _Above(Predicate):
    def __init__(self, text: str, name: str, bound: float, request: str) -> None:
        super().__init__(text, request)
        self._is_ttft = name == "ttft-above"
        self._bound = bound

    def find(self, evidence: Evidence) -> Finding | None:
        last_ns = evidence.timeline.last_ns or 0
        for span in _spans(evidence, self.request):
            if not self._is_ttft and span.num_preemptions > self._bound:
                return Finding(f"request {span.request} is preempted {span.num_preemptions} times", span.request)
            if self._is_ttft and (ttft_ms := _ttft_ms(span, last_ns)) > self._bound:
                return Finding(f"request {span.request} waits {ttft_ms:.1f} ms for its first token", span.request)
        return None


def _ttft_ms(span: RequestSpan, last_ns: int) -> float:
    """Of one that never got a token, how long it waited for it."""
    ends_ns = span.first_token_ns or span.ended_ns or last_ns
    return (ends_ns - span.arrival_ns) / _NS_PER_MS


class _Output(Predicate):
    needs_model = True

    def __init__(self, text: str, wanted: str, request: str, *, is_wanted: bool) -> None:
        super().__init__(text, request)
        self._wanted = wanted
        self._is_wanted = is_wanted

    def find(self, evidence: Evidence) -> Finding | None:
        stage = evidence.stage
        if stage is None:
            raise UnknownPredicate(self.text, "it reads answers, so a model must be opened for it")
        for span in _spans(evidence, self.request):
            if not self._is_wanted and span.outcome not in _WHOLE_ENDS:
                continue
            contains = self._wanted in stage.text(evidence.outputs(span.request))
            if contains == self._is_wanted:
                verb = "contains" if contains else "lacks"
                return Finding(f"the answer to request {span.request} {verb} {self._wanted!r}", span.request)
        return None


class _IsolationDiffers(Predicate):
    needs_model = True

    def of_request(self, request: int) -> Predicate:
        return _IsolationDiffers(f"isolation-differs:{request}", str(request))

    def find(self, evidence: Evidence) -> Finding | None:
        stage, contents = evidence.stage, evidence.contents
        if stage is None or contents is None:
            raise UnknownPredicate(self.text, "it compares tokens, so it needs the vault and a model")
        history = LifeHistory(iter(evidence.entries), contents)
        for span in _spans(evidence, self.request):
            request = history.requests[span.request]
            prompt = contents.prompts.get(span.request)
            if prompt is None or not request.tokens:
                continue
            alone = stage.alone(request.arrived, prompt, evidence.limits)
            for index, recorded in enumerate(request.tokens):
                computed = next(alone, None)
                if computed is None or comparable_with(computed.token, recorded, compare_bits=True) != recorded:
                    alone.close()
                    return Finding(
                        f"request {span.request} differs alone from output token {index} on",
                        span.request,
                        request.moments[index].sequence,
                    )
            alone.close()
        return None


class _Diverges(Predicate):
    def find(self, evidence: Evidence) -> Finding | None:
        return differs_elsewhere(evidence)


class _Expression(Predicate):
    def __init__(self, text: str, source: str) -> None:
        super().__init__(text)
        try:
            self._code = compile_expression(source)
        except SyntaxError as error:
            raise UnknownPredicate(text, f"Python says {error.msg}") from error
        self._source = source

    def find(self, evidence: Evidence) -> Finding | None:
        value = value_of(self._code, evidence)
        if value is False or value is None or (not isinstance(value, int) and not value):
            return None
        request = value if isinstance(value, int) and not isinstance(value, bool) else -1
        return Finding(f"{self._source} is {value!r}", request)


def _spans(evidence: Evidence, request: str) -> Iterator[RequestSpan]:
    """Of all requests that were taken in, or of the one with this id or number."""
    for span in evidence.timeline.spans.values():
        if not request or _is_named(request, span.request, span.request_id):
            yield span


def _is_named(name: str, number: int, request_id: str) -> bool:
    return request_id == name or (name.isdecimal() and number == int(name))
