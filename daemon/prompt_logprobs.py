"""Log-probabilities of a prompt's tokens: how they are asked for, how many are told, and in which of two shapes.

`echo` with `logprobs` is OpenAI's way: the prompt's tokens stand before the answer's in the same four lists.
`prompt_logprobs` is vLLM's: a list of its own, of what each token has, and the likeliest beside it. The first token has
nothing before it, so it has null in both. It must not know HTTP or the engine.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from daemon import fields
from daemon.errors import bad_request
from daemon.fields import Body
from daemon.mailbox import PromptTold
from daemon.token_spelling import spelling
from engine.text.detokenizer import Detokenizer
from engine.text.text_model import TextModel

Json = dict[str, Any]

MAX_PROMPT_LOGPROBS = 20
MAX_TOLD = 262_144  # log-probabilities in an answer: 25 MB of JSON


class PromptAsk(NamedTuple):
    """Alternatives wanted with each token of the prompt; -1: its log-probability is not wanted.

    num_listed   in vLLM's list
    num_echoed   in OpenAI's four
    """

    num_listed: int = -1
    num_echoed: int = -1

    @property
    def num_top(self) -> int:
        """What the engine is asked for, as `SamplingParams.num_prompt_logprobs`."""
        return max(self.num_listed, self.num_echoed)

    @property
    def field(self) -> str:
        return "prompt_logprobs" if self.num_listed >= self.num_echoed else "logprobs"

    def require_bound(self, prompts: Sequence[tuple[int, ...]], num_choices: int) -> None:
        """Raises ApiError 400 when an answer would hold too many. num_choices: answered for each prompt."""
        num_tokens = num_choices * sum([len(prompt) for prompt in prompts])
        if self.num_top >= 0 and num_tokens * (self.num_top + 1) > MAX_TOLD:
            raise bad_request(
                f"{num_tokens} tokens of prompts with {self.num_top} alternatives each are "
                f"{num_tokens * (self.num_top + 1)} log-probabilities, at most {MAX_TOLD} are told in one answer: "
                f"ask about fewer prompts at once, or lower {self.field}",
                self.field,
            )


NOTHING_ASKED = PromptAsk()


def read_prompt_ask(body: Body, num_logprobs: int, *, is_chat: bool) -> PromptAsk:
    """num_logprobs: of the answer's tokens. Raises ApiError 400 that names the field."""
    num_listed = fields.integer(body, "prompt_logprobs", -1, 0, MAX_PROMPT_LOGPROBS)
    echoes = not is_chat and fields.boolean(body, "echo")
    return PromptAsk(num_listed, num_logprobs if echoes else -1)


class PromptToken(NamedTuple):
    """
    text_offset    characters of the prompt before it
    logprob, rank  None and 0 of the first one
    top            (token id, text, log-probability), most likely first
    """

    token_id: int
    text: str
    text_offset: int
    logprob: float | None
    rank: int
    top: tuple[tuple[int, str, float], ...]


def prompt_tokens(told: PromptTold, text_model: TextModel) -> tuple[PromptToken, ...]:
    """All tokens of the prompt that `told` is about."""
    detokenizer, texts, num_chars = Detokenizer(text_model), _Texts(text_model), 0
    logprobs, ranks, tops = _columns(told)
    tokens = []
    for token_id, logprob, rank, top in zip(told.token_ids, logprobs, ranks, tops, strict=True):
        alternatives = tuple([(top_id, texts[top_id], value) for top_id, value in top])
        tokens.append(PromptToken(token_id, texts[token_id], num_chars, logprob, rank, alternatives))
        num_chars += len(detokenizer.push(token_id))
    return tuple(tokens)


def echoed(tokens: Sequence[PromptToken], num_top: int, num_chars: int) -> Json:
    """OpenAI's four lists of equal length. num_chars: of the text that is echoed; no offset lies beyond it."""
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [
            None if token.logprob is None else {text: logprob for _id, text, logprob in token.top[:num_top]}
            for token in tokens
        ],
        "text_offset": [min(token.text_offset, num_chars) for token in tokens],
    }


def listed(tokens: Sequence[PromptToken], num_top: int) -> list[Json | None]:
    """vLLM's list: by token id, the token's own first, then the likeliest."""
    return [None if token.logprob is None else _listed(token, num_top) for token in tokens]


def _listed(token: PromptToken, num_top: int) -> Json:
    own = {"logprob": token.logprob, "rank": token.rank, "decoded_token": token.text}
    likeliest = {
        str(top_id): {"logprob": logprob, "rank": place + 1, "decoded_token": text}
        for place, (top_id, text, logprob) in enumerate(token.top[:num_top])
    }
    return {str(token.token_id): own, **likeliest}


class _Texts(dict[int, str]):
    """By token id; each is spelled once."""

    def __init__(self, text_model: TextModel) -> None:
        super().__init__()
        self._text_model = text_model

    def __missing__(self, token_id: int) -> str:
        text = self[token_id] = spelling(self._text_model, token_id)[0]
        return text


def _columns(told: PromptTold) -> tuple[list[float | None], list[int], list[list[tuple[int, float]]]]:
    """Log-probability, rank and likeliest tokens of each token, the first one's included."""
    prompt = told.logprobs
    top = list(zip(_unpacked("I", prompt.top_ids), _unpacked("f", prompt.top_logprobs), strict=True))
    tops = [top[place * prompt.num_top : (place + 1) * prompt.num_top] for place in range(prompt.num_tokens)]
    return [None, *_unpacked("f", prompt.logprobs)], [0, *_unpacked("I", prompt.ranks)], [[], *tops]


def _unpacked(kind: str, column: bytes) -> tuple[Any, ...]:
    return struct.unpack(f"<{len(column) // 4}{kind}", column)
