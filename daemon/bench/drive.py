"""A workload sent to one endpoint, all from one thread: in a closed loop, or at the times of an open one."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from daemon.bench.client import Answer, measure
from daemon.bench.endpoint import Endpoint
from daemon.bench.prompts import IdRange, Prompt, write_prompts
from daemon.bench.workloads import ClosedLoop, PlannedRequest, Workload
from engine.clock import Clock

_READ_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Drive:
    """
    answers   one for each request, by index
    wall_ns   from the start to the end of the last answer
    cpu_ns    spent by this process meanwhile: what the load itself took from the machine
    """

    answers: list[Answer]
    wall_ns: int
    cpu_ns: int


async def drive(
    endpoint: Endpoint,
    workload: Workload,
    prompts: Sequence[Prompt],
    *,
    clock: Clock,
    timeout_s: float,
    on_end: Callable[[], None] = lambda: None,
) -> Drive:
    """Send all requests of the workload; returns when the last answer has ended.

    prompts     one for each request
    timeout_s   for each request, from sending to its end
    on_end      called as each answer ends
    """
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=0, force_close=True),  # some servers drop connections that are kept open
        read_bufsize=_READ_BUFFER_BYTES,
    ) as session:
        run = _Run(session, endpoint, workload, prompts, clock, on_end)
        cpu_ns = time.process_time_ns()
        if isinstance(workload.load, ClosedLoop):
            await asyncio.gather(*[run.send_one_by_one() for _ in range(workload.load.num_clients)])
        else:
            await asyncio.gather(*[run.send_when_due(request) for request in workload.requests])
        cpu_ns = time.process_time_ns() - cpu_ns
    answers = sorted(run.answers, key=lambda answer: answer.index)
    return Drive(answers, max((answer.sent_ns + answer.ended_ns for answer in answers), default=0), cpu_ns)


async def warm_up(
    endpoint: Endpoint, num_requests: int, form: str, key: object, id_range: IdRange, clock: Clock, timeout_s: float
) -> None:
    """Tiny requests one after the other, whose answers nobody looks at: a failing server fails again when it counts."""
    planned = [PlannedRequest(index, "warm-up", 16, 8, None) for index in range(num_requests)]
    workload = Workload("warm-up", 0, ClosedLoop(1, num_requests), 0, tuple(planned))
    await drive(endpoint, workload, write_prompts(workload, form, key, id_range), clock=clock, timeout_s=timeout_s)


class _Run:
    """A drive under way. Bodies are encoded before it starts, so that sending costs little while it lasts."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        workload: Workload,
        prompts: Sequence[Prompt],
        clock: Clock,
        on_end: Callable[[], None],
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._paths = [prompt.path for prompt in prompts]
        self._bodies = [
            endpoint.body(prompt, request.num_output_tokens)
            for request, prompt in zip(workload.requests, prompts, strict=True)
        ]
        self._unsent = iter(workload.requests)  # shared by the clients of a closed loop
        self._clock = clock
        self._on_end = on_end
        self.answers: list[Answer] = []
        self._start_ns = clock.now_ns()

    async def send_one_by_one(self) -> None:
        for request in self._unsent:
            await self._send(request)

    async def send_when_due(self, request: PlannedRequest) -> None:
        assert request.due_s is not None
        elapsed_s = (self._clock.now_ns() - self._start_ns) / 1e9
        await asyncio.sleep(max(0.0, request.due_s - elapsed_s))
        await self._send(request)

    async def _send(self, request: PlannedRequest) -> None:
        path, body = self._paths[request.index], self._bodies[request.index]
        answer = await measure(self._session, self._endpoint, request, path, body, self._clock, self._start_ns)
        self.answers.append(answer)
        self._on_end()
