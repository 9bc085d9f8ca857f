"""How tokens are drawn: what a backend is given beside its logits, and what it answers. It knows no request.

Order of operations, as users of vLLM know it: logit_bias, penalties, bans, what is allowed; temperature, min_p, top_k,
top_p; one uniform number (`philox.py`: a function of seed and position) looked up in the cumulative probabilities of
the kept tokens, in ascending order of token id. Ties go to the lowest id everywhere. A draw depends on its own row of
logits and on its DrawRow alone. `reference_sampling.py` is the meaning in numpy, `cpu/src/sampling.cpp` the native one.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


def ids_of(token_ids: Iterable[int]) -> "array[int]":
    """As the backends take them: int64."""
    return array("q", token_ids)


NO_IDS = ids_of(())  # nobody appends to it


@dataclass(frozen=True, slots=True, eq=False)
class DrawParameters:
    """What stays the same for all draws of one answer. The defaults leave the distribution as it is.

    temperature    0 means greedy
    top_k          0 means all
    seed           any integer; its lowest 64 bits count
    num_logprobs   alternatives to report; none below 1
    biased         token ids whose logits the `biases` (float32) are added to; others than the vocabulary's are ignored
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    num_logprobs: int = -1
    biased: "array[int]" = field(default_factory=lambda: ids_of(()))
    biases: "array[float]" = field(default_factory=lambda: array("f"))

    def __post_init__(self) -> None:
        assert len(self.biased) == len(self.biases), "each biased token has one bias"

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


class SeenTokens:
    """The distinct tokens that penalties look at, kept up with one token at a time.

    ids      int64, in the order in which they were first seen
    counts   int64, beside them: how often each is in the output; 0: in the prompt only
    """

    __slots__ = ("_places", "counts", "ids")

    def __init__(self, prompt: Iterable[int] = (), output: Iterable[int] = ()) -> None:
        self.ids = ids_of(dict.fromkeys(prompt))
        self.counts = ids_of([0]) * len(self.ids)
        self._places = {token_id: place for place, token_id in enumerate(self.ids)}
        for token_id in output:
            self.take(token_id)

    def take(self, token_id: int) -> None:
        """One more token of the output."""
        place = self._places.setdefault(token_id, len(self.ids))
        if place == len(self.ids):
            self.ids.append(token_id)
            self.counts.append(1)
        else:
            self.counts[place] += 1


class DrawRow(NamedTuple):
    """
    position   number of the token in the answer, from 0
    seen       what penalties look at; None where there are none
    banned     ids that cannot be drawn; those outside the vocabulary are passed over
    allowed    uint32 words, the lowest bit of the first is token 0's: only ids with their bit set can be drawn, none
               beyond the words; None: all can
    """

    parameters: DrawParameters
    position: int
    seen: SeenTokens | None = None
    banned: "array[int]" = NO_IDS
    allowed: "array[int] | None" = None


class Draw(NamedTuple):
    """
    is_finite      False: the logits held nan or inf, or every token is banned; the other fields then mean nothing
                   (token 0, log-probability 0)
    logprob        float32 value; natural-log probability under the unmodified logits
    top_logprobs   (token id, log-probability), most likely first, ties by lowest id
    """

    is_finite: bool
    token_id: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...]


NO_DRAW = Draw(False, 0, 0.0, ())
