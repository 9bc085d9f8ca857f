"""The executor of a simulation: a planned step → its result, in counts. It holds no token and no memory.

`engine/execution/scripted.py` is the twin that computes tokens from a context, to show that no context is another's;
here only the numbers matter that the core is told, a hundred times as fast.
"""

from engine.core.decisions import StepPlanned
from engine.core.events import FinishFlag, StepCompleted
from engine.core.step_time import shape_of
from replay.simulate.arrivals import Arrival
from replay.simulate.step_cost import StepCost

_TOKEN = str(FinishFlag.NONE)
_LAST_TOKEN = str(FinishFlag.STOP)


class CountingExecutor:
    """
    num_tokens       computed
    num_recomputed   of these, tokens that had been computed for the same request before a preemption
    """

    def __init__(self, block_size: int, cost: StepCost) -> None:
        self._block_size = block_size
        self._cost = cost
        self._held: dict[int, _Held] = {}
        self._num_copied = 0  # blocks, since the step before
        self.num_tokens = 0
        self.num_recomputed = 0

    def prompt_digests(self, request: int, arrival: Arrival) -> tuple[bytes, ...]:
        """Of the prompt's full blocks: a piece with an id is as many blocks as fit it, the same for everybody.

        Where no whole number of blocks makes a piece, nothing is shared.
        """
        num_blocks = arrival.num_prompt_tokens // self._block_size
        blocks_per_id, rest = divmod(arrival.tokens_per_id, self._block_size)
        if not arrival.prefix_ids or rest or not blocks_per_id:
            return tuple([_digest(request, index) for index in range(num_blocks)])
        return tuple(
            [
                b"s%07d%08d" % (index % blocks_per_id, arrival.prefix_ids[index // blocks_per_id])
                for index in range(num_blocks)
            ]
        )

    def add(self, request: int, arrival: Arrival) -> None:
        self._held[request] = _Held(request, arrival, self._block_size)

    def drop(self, request: int) -> None:
        del self._held[request]

    def copy_blocks(self, num_blocks: int) -> None:
        """So many KV blocks go to the host pool or come back before the next step."""
        self._num_copied += num_blocks

    def execute(self, plan: StepPlanned) -> StepCompleted:
        size, held_requests = self._block_size, self._held
        emitted: list[tuple[int, str, int, int]] = []
        filled: list[tuple[int, bytes]] = []
        for request, start, count in plan.rows:
            held = held_requests.get(request)
            if held is None:  # it has ended since the step was planned
                continue
            end = start + count
            self.num_tokens += count
            if start < held.num_once_computed:
                self.num_recomputed += min(end, held.num_once_computed) - start
            if end > held.num_once_computed:
                held.num_once_computed = end
            if count > 1 or end % size == 0:
                first = max(start // size, held.num_prompt_blocks)
                filled += [(request, _digest(request, index)) for index in range(first, end // size)]
            if end == held.num_tokens:
                held.num_tokens += 1
                emitted.append(held.token if held.num_tokens < held.num_all_tokens else held.last_token)
        step_ns = self._cost.of(shape_of(plan.rows))
        swap_ns, self._num_copied = self._cost.of_copies(self._num_copied, size), 0
        return StepCompleted(plan.step, tuple(emitted), tuple(filled), step_ns, 0, swap_ns)


class _Held:
    __slots__ = ("last_token", "num_all_tokens", "num_once_computed", "num_prompt_blocks", "num_tokens", "token")

    def __init__(self, request: int, arrival: Arrival, block_size: int) -> None:
        self.num_tokens = arrival.num_prompt_tokens
        self.num_all_tokens = arrival.num_prompt_tokens + arrival.num_output_tokens
        self.num_prompt_blocks = arrival.num_prompt_tokens // block_size
        self.num_once_computed = 0
        self.token = (request, _TOKEN, 0, 0)
        self.last_token = (request, _LAST_TOKEN, 0, 0)


def _digest(request: int, index: int) -> bytes:
    return b"r%08d%07d" % (request, index)
