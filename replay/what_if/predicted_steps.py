"""Steps that are not executed: results from the recorded answers, time from `step_times.py`.

An answer's bits depend on nothing but the request (promise P4), so digests recorded under one schedule hold under any
other. It must not know who decides.
"""

from engine.clock import ManualClock
from engine.core.decisions import Decision
from engine.core.events import FinishFlag, RequestArrived, StepCompleted
from engine.core.scheduler import Core
from engine.core.step_time import shape_of
from recorder.header import Header
from replay.what_if.counterfactual import Planned
from replay.what_if.recorded_load import Answer, RecordedLoad
from replay.what_if.step_times import StepTimes

_NO_DIGESTS = (0, 0)
_GOES_ON = str(FinishFlag.NONE)


class PredictedSteps:
    """The `Steps` of a prediction. Time begins where the load's did, on that day.

    header   of the recording
    """

    def __init__(self, load: RecordedLoad, times: StepTimes, header: Header) -> None:
        self.clock = _RecordedDay(load.first_ns, header.created_wall_ns - header.created_now_ns)
        self._answers = load.answers
        self._times = times

    def wait_until(self, at_ns: int) -> None:
        self.clock.advance(max(0, at_ns - self.clock.now_ns()))

    def arrived(self, event: RequestArrived) -> RequestArrived:
        return event

    def carry_out(self, decision: Decision) -> None:
        pass

    def execute(self, planned: Planned, core: Core) -> StepCompleted:
        plan, size, requests, answers = planned.plan, core.limits.block_size, core.requests, self._answers
        emitted: list[tuple[int, str, int, int]] = []
        filled: list[tuple[int, bytes]] = []
        for number, start, count in plan.rows:
            request = requests.get(number)
            if request is None:  # it ended after the step was planned
                continue
            answer, end = answers[number], start + count
            if start // size != end // size:  # a block is full: of most rows none is
                first = max(start // size, request.num_prompt_tokens // size)
                filled += [
                    (number, answer.blocks.get(index) or _digest(number, index)) for index in range(first, end // size)
                ]
            num_emitted = request.num_output_tokens - core.awaits_token_of(number)
            if end == request.num_prompt_tokens + num_emitted:
                emitted.append(_token(number, answer, num_emitted))
        took = self._times.of(shape_of(plan.rows), planned.began_ns, planned.num_copied_blocks)
        self.wait_until(planned.began_ns + took.total_ns)
        return StepCompleted(plan.step, tuple(emitted), tuple(filled), took.execute_ns, took.sample_ns, took.swap_ns)


class _RecordedDay(ManualClock):
    def __init__(self, now_ns: int, wall_offset_ns: int) -> None:
        super().__init__(now_ns)
        self._wall_offset_ns = wall_offset_ns

    def wall_ns(self) -> int:
        return self.now_ns() + self._wall_offset_ns


def _token(number: int, answer: Answer, index: int) -> tuple[int, str, int, int]:
    """The request's output token of that place, as a step reports it."""
    hidden_digest, logprob_bits = answer.digests[index] if index < len(answer.digests) else _NO_DIGESTS
    num_before_its_end = answer.num_tokens - (answer.flag == FinishFlag.STOP)  # one that failed has no token there
    has_ended = answer.flag != FinishFlag.NONE and index >= num_before_its_end
    return (number, str(answer.flag) if has_ended else _GOES_ON, hidden_digest, logprob_bits)


def _digest(request: int, index: int) -> bytes:
    """Of a block that no recorded output filled."""
    return b"w%08d%07d" % (request, index)
