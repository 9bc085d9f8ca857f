"""One choice's tokens → deltas of text that may be shown, with the tokens and log-probabilities they stand for.

Half a character and what may become a stop string are held back; the tokens of held text wait with it, so that no
token is left out or told twice. It must not know JSON or HTTP.
"""

from collections.abc import Iterable
from typing import NamedTuple

from daemon.call_reader import CallDelta, CallReader
from daemon.mailbox import PromptTold
from daemon.prompt_logprobs import PromptToken, prompt_tokens
from daemon.token_spelling import spelling
from engine.core.contents import TokenOutput
from engine.text.detokenizer import Detokenizer
from engine.text.stop_strings import StopStringFinder
from engine.text.text_model import TextModel
from engine.text.tool_format import FORMATS
from engine.text.tool_grammar import control_ids


class TokenLogprob(NamedTuple):
    """One token as log-probabilities report it.

    text_offset   characters of the answer before this token's own
    top           alternatives, most likely first
    """

    text: str
    raw: bytes
    logprob: float
    text_offset: int
    top: tuple[tuple[str, bytes, float], ...]


class Delta(NamedTuple):
    """What is told at once: text, calls of functions, and the tokens that became complete with them.

    num_tokens   of the answer so far
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    calls: tuple[CallDelta, ...] = ()
    num_tokens: int = 0
    prompt: tuple[PromptToken, ...] = ()

    @classmethod
    def joined(cls, deltas: Iterable["Delta"]) -> "Delta":
        """All of them as one."""
        parts = list(deltas)
        return cls(
            "".join([delta.text for delta in parts]),
            tuple([token_id for delta in parts for token_id in delta.token_ids]),
            tuple([entry for delta in parts for entry in delta.logprobs]),
            tuple([call for delta in parts for call in delta.calls]),
            max([delta.num_tokens for delta in parts], default=0),
        )._replace(prompt=tuple([token for delta in parts for token in delta.prompt]))


class Answer:
    """`push` each token as it comes, `finish` once at the end; the deltas joined are the answer.

    stop_strings       the engine ends the answer at the first of them; here it is only cut off the text
    min_tokens         stop strings are not looked at before so many tokens, as in the engine
    tells_each_token   a token whose text is held back is told at once, without text
    hidden_ids         tokens that have no text
    shows_special      control tokens have theirs
    includes_stop      the stop string is a part of the text
    tool_format        name of the way in which it may call functions; "": it is all text
    """

    def __init__(
        self,
        text_model: TextModel,
        *,
        stop_strings: tuple[str, ...] = (),
        min_tokens: int = 0,
        wants_logprobs: bool = False,
        tells_each_token: bool = False,
        follows_text: bool = False,
        hidden_ids: tuple[int, ...] = (),
        shows_special: bool = False,
        includes_stop: bool = False,
        tool_format: str = "",
    ) -> None:
        self._text_model = text_model
        form = FORMATS.get(tool_format)
        marks = frozenset(control_ids(form, text_model.vocabulary).values()) if form else frozenset()
        self._detokenizer = Detokenizer(
            text_model, skip_special_tokens=not shows_special, shown_ids=marks, follows_text=follows_text
        )
        self._hidden_ids = frozenset(hidden_ids)
        self._calls = CallReader(form) if form else None
        self._finder = StopStringFinder(stop_strings, include_stop=includes_stop)
        self._min_tokens = min_tokens
        self._wants_logprobs = wants_logprobs
        self._tells_each_token = tells_each_token
        self._num_chars = 0
        self._token_ids: list[int] = []  # not told yet
        self._logprobs: list[TokenLogprob] = []
        self.num_tokens = 0
        self._sum_logprobs = 0.0

    @property
    def mean_logprob(self) -> float:
        """Over its tokens so far; 0 where there are none."""
        return self._sum_logprobs / max(1, self.num_tokens)

    @property
    def num_calls(self) -> int:
        """Of functions, begun so far."""
        return self._calls.num_calls if self._calls else 0

    def tell_prompt(self, told: PromptTold) -> Delta:
        """Before the first token."""
        return Delta(prompt=prompt_tokens(told, self._text_model))

    def push(self, output: TokenOutput) -> Delta | None:
        """What can be told now; None while everything is held back."""
        self.num_tokens += 1
        self._sum_logprobs += output.logprob
        self._token_ids.append(output.token_id)
        if self._wants_logprobs:
            self._logprobs.append(self._token_logprob(output))
        piece = "" if output.token_id in self._hidden_ids else self._detokenizer.push(output.token_id)
        self._num_chars += len(piece)
        shown = self._finder.push(piece, may_stop=self.num_tokens >= self._min_tokens)
        text, calls = self._calls.push(shown) if self._calls else (shown, [])
        return self._release(text, calls) if text or calls or self._tells_each_token else None

    def finish(self) -> Delta:
        """The rest: what was held back, and the tokens that have not been told."""
        shown = self._finder.push(self._detokenizer.finish()) + self._finder.finish()
        if self._calls is None:
            return self._release(shown, [])
        text, calls = self._calls.push(shown)
        return self._release(text + self._calls.finish(), calls)

    def _release(self, text: str, calls: list[CallDelta]) -> Delta:
        delta = Delta(text, tuple(self._token_ids), tuple(self._logprobs), tuple(calls), self.num_tokens)
        self._token_ids.clear()
        self._logprobs.clear()
        return delta

    def _token_logprob(self, output: TokenOutput) -> TokenLogprob:
        text_model = self._text_model
        top = tuple([(*spelling(text_model, token_id), logprob) for token_id, logprob in output.top_logprobs])
        return TokenLogprob(*spelling(text_model, output.token_id), output.logprob, self._num_chars, top)
