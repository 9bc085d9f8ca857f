"""A burst of work in small portions: so many of those that wait go on in each turn of the event loop, in their order.

Between two turns the loop looks at its sockets, so a probe waits for one portion and not for the whole burst: a step
wakes as many streams as run, and thousands of requests may come at once. It must not know what the work is.
"""

import asyncio
from collections import deque

PER_TURN = 8  # of about 0.2 ms each


class Pacer:
    """One for all work of a loop."""

    def __init__(self, per_turn: int = PER_TURN) -> None:
        self._per_turn = per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def release(self, waiter: "asyncio.Future[None]") -> None:
        """Its result is set when its turn has come, unless it is done by then."""
        self._waiting.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            waiter.get_loop().call_soon(self._turn)

    async def turn(self) -> None:
        """Wait for one's turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.release(waiter)
        await waiter

    def _turn(self) -> None:
        num_released = 0
        while self._waiting and num_released < self._per_turn:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                num_released += 1
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._turn)
