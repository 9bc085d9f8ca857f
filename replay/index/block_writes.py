"""Who wrote into a block, and in which steps: a run of steps in a row is told once, by the first result without it.

A step's writes count when its result comes: a request that a KV mismatch took out of the step was not computed. One
whose step failed may have written, so it counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.core.decisions import RequestAdmitted, StepPlanned
from replay.index.moment import Moment
from replay.index.sink import Sink


@dataclass(slots=True)
class _Run:
    """sequence: of the result of its first step."""

    request: int
    sequence: int
    step: int
    to_step: int


class BlockWrites:
    """Told of plans and results; a run is over with a result without it, and when its block is given up."""

    def __init__(self, moment: Moment, sink: Sink) -> None:
        self._moment = moment
        self._sink = sink
        self._block_size = 1
        self._under_way: dict[int, tuple[int, int]] = {}  # block → request, step
        self._runs: dict[int, _Run] = {}  # by block: those of the last result

    def begin_life(self, block_size: int) -> None:
        self.end_all()
        self._block_size = block_size
        self._under_way.clear()

    def on_admitted(self, decision: RequestAdmitted) -> None:
        """What is copied from the host pool is written too."""
        first = decision.num_hit_blocks
        for block in decision.block_ids[first : first + len(decision.host_blocks)]:
            self._under_way[block] = (decision.request, self._moment.step)

    def on_planned(self, plan: StepPlanned, tables: Mapping[int, Sequence[int]]) -> None:
        size, under_way = self._block_size, self._under_way
        for request, start, count in plan.rows:
            table = tables.get(request, ())
            if count == 1:
                place = start // size
                if place < len(table):
                    under_way[table[place]] = (request, plan.step)
            else:
                for block in table[start // size : -(-(start + count) // size)]:
                    under_way[block] = (request, plan.step)

    def take_out(self, request: int) -> None:
        """It is not computed in the step under way."""
        self._under_way = {block: by for block, by in self._under_way.items() if by[0] != request}

    def on_result(self) -> None:
        sequence, runs, under_way = self._moment.sequence, self._runs, self._under_way
        for block in [block for block in runs if block not in under_way]:
            self._tell(block, runs.pop(block), 0)
        for block, (request, step) in under_way.items():
            run = runs.get(block)
            if run is not None:
                if run.to_step == step - 1 and run.request == request:
                    run.to_step = step
                    continue
                self._tell(block, run, 0)
            runs[block] = _Run(request, sequence, step, step)
        under_way.clear()

    def given_up(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            run = self._runs.pop(block, None)
            if run is not None:
                self._tell(block, run, 0)

    def end_all(self) -> None:
        self.given_up(list(self._runs))

    def tell_open(self) -> None:
        """Those under way, as far as they have come."""
        for block, run in self._runs.items():
            self._tell(block, run, 1)

    def _tell(self, block: int, run: _Run, is_open: int) -> None:
        life = self._moment.life
        self._sink.add(
            "block_events", life, block, run.sequence, run.step, run.to_step, "written", run.request, is_open
        )
