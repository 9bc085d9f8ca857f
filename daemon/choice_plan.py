"""Which requests one call makes of the engine: `n` or `best_of` of them for each prompt, in the API's order.

The first of a prompt computes its KV blocks, the others begin when it has its first token and read them; so a long
prompt is computed once. No bit depends on that (P4). It must not know the engine or HTTP.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from daemon import fields
from daemon.errors import bad_request
from daemon.fields import Body

MAX_CHOICES = 128  # of a call in all: prompts times choices


@dataclass(frozen=True, slots=True)
class Ask:
    """
    index   of the choice in the call, whose requests are numbered prompt by prompt
    leader  index of its prompt's first choice: its own, or of the one whose blocks it reads
    """

    index: int
    prompt: tuple[int, ...]
    seed: int
    leader: int


class ChoiceCounts(NamedTuple):
    """
    num_told    choices answered for each prompt: `n`
    num_tried   choices generated for each prompt: `best_of`, where it is more than n
    """

    num_told: int = 1
    num_tried: int = 1

    def asks(self, prompts: Sequence[tuple[int, ...]], seed: int) -> Iterator[Ask]:
        """All requests of the call, ascending by index."""
        for number, prompt in enumerate(prompts):
            leader = number * self.num_tried
            for place in range(self.num_tried):
                yield Ask(leader + place, prompt, choice_seed(seed, place), leader)

    def told(self, mean_logprobs: Sequence[float]) -> list[int]:
        """Indices of the choices that are answered, in the answer's order: of each prompt the likeliest by token."""
        told: list[int] = []
        for leader in range(0, len(mean_logprobs), self.num_tried):
            tried = list(range(leader, leader + self.num_tried))
            if self.num_told < self.num_tried:
                tried.sort(key=lambda index: -mean_logprobs[index])  # stable: equal ones stay in their order
            told += tried[: self.num_told]
        return told


ONE_CHOICE = ChoiceCounts()


def choice_seed(seed: int, place: int) -> int:
    """The seed of choice `place` of a prompt. The first has the request's own: it is what n = 1 would answer.

    The others have the first 63 bits of BLAKE2b over "SEED:PLACE" in decimal, little-endian.
    """
    if place == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def read_counts(body: Body, num_prompts: int, *, is_chat: bool, stream: bool) -> ChoiceCounts:
    """`n` and, in a completion, `best_of`. Raises ApiError 400."""
    num_told = fields.integer(body, "n", 1, 1, MAX_CHOICES)
    num_tried = num_told if is_chat else fields.integer(body, "best_of", num_told, 1, MAX_CHOICES)
    if num_tried < num_told:
        raise bad_request(f"best_of is {num_tried}, less than n ({num_told})", "best_of")
    if stream and num_tried > num_told:
        raise bad_request("best_of greater than n cannot be streamed: which is best shows at the end", "best_of")
    if num_prompts * num_tried > MAX_CHOICES:
        name = "best_of" if num_tried > num_told else "n"
        raise bad_request(
            f"{num_prompts} prompts and {name} of {num_tried} make {num_prompts * num_tried} choices, "
            f"at most {MAX_CHOICES} are generated in one call",
            name,
        )
    return ChoiceCounts(num_told, num_tried)
