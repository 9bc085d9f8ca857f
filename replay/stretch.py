"""A stretch of an engine's life as a load: from its beginning, or from a keyframe on.

A core that performs a load begins empty. So whoever was under way at a keyframe arrives there once more, as a request
arrives that is handed over from an engine that died: with the tokens that it had, past every bound of the queue. What
the cache held is not there, and those tokens are computed again; so the first moments are busier than they were.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.core.decisions import StepPlanned
from engine.core.events import RequestArrived
from engine.core.request import Request, Status
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from recorder.header import Header
from replay.lives import Life, Refuse
from replay.own_policy import thawed_core
from replay.refusal import CannotCompare
from replay.span import Beginning, Resumption, Span, beginning_of, moments, stretches


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What a core had to do at a keyframe.

    arrivals   everybody who was live, in order of their numbers, as if they came now
    filled     request → digests of the blocks that its output had filled
    plan       the step under way
    """

    now_ns: int
    arrivals: tuple[RequestArrived, ...]
    filled: dict[int, tuple[bytes, ...]]
    plan: StepPlanned | None

    def entries(self) -> Iterator[Entry]:
        """Their arrivals, for who reads entries."""
        for arrived in self.arrivals:
            yield Entry(-1, self.now_ns, arrived, ())


@dataclass(frozen=True, slots=True)
class Stretch:
    """
    under_way   None: it begins with the engine process
    header      of the life; limits as they were at the beginning of the stretch
    """

    life: Life
    header: Header
    under_way: UnderWay | None
    beginning: Beginning
    last_step: int | None

    def entries(self, refuse: Refuse) -> Iterator[Entry]:
        """Up to its end, or to the first place where some are missing or cannot be understood."""
        if self.under_way is None and self.last_step is None:
            yield from self.life.comparable_entries(refuse)
            return
        found = stretches(moments(self.life, self.beginning, refuse, self.last_step))
        _none, entries = next(found)
        yield from entries
        if self.under_way is not None:
            yield from next(found, (None, iter(())))[1]


def stretches_of(lives: list[Life], span: Span, refuse: Refuse) -> list[Stretch]:
    """One for each life that the span touches; `refuse` is told why one cannot begin.

    Raises CannotCompare when there is no such part.
    """
    found: list[Stretch] = []
    for number, life in enumerate(span.lives_of(lives)):
        first = span.first if number == 0 else None
        try:
            found.append(_stretch(life, None if first is None else first.step, span.last))
        except CannotCompare as refusal:
            refuse(refusal)
    return found


def _stretch(life: Life, first_step: int | None, last_step: int | None) -> Stretch:
    beginning = beginning_of(life, first_step)
    if not beginning.at_keyframe:
        return Stretch(life, life.header, None, beginning, last_step)
    resumption = next((it for it in moments(life, beginning, _nobody) if isinstance(it, Resumption)), None)
    if resumption is None:
        raise CannotCompare(f"the keyframe at sequence {beginning.sequence} cannot be read", "begin at another step")
    core = thawed_core(life.header, resumption.keyframe)
    header = replace(life.header, limits=core.limits.to_dict())
    return Stretch(life, header, _under_way(core, resumption.entry.now_ns), beginning, last_step)


def _nobody(refusal: CannotCompare) -> None:
    """It is told again by who reads the entries."""


def _under_way(core: Core, now_ns: int) -> UnderWay:
    block_size = core.limits.block_size
    live = sorted(core.requests.values(), key=lambda request: request.number)
    return UnderWay(
        now_ns,
        tuple([as_arrived(request, block_size) for request in live]),
        {it.number: tuple(it.block_digests[it.num_prompt_tokens // block_size :]) for it in live},
        core.step_under_way,
    )


def as_arrived(request: Request, block_size: int) -> RequestArrived:
    """As if it had arrived with the tokens that it has, handed over: it was taken in before."""
    return RequestArrived(
        request.number,
        request.request_id,
        request.tenant,
        request.priority,
        request.arrival_ns,
        request.num_prompt_tokens,
        request.max_output_tokens,
        tuple(request.block_digests[: request.num_prompt_tokens // block_size]),
        request.sampling,
        request.ttft_target_ms,
        request.itl_target_ms,
        request.deadline_ns if request.status is Status.WAITING else 0,
        request.num_output_tokens,
        num_handovers=1,
        num_cached_tokens=request.num_cached_tokens,
        wants_prompt_logprobs=request.wants_prompt_logprobs,
    )
