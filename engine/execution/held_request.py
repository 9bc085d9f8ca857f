"""One request as execution sees it: its tokens, its blocks, and what its sampler needs. The core's is elsewhere."""

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.sampler import RequestSampler
from engine.execution.token_mask import TokenMask
from engine.text.detokenizer import Detokenizer
from engine.text.stop_strings import StopStringFinder
from engine.text.text_model import TextModel


class StopStringWatch:
    """Follows one answer's text until it contains a stop string; the daemon cuts the same text at the same place."""

    def __init__(self, text_model: TextModel, sampling: SamplingParams, contents: RequestContents) -> None:
        self._detokenizer = Detokenizer(text_model, follows_text=contents.follows_text)
        self._finder = StopStringFinder(contents.stop_strings)
        self._min_tokens = sampling.min_tokens
        self._num_tokens = 0

    def push(self, token_id: int) -> bool:
        """Whether the answer ends with this token."""
        self._num_tokens += 1
        self._finder.push(self._detokenizer.push(token_id), may_stop=self._num_tokens >= self._min_tokens)
        return self._finder.stopped_by is not None


class HeldRequest:
    """
    tokens        prompt, then what was emitted
    block_table   empty while it waits
    digests       of its full blocks, as far as they were needed
    sampler       what its next draw depends on
    stop_strings  follows the answer's text, where the client gave stop strings
    has_ended     its last token was drawn, or could not be: a row that was planned before that is not computed
    """

    __slots__ = (
        "block_table",
        "contents",
        "digests",
        "has_ended",
        "num_prompt_tokens",
        "sampler",
        "stop_strings",
        "stop_token_ids",
        "tokens",
    )

    def __init__(
        self, sampling: SamplingParams, contents: RequestContents, text_model: TextModel, digests: list[bytes]
    ) -> None:
        self.contents = contents
        self.tokens = list(contents.prompt_token_ids)
        self.num_prompt_tokens = len(self.tokens)
        own_ends = () if sampling.ignore_eos else text_model.eos_token_ids
        self.stop_token_ids = frozenset(contents.stop_token_ids + own_ends)
        mask = TokenMask(text_model, contents.grammar) if contents.grammar else None
        self.sampler = RequestSampler(sampling, contents, self.stop_token_ids, mask)
        self.stop_strings = StopStringWatch(text_model, sampling, contents) if contents.stop_strings else None
        self.block_table: list[int] = []
        self.digests = digests
        self.has_ended = False
        for token_id in contents.output_token_ids:  # an engine before this one drew them; none of them ended the answer
            self.takes(token_id)

    def takes(self, token_id: int) -> bool:
        """Append a token that was drawn; whether the answer ends with it."""
        self.tokens.append(token_id)
        is_whole = self.sampler.take(token_id)
        completes_stop_string = self.stop_strings is not None and self.stop_strings.push(token_id)
        self.has_ended = is_whole or completes_stop_string or token_id in self.stop_token_ids
        return self.has_ended
