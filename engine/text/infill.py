"""A gap between two texts, as models were trained to fill one: marks around both, then what belongs between them.

Which marks, the vocabulary says. A model without any was not trained for it. It must not know questions.
"""

from engine.text.vocabulary import Vocabulary

# before the text, before what follows the gap, before what fills it
_MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder and its heirs
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
)


def gap_marks(vocabulary: Vocabulary) -> tuple[str, str, str] | None:
    """Its own, each of them one token; None: it has none. The vocabulary must be one that encodes."""
    tokenizer = vocabulary.tokenizer
    assert tokenizer is not None, "it was loaded to decode only"
    for marks in _MARKS:
        if all(tokenizer.token_to_id(mark) is not None for mark in marks):
            return marks
    return None
