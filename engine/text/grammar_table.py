"""A vocabulary as llguidance reads it, and how far it may go: whoever follows a grammar, or tries one, begins here.

llguidance is imported with the first table.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# A grammar that needs more fails, alone. States of its lexer bound what one step may take: 10,000 are made in 0.2 s.
MAX_LEXER_STATES = 10_000
MAX_STEP_LEXER_FUEL = 100_000
MAX_STEP_ITEMS = 20_000


class GrammarVocabulary(NamedTuple):
    """What of a `Vocabulary` a grammar's masks depend on.

    token_bytes    [vocab_size]
    special_ids    ascending
    eos_token_ids  ascending
    """

    token_bytes: tuple[bytes, ...]
    special_ids: tuple[int, ...]
    eos_token_ids: tuple[int, ...]


def table_of(vocabulary: GrammarVocabulary) -> "LLTokenizer":
    """A text is split greedily, for whoever draws has no tokenizer to ask."""
    from llguidance import LLTokenizer, TokenizerWrapper

    tables: list[LLTokenizer] = []
    tokens = _Tokens(vocabulary, lambda text: tables[0].greedy_tokenize(text))
    tables.append(LLTokenizer(TokenizerWrapper(tokens), eos_token=list(vocabulary.eos_token_ids)))
    return tables[0]


def matcher_of(table: "LLTokenizer", grammar: str) -> "LLMatcher":
    """Follows `grammar`; one that cannot be followed allows nothing."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        step_lexer_fuel=MAX_STEP_LEXER_FUEL,
        step_max_items=MAX_STEP_ITEMS,
        max_lexer_states=MAX_LEXER_STATES,
        verbose_errors=False,
    )
    return LLMatcher(table, grammar, log_level=0, limits=limits)


class _Tokens:
    def __init__(self, vocabulary: GrammarVocabulary, split: Callable[[str], list[int]]) -> None:
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        self.tokens = vocabulary.token_bytes
        self.special_token_ids = list(vocabulary.special_ids)
        self._split = split

    def __call__(self, text: str | bytes) -> list[int]:
        return self._split(text if isinstance(text, str) else text.decode("utf-8", "replace"))
