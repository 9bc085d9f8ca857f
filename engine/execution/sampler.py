"""A request's side of drawing: its parameters and tokens as a backend takes them. The numbers are the backend's.

What penalties look at is kept up token by token, and only where there are penalties, so that a draw costs the same at
the end of a long answer as at its beginning.
"""

from array import array
from collections.abc import Iterable

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.token_mask import TokenMask
from kernels.sampling import NO_IDS, DrawParameters, DrawRow, SeenTokens, ids_of


class RequestSampler:
    """What the next draw depends on beside the logits.

    mask             of its grammar, where it has one
    stop_token_ids   cannot be drawn before min_tokens, so that the request cannot stop itself earlier
    """

    __slots__ = ("_banned", "_mask", "_min_tokens", "_num_taken", "_parameters", "_seen")

    def __init__(
        self,
        sampling: SamplingParams,
        contents: RequestContents,
        stop_token_ids: Iterable[int],
        mask: TokenMask | None = None,
    ) -> None:
        self._mask = mask
        self._parameters = _parameters(sampling, contents)
        self._min_tokens = sampling.min_tokens
        self._banned = ids_of(sorted(stop_token_ids)) if sampling.min_tokens > 0 else NO_IDS
        self._num_taken = 0
        self._seen: SeenTokens | None = None
        if self._parameters.has_penalties:
            self._seen = SeenTokens(contents.prompt_token_ids if sampling.repetition_penalty != 1.0 else ())

    def next_row(self) -> DrawRow:
        banned = self._banned if self._num_taken < self._min_tokens else NO_IDS
        allowed = None if self._mask is None else self._mask.allowed()
        return DrawRow(self._parameters, self._num_taken, self._seen, banned, allowed)

    def take(self, token_id: int) -> bool:
        """The answer has grown by this token; whether its grammar lets nothing follow."""
        self._num_taken += 1
        if self._seen is not None:
            self._seen.take(token_id)
        if self._mask is None:
            return False
        self._mask.take(token_id)
        return self._mask.is_complete


def _parameters(sampling: SamplingParams, contents: RequestContents) -> DrawParameters:
    return DrawParameters(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=sampling.seed,
        num_logprobs=sampling.num_logprobs,
        biased=ids_of([token_id for token_id, _ in contents.logit_bias]),
        biases=array("f", [bias for _, bias in contents.logit_bias]),
    )
