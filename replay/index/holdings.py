"""Who has which KV blocks, as the decisions tell it: allocated, shared, given up, evicted.

Where entries are missing nothing is known until the next keyframe. It must not know plans of the core, only its words.
"""

from collections.abc import Iterable, Mapping, Sequence

from engine.core.decisions import RequestAdmitted, StepPlanned
from replay.index.moment import Moment
from replay.index.sink import Sink


class Holdings:
    """
    tables   request → its blocks, in order
    """

    def __init__(self, moment: Moment, sink: Sink) -> None:
        self.tables: dict[int, list[int]] = {}
        self._counts: dict[int, int] = {}  # of blocks that somebody holds
        self._moment = moment
        self._sink = sink

    def clear(self) -> None:
        """A new engine begins with an empty pool, or nothing is known any more."""
        self.tables.clear()
        self._counts.clear()

    def restore(self, tables: Mapping[int, Sequence[int]]) -> None:
        """As a keyframe has them."""
        self.clear()
        for request, blocks in tables.items():
            self._hold(request, blocks)

    def on_admitted(self, decision: RequestAdmitted) -> None:
        request, num_hits = decision.request, decision.num_hit_blocks
        self._tell("evicted", decision.evicted_blocks, request)
        self._tell("hit", decision.block_ids[:num_hits], request)
        self._tell("allocated", decision.block_ids[num_hits:], request)
        self._hold(request, decision.block_ids)

    def on_planned(self, plan: StepPlanned) -> None:
        """Evictions of a step come with its plan, which does not say for whom each of them was."""
        self._tell("evicted", plan.evicted_blocks, -1)
        for request, block in plan.new_blocks:
            self._tell("allocated", (block,), request)
            self._hold(request, (block,))

    def give_up(self, request: int) -> list[int]:
        """Preempted or ended: its blocks, in the order in which it gave them up."""
        blocks = self.tables.pop(request, [])[::-1]
        for block in blocks:
            count = self._counts[block] - 1
            if count:
                self._counts[block] = count
            else:
                del self._counts[block]
            self._tell("released" if count else "freed", (block,), request)
        return blocks

    def _hold(self, request: int, blocks: Iterable[int]) -> None:
        table = self.tables.setdefault(request, [])
        for block in blocks:
            table.append(block)
            self._counts[block] = self._counts.get(block, 0) + 1

    def _tell(self, kind: str, blocks: Iterable[int], request: int) -> None:
        moment, add = self._moment, self._sink.add
        for block in blocks:
            add("block_events", moment.life, block, moment.sequence, moment.step, None, kind, request, 0)
