"""Which tokens a request's grammar lets come next: a pure function of the grammar and the tokens of its answer so far.

So an answer has the same masks when it is preempted, handed over, executed again or isolated. llguidance is imported
with the first grammar, which also makes its table of the vocabulary: 0.2 s and 20 MB for 49,152 tokens, once.
"""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from engine.text.text_model import TextModel

if TYPE_CHECKING:
    from llguidance import LLTokenizer

NOTHING = array("I")  # allows no token: the request ends with an error, alone

_tables: "WeakKeyDictionary[TextModel, LLTokenizer]" = WeakKeyDictionary()


class TokenMask:
    """`allowed` before each draw, `take` after it."""

    def __init__(self, text_model: TextModel, grammar: str) -> None:
        from llguidance import LLMatcher

        self._matcher = LLMatcher(_table_of(text_model), grammar, log_level=0)

    @property
    def is_complete(self) -> bool:
        """Nothing can follow: the answer is whole."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> "array[int]":
        """As in `DrawRow`. An end-of-text token is allowed where the answer may end."""
        if self._matcher.is_error() or self._matcher.is_stopped():
            return NOTHING
        words = array("I")
        words.frombytes(self._matcher.compute_bitmask())
        return NOTHING if self._matcher.is_error() else words

    def take(self, token_id: int) -> None:
        """The answer has grown by this token."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token_id)


class _Tokens:
    """The vocabulary as llguidance reads it. A text is split greedily, for the engine has no tokenizer to ask."""

    def __init__(self, text_model: TextModel, split: Callable[[str], list[int]]) -> None:
        vocabulary = text_model.vocabulary
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        self.tokens = vocabulary.token_bytes
        self.special_token_ids = sorted(vocabulary.special_ids)
        self._split = split

    def __call__(self, text: str | bytes) -> list[int]:
        return self._split(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def _table_of(text_model: TextModel) -> "LLTokenizer":
    table = _tables.get(text_model)
    if table is None:
        from llguidance import LLTokenizer, TokenizerWrapper

        tables: list[LLTokenizer] = []
        tokens = _Tokens(text_model, lambda text: tables[0].greedy_tokenize(text))
        table = LLTokenizer(TokenizerWrapper(tokens), eos_token=list(text_model.eos_token_ids))
        tables.append(table)
        _tables[text_model] = table
    return table
