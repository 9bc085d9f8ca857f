"""One of two recordings that are compared: its entries in order, and its requests with all that is known of each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.core.events import RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.errors import NoContents, RecordingError
from recorder.header import Header
from recorder.request_span import RequestSpan
from recorder.timeline import Timeline
from replay.lives import Run
from replay.refusal import CannotCompare


@dataclass(slots=True)
class Party:
    """A request.

    digests   (hidden digest, log-probability bits) per computed output token
    tokens    ids of its output; None where no contents can be read
    """

    arrived: RequestArrived
    span: RequestSpan
    digests: list[tuple[int, int]] = field(default_factory=list)
    tokens: list[int] | None = None


class Side:
    """
    parties    by number, in order of arrival
    entries    those that hold an event, of all lives, in order
    refusals   why some could not be read
    notes      what was missing or damaged
    """

    def __init__(self, path: Path) -> None:
        """Raises RecordingError, and CannotCompare when a life does not begin with an empty core."""
        self.path = path
        self._run = Run.open(path)
        for life in self._run.lives:
            if life.refusal is not None:
                raise life.refusal
        self.refusals: list[CannotCompare] = []
        self.timeline = Timeline(keep_spans=True, keep_histories=False)
        self.parties: dict[int, Party] = {}
        self.notes: list[str] = []
        for life in self._run.lives:
            self.timeline.begin_engine(Limits.from_dict(life.header.limits))
            for entry in life.comparable_entries(self.refusals.append):
                self.timeline.apply(entry)
                self._read(entry)
        self._read_tokens()
        self.notes += self._run.notes()

    @property
    def header(self) -> Header:
        return self._run.lives[0].header

    @property
    def limits(self) -> Limits:
        return Limits.from_dict(self.header.limits)

    @property
    def numerics_class(self) -> str:
        return str(self.header.environment.get("numerics_class", ""))

    @property
    def has_tokens(self) -> bool:
        return any(party.tokens is not None for party in self.parties.values())

    def entries(self) -> Iterator[Entry]:
        for life in self._run.lives:
            yield from life.comparable_entries(lambda refusal: None)

    def _read(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, RequestArrived):
            span = self.timeline.spans.get(event.request)
            if span is not None and event.request not in self.parties:
                self.parties[event.request] = Party(event, span)
        elif isinstance(event, StepCompleted):
            for request, _flag, hidden_digest, logprob_bits in event.emitted:
                if party := self.parties.get(request):
                    party.digests.append((hidden_digest, logprob_bits))

    def _read_tokens(self) -> None:
        for life in self._run.lives:
            try:
                contents = life.contents()
            except NoContents:
                return
            except (RecordingError, CannotCompare) as error:
                self.notes.append(f"{self.path.name}: no tokens: {error}")
                return
            for request, party in self.parties.items():
                if request in contents.prompts:
                    party.tokens = [*(party.tokens or ()), *contents.outputs(request)]
