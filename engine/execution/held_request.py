"""One request as execution sees it: its tokens, its blocks, and what its sampler needs. The core's is elsewhere."""

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.sampler import History


class HeldRequest:
    """
    tokens        prompt, then what was emitted
    block_table   empty while it waits
    digests       of its full blocks, as far as they were needed
    """

    __slots__ = ("block_table", "contents", "digests", "num_prompt_tokens", "sampling", "stop_token_ids", "tokens")

    def __init__(
        self, sampling: SamplingParams, contents: RequestContents, eos_token_ids: tuple[int, ...], digests: list[bytes]
    ) -> None:
        self.sampling = sampling
        self.contents = contents
        self.tokens = list(contents.prompt_token_ids)
        self.num_prompt_tokens = len(self.tokens)
        self.stop_token_ids = frozenset(contents.stop_token_ids + (() if sampling.ignore_eos else eos_token_ids))
        self.block_table: list[int] = []
        self.digests = digests

    def history(self) -> History:
        """What the next draw depends on; before min_tokens the request cannot stop itself."""
        output = self.tokens[self.num_prompt_tokens :]
        banned = sorted(self.stop_token_ids) if len(output) < self.sampling.min_tokens else ()
        return History(self.contents.prompt_token_ids, output, self.contents.logit_bias, banned)
