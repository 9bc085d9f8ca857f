"""What both kinds of model files give: a tokenizer, the bytes of every token, and which tokens mean something."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """
    tokenizer             text → ids; matches special tokens in the text; None where it was loaded to decode only
    token_bytes           [vocab_size] the bytes that each token stands for in text; b"" where the model has a row but
                          the tokenizer no token
    special_ids           tokens that control the model and are left out of answers
    strips_leading_space  the tokenizer puts a space before a text, so decoding takes it away
    prefix_ids            put before a text with add_special, beside what the tokenizer's own post-processor adds
    suffix_ids            put after it
    eos_token_ids         ascending; each ends an answer
    context_length        tokens, as the model was trained for
    chat_template         Jinja source, None where the model has none
    tool_template         another one for chats with tools, None where `chat_template` is for all
    template_tokens       bos_token, eos_token …: texts by the names that chat templates use
    """

    tokenizer: "Tokenizer | None"
    token_bytes: tuple[bytes, ...]
    special_ids: frozenset[int]
    strips_leading_space: bool
    eos_token_ids: tuple[int, ...]
    context_length: int
    chat_template: str | None
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    template_tokens: dict[str, str] = field(default_factory=dict)
    tool_template: str | None = None
