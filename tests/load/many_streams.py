"""Streams held open, streams queued behind them, more than may queue, and among them clients that read slowly or never.

`overload(...)` plays it against a daemon and returns the books; what must hold of them is `Books.check`, whatever the
machine's speed. It must not know how fast anything is.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.load.raw_client import Answer, Pace, ask, num_live, num_waiting

HELD, QUEUED = "held", "queued"
WAIT_SECONDS = 180.0
CONNECTIONS_PER_SECOND = 500
ENDLESS_TOKENS = 4_000  # of answers that nobody reads: more than all buffers take


@dataclass(frozen=True, slots=True)
class Load:
    """
    num_held, num_queued      streams that run at the same time, and that wait for these; the daemon's bounds exactly
    num_beyond                more than may wait
    num_slow, num_never       of the held, those that read slowly, and not at all
    held_tokens, queued_tokens   output of each
    """

    num_held: int
    num_queued: int
    num_beyond: int
    num_slow: int
    num_never: int
    held_tokens: int
    queued_tokens: int


@dataclass(slots=True)
class Books:
    """Every answer, by what its client was for."""

    load: Load
    answers: dict[tuple[str, Pace], list[Answer]] = field(default_factory=dict)
    beyond: list[Answer] = field(default_factory=list)

    def check(self) -> None:
        """Whole answers, honest refusals, and cut ones only of clients that read nothing."""
        for (kind, pace), answers in self.answers.items():
            if pace is Pace.NEVER:
                assert all(answer.status == 200 and not answer.is_done for answer in answers), self.summary()
                continue
            tokens = self.load.held_tokens if kind == HELD else self.load.queued_tokens
            for answer in answers:
                assert (answer.status, answer.is_done, answer.was_cut) == (200, True, False), (kind, pace, answer)
                assert answer.num_events >= tokens, (kind, pace, answer)
        for answer in self.beyond:
            if answer.status == 200:  # the queue had moved on by then
                assert answer.is_done, answer
                continue
            assert answer.status in (429, 503), answer
            assert int(answer.headers["retry-after"]) > 0
            assert json.loads(answer.body)["error"]["code"] == "queue_full"

    def summary(self) -> str:
        told = [f"{kind}, read {pace}: {_counts(answers)}" for (kind, pace), answers in self.answers.items()]
        return "; ".join([*told, f"beyond: {_counts(self.beyond)}"])


async def overload(port: int, load: Load) -> Books:
    """All of it. Who reads nothing looks again once the daemon has no request left: it has dropped them by then."""
    books, tasks, leave = Books(load), [], asyncio.Event()

    def send(kind: str, pace: Pace, number: int, tokens: int) -> list[Answer]:
        answers = [Answer() for _ in range(number)]
        books.answers[kind, pace] = answers
        for index, answer in enumerate(answers):
            body = {"prompt": [1 + index % 900] * 8, "max_tokens": tokens, "ignore_eos": True, "stream": True}
            body["return_token_ids"] = True  # an event for each token, also for those without text
            if pace is not Pace.AT_ONCE:
                body["logprobs"] = 5  # more bytes a token
            tasks.append(asyncio.create_task(ask_later(index, body, pace, answer)))
        return answers

    async def ask_later(index: int, body: dict[str, Any], pace: Pace, answer: Answer) -> None:
        await asyncio.sleep(index / CONNECTIONS_PER_SECOND)
        await ask(port, body, pace, answer, leave)

    num_fast = load.num_held - load.num_slow - load.num_never
    held = [*send(HELD, Pace.NEVER, load.num_never, ENDLESS_TOKENS)]
    held += send(HELD, Pace.SLOWLY, load.num_slow, load.held_tokens)
    held += send(HELD, Pace.AT_ONCE, num_fast, load.held_tokens)
    await asyncio.gather(*[answer.has_begun.wait() for answer in held])
    await _until_none(num_waiting, port)
    queued = send(QUEUED, Pace.AT_ONCE, load.num_queued, load.queued_tokens)
    await asyncio.gather(*[answer.has_begun.wait() for answer in queued])  # a stream's head comes when it is queued
    books.beyond = [Answer() for _ in range(load.num_beyond)]
    one = {"prompt": [7] * 8, "max_tokens": 1, "stream": True}
    await asyncio.gather(*[ask(port, one, Pace.AT_ONCE, answer) for answer in books.beyond])
    await asyncio.gather(*tasks[load.num_never :])
    await _until_none(num_live, port)
    leave.set()
    await asyncio.gather(*tasks[: load.num_never])
    return books


async def _until_none(number: Callable[[int], Awaitable[int]], port: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while await number(port):
            await asyncio.sleep(0.1)


def _counts(answers: list[Answer]) -> str:
    told = Counter(
        f"{answer.status}{' whole' if answer.is_done else ' cut' if answer.was_cut else ''}" for answer in answers
    )
    return ", ".join(f"{number} × {kind}" for kind, number in sorted(told.items()))
