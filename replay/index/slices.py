"""What each request was at, from when to when: the rows that a timeline draws. A decode run is one of them.

It must not know blocks, nor why anybody waits beyond the reason it was told.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.core.decisions import PreemptMode, RequestPreempted, StepPlanned
from replay.index.moment import Moment
from replay.index.sink import Sink


@dataclass(slots=True)
class _Slice:
    kind: str
    from_ns: int
    to_ns: int
    from_step: int
    to_step: int
    num_tokens: int = 0
    num_rows: int = 0
    detail: str = ""


class Slices:
    """Told of what happens to requests; an open slice of each that waits or decodes.

    num_known   request → prompt tokens and those emitted, which tell a decode from a prefill
    """

    def __init__(self, moment: Moment, sink: Sink) -> None:
        self.num_known: dict[int, tuple[int, int]] = {}
        self._moment = moment
        self._sink = sink
        self._waiting: dict[int, _Slice] = {}
        self._decoding: dict[int, _Slice] = {}
        self._prefills: dict[int, _Slice] = {}  # of the step under way

    def on_queued(self, request: int, num_prompt_tokens: int, num_output_tokens: int) -> None:
        self.num_known[request] = (num_prompt_tokens, num_output_tokens)
        self._waiting[request] = self._new("queued")

    def on_admitted(self, request: int) -> None:
        self._end_waiting(request)

    def on_preempted(self, decision: RequestPreempted) -> None:
        self._end_rows(decision.request)
        slice_ = self._new("swapped" if decision.mode == PreemptMode.SWAP else "preempted")
        slice_.detail = str(decision.reason)
        self._waiting[decision.request] = slice_

    def on_planned(self, plan: StepPlanned) -> tuple[int, int]:
        """Returns the step's prefill tokens and its decode rows."""
        num_prefill_tokens = num_decodes = 0
        num_known, decoding, step = self.num_known, self._decoding, plan.step
        for request, start, count in plan.rows:
            num_prompt, num_output = num_known.get(request, (0, 0))
            if count != 1 or num_output == 0 or start != num_prompt + num_output - 1:
                num_prefill_tokens += count
                prefill = self._prefills[request] = self._new("prefill")
                prefill.num_tokens, prefill.detail = count, f"from token {start}"
                continue
            num_decodes += 1
            run = decoding.get(request)
            if run is None:
                run = decoding[request] = self._new("decode")
            run.to_step = step
            run.num_rows += 1
        return num_prefill_tokens, num_decodes

    def on_emitted(self, rows: Iterable[tuple[int, int]]) -> None:
        """(request, its output tokens by now) of each."""
        num_known, decoding, now_ns = self.num_known, self._decoding, self._moment.now_ns
        for request, num_output_tokens in rows:
            known = num_known.get(request)
            if known is not None:
                num_known[request] = (known[0], num_output_tokens)
            run = decoding.get(request)
            if run is not None:
                run.num_tokens += 1
                run.to_ns = now_ns

    def on_result(self) -> None:
        for request, prefill in self._prefills.items():
            self._tell(request, prefill)
        self._prefills.clear()

    def on_finished(self, request: int) -> None:
        self._end_waiting(request)
        self._end_rows(request)
        self.num_known.pop(request, None)

    def end_all(self) -> None:
        """Of a life: no request goes on in it."""
        self.on_result()
        for request in [*self._waiting, *self._decoding]:
            self.on_finished(request)
        self.num_known.clear()

    def tell_open(self) -> None:
        for slices in (self._waiting, self._decoding, self._prefills):
            for request, slice_ in slices.items():
                self._tell(request, slice_, is_open=1)

    def _end_waiting(self, request: int) -> None:
        waited = self._waiting.pop(request, None)
        if waited is not None:
            waited.to_step = self._moment.step
            self._tell(request, waited)

    def _end_rows(self, request: int) -> None:
        for slices in (self._prefills, self._decoding):
            row = slices.pop(request, None)
            if row is not None:
                self._tell(request, row)

    def _new(self, kind: str) -> _Slice:
        moment = self._moment
        return _Slice(kind, moment.now_ns, moment.now_ns, moment.step, moment.step)

    def _tell(self, request: int, told: _Slice, is_open: int = 0) -> None:
        to_ns = told.to_ns if told.kind == "decode" and told.num_tokens else self._moment.now_ns
        detail = f"{told.num_rows} rows" if told.kind == "decode" else told.detail
        values = (told.kind, told.from_ns, to_ns, told.from_step, told.to_step, told.num_tokens, detail)
        self._sink.add("slices", self._moment.life, request, *values, is_open)
