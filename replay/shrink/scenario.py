"""What came to the engine from outside, taken out of a recording: who came when and asked for what, who left when.

A scenario can be performed again (`rehearsal.py`), whole or with parts left out. Its steps' recorded times go along.
It must not know predicates, nor who performs it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.events import (
    DrainRequested,
    ExecutorRestarted,
    FinishFlag,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
)
from engine.core.limits import Limits
from engine.core.step_time import StepShape, shape_of
from engine.core.vocabulary import Entry
from recorder.header import Header
from recorder.in_turn import InTurn
from recorder.vault import Contents
from replay.lives import Life
from replay.refusal import CannotCompare
from replay.stretch import Stretch, UnderWay


class RecordedStep(NamedTuple):
    """
    step_ns                       from its plan to its result, whatever the engine did beside it
    execute_ns, sample_ns, swap_ns   as its event told
    error                         it failed with this; "" when it did not
    """

    shape: StepShape
    step_ns: int
    execute_ns: int = 0
    sample_ns: int = 0
    swap_ns: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """One request, and what befalls it from outside.

    at_ns            when the engine took it in
    num_own_tokens   it ends by itself after so many, with `end_flag`; 0: it never did, so its limit ends it
    cancels          (time after at_ns, event)
    filled           digests of the blocks that its outputs filled, in order
    contents         None without a vault
    """

    arrived: RequestArrived
    at_ns: int
    num_own_tokens: int = 0
    end_flag: str = str(FinishFlag.STOP)
    cancels: tuple[tuple[int, RequestCancelled], ...] = ()
    filled: tuple[bytes, ...] = ()
    contents: RequestContents | None = None

    @property
    def number(self) -> int:
        return self.arrived.request

    def moved_to(self, at_ns: int) -> "Caller":
        """The same at another time, its deadline moved along."""
        by_ns, arrived = at_ns - self.at_ns, self.arrived
        deadline_ns = arrived.deadline_ns + by_ns if arrived.deadline_ns else 0
        return replace(
            self, at_ns=at_ns, arrived=arrived._replace(arrival_ns=arrived.arrival_ns + by_ns, deadline_ns=deadline_ns)
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """
    callers   in the order in which they came
    notices   (time, event) of what concerns no single request: drains, changes of policy
    steps     of the recording, by number
    """

    header: Header
    limits: Limits
    callers: tuple[Caller, ...]
    notices: tuple[tuple[int, PolicyChanged | DrainRequested], ...] = ()
    steps: tuple[RecordedStep, ...] = ()

    @property
    def has_contents(self) -> bool:
        return bool(self.callers) and all(caller.contents is not None for caller in self.callers)

    @property
    def most_steps(self) -> int:
        """No performance that makes progress takes more: each step computes a token, and few are computed often."""
        num_tokens = sum(caller.arrived.num_prompt_tokens + caller.arrived.max_output_tokens for caller in self.callers)
        return 10 * num_tokens + 1_000

    def only(self, callers: "tuple[Caller, ...]") -> "Scenario":
        return replace(self, callers=callers)


def scenario_of(life: Life, refuse: Callable[[CannotCompare], None], *, with_contents: bool) -> Scenario:
    """The life's scenario, as far as its entries can be understood; `refuse` is told where that ends.

    Raises NoContents when contents are asked for and no vault was kept.
    """
    contents = life.contents() if with_contents else None
    return scenario_from(life.header, life.comparable_entries(refuse), contents)


def scenario_of_stretch(stretch: Stretch, refuse: Callable[[CannotCompare], None], *, with_contents: bool) -> Scenario:
    """The same of a part of it: whoever was under way at its beginning comes there, with the tokens that it had.

    Raises NoContents as `scenario_of`.
    """
    contents = stretch.life.contents() if with_contents else None
    return scenario_from(stretch.header, stretch.entries(refuse), contents, stretch.under_way)


def scenario_from(
    header: Header, entries: Iterator[Entry], contents: Contents | None = None, under_way: UnderWay | None = None
) -> Scenario:
    reading = _Reading(contents)
    if under_way is not None:
        reading.begin_at(under_way)
    for entry in entries:
        reading.read(entry)
    return Scenario(
        header, Limits.from_dict(header.limits), reading.callers(), tuple(reading.notices), tuple(reading.steps)
    )


class _Reading:
    def __init__(self, contents: Contents | None) -> None:
        self.notices: list[tuple[int, PolicyChanged | DrainRequested]] = []
        self.steps: list[RecordedStep] = []
        self._contents = contents
        self._arrivals: dict[int, tuple[int, RequestArrived]] = {}
        self._cancels: dict[int, list[tuple[int, RequestCancelled]]] = {}
        self._filled: dict[int, dict[bytes, None]] = {}  # a block computed again has its old digest
        self._num_emitted: dict[int, int] = {}
        self._ends: dict[int, tuple[int, str]] = {}
        self._in_turn = InTurn()
        self._plan: tuple[StepShape, int] | None = None

    def begin_at(self, under_way: UnderWay) -> None:
        for arrived in under_way.arrivals:
            self._arrivals[arrived.request] = (under_way.now_ns, arrived)
            self._filled[arrived.request] = dict.fromkeys(under_way.filled[arrived.request])

    def read(self, recorded: Entry) -> None:
        entry = self._in_turn(recorded)
        event, now_ns = entry.event, entry.now_ns
        match event:
            case RequestArrived():
                self._arrivals.setdefault(event.request, (now_ns, event))
            case RequestCancelled():
                at_ns = self._arrivals.get(event.request, (now_ns, None))[0]
                self._cancels.setdefault(event.request, []).append((now_ns - at_ns, event))
            case PolicyChanged() | DrainRequested():
                self.notices.append((now_ns, event))
            case StepCompleted():
                self._read_step(event, now_ns)
            case StepFailed():
                self._close_step(now_ns, 0, 0, 0, event.error)
            case ExecutorRestarted() | _:
                pass  # of the engine before, or what execution noticed: it comes again by itself
        for decision in entry.decisions:
            if isinstance(decision, StepPlanned):
                self._plan = shape_of(decision.rows), now_ns

    def _read_step(self, event: StepCompleted, now_ns: int) -> None:
        self._close_step(now_ns, event.execute_ns, event.sample_ns, event.swap_ns)
        for request, digest in event.filled:
            self._filled.setdefault(request, {})[digest] = None
        for request, flag, _digest, _bits in event.emitted:
            self._num_emitted[request] = self._num_emitted.get(request, 0) + 1
            if flag != FinishFlag.NONE:
                self._ends[request] = self._num_emitted[request], str(flag)

    def _close_step(self, now_ns: int, execute_ns: int, sample_ns: int, swap_ns: int, error: str = "") -> None:
        if self._plan is not None:
            shape, planned_ns = self._plan
            self.steps.append(RecordedStep(shape, now_ns - planned_ns, execute_ns, sample_ns, swap_ns, error))
            self._plan = None

    def callers(self) -> tuple[Caller, ...]:
        return tuple([self._caller(at_ns, arrived) for at_ns, arrived in self._arrivals.values()])

    def _caller(self, at_ns: int, arrived: RequestArrived) -> Caller:
        number = arrived.request
        num_own_tokens, end_flag = self._ends.get(number, (0, str(FinishFlag.STOP)))
        return Caller(
            arrived,
            at_ns,
            num_own_tokens,
            end_flag,
            tuple(self._cancels.get(number, ())),
            tuple(self._filled.get(number, ())),
            self._contents_of(arrived),
        )

    def _contents_of(self, arrived: RequestArrived) -> RequestContents | None:
        """None where they were not kept, or not all that it had when it came."""
        given = self._contents.prompts.get(arrived.request) if self._contents else None
        if given is None or self._contents is None or arrived.num_output_tokens <= len(given.output_token_ids):
            return given
        outputs = self._contents.outputs(arrived.request)[: arrived.num_output_tokens]
        return given._replace(output_token_ids=tuple(outputs)) if len(outputs) == arrived.num_output_tokens else None
