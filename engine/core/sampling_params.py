"""How a request's tokens are drawn: the numbers of the sampler, opaque to the core, recorded with the arrival.

Token ids given by the client (stop tokens, biases) are contents and travel in `RequestContents` instead.
"""

from typing import NamedTuple


class SamplingParams(NamedTuple):
    """Parameters of one request's sampler; the defaults leave the distribution as it is.

    temperature         0 means greedy
    top_k               0 means all
    seed                always set; one is drawn by the daemon where the client gave none
    num_logprobs        alternatives to report per token; -1 reports none, 0 only the chosen token's own
    min_tokens          end-of-text and stop tokens cannot be drawn before so many output tokens
    ignore_eos          the model's own end-of-text tokens do not end the request
    num_prompt_logprobs alternatives to report per token of the prompt, as num_logprobs
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
    min_tokens: int = 0
    ignore_eos: bool = False
    num_prompt_logprobs: int = -1
