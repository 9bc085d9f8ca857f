"""Loads for the zoo: what clients send in the course of one seed, and when.

They share prefixes, come in bursts, leave early, try again; nothing in them is made for a bug but the share of each.
"""

import random
from dataclasses import dataclass

from engine.core.contents import RequestContents
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, Cancel, Message

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """
    gap_ms          between two arrivals, at most; every fourth comes with the one before
    prompt, output  tokens beside a shared prefix, at least and at most
    prefix          tokens of each of `num_prefixes` shared ones; with 0 nothing is shared
    leaving         of 100 clients, so many leave after at most `leaves_ms`; half of them try again with the same prompt
    classes         of priority
    deadline_ms     they give up waiting after so long; 0: never
    """

    limits: Limits
    num_requests: int = 30
    gap_ms: float = 8.0
    prompt: tuple[int, int] = (1, 30)
    output: tuple[int, int] = (1, 24)
    prefix: int = 20
    num_prefixes: int = 3
    sharing: int = 60
    leaving: int = 0
    leaves_ms: float = 20.0
    classes: int = 1
    deadline_ms: float = 0.0

    def messages(self, seed: int) -> list[tuple[int, Message]]:
        """(time, message) in order of time."""
        rng = random.Random(f"zoo/{seed}")
        prefixes = [_tokens(rng, self.prefix) for _ in range(self.num_prefixes)]
        messages: list[tuple[int, Message]] = []
        now_ns = 1_000 * MS
        number = 0
        while number < self.num_requests:
            if rng.randrange(4):
                now_ns += int(rng.uniform(0, self.gap_ms) * MS)
            shared = rng.choice(prefixes) if rng.randrange(100) < self.sharing else ()
            prompt = shared + _tokens(rng, rng.randint(*self.prompt)) or _tokens(rng, 1)  # nobody asks with nothing
            arrive = self._arrive(rng, number, now_ns, prompt)
            messages.append((now_ns, arrive))
            number += 1
            if rng.randrange(100) < self.leaving:
                left_ns = now_ns + int(rng.uniform(0, self.leaves_ms) * MS)
                messages.append((left_ns, Cancel(arrive.request, "client")))
                if rng.randrange(2) and number < self.num_requests:
                    again_ns = left_ns + int(rng.uniform(0, 5) * MS)
                    messages.append((again_ns, self._arrive(rng, number, again_ns, prompt)))
                    number += 1
        return sorted(messages, key=lambda item: item[0])

    def _arrive(self, rng: random.Random, number: int, now_ns: int, prompt: tuple[int, ...]) -> Arrive:
        deadline_ns = now_ns + int(rng.uniform(0.2, 1) * self.deadline_ms * MS) if self.deadline_ms else 0
        return Arrive(
            number,
            f"req-{number}",
            "",
            rng.randrange(self.classes),
            now_ns,
            rng.randint(*self.output),
            SamplingParams(seed=rng.randrange(1 << 32), ignore_eos=True),
            RequestContents(prompt),
            0,
            0,
            deadline_ns,
        )


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple([rng.randrange(32, 127) for _ in range(count)])
