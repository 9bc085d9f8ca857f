"""The text side of a model: what the daemon needs of it, without a weight in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.core.errors import EngineError
from engine.text.chat_template import ChatTemplate
from engine.text.detokenizer import Detokenizer
from engine.text.folder_vocabulary import folder_vocabulary
from engine.text.gguf_vocabulary import gguf_vocabulary
from engine.text.model_source import ModelSource
from engine.text.tool_format import ToolFormat
from engine.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_text_model(source: ModelSource, *, encodes: bool = True, chat_template: str = "") -> "TextModel":
    """The tokenizer and chat template of `source`. Raises ModelError where its files do not give them.

    encodes        False: it will only be asked what tokens mean; half the memory, and a third of the time
    chat_template  Jinja source in place of the model's own; "": that
    """
    read = gguf_vocabulary if source.kind == "gguf" else folder_vocabulary
    vocabulary = read(source.path, encodes=encodes)
    if chat_template:
        vocabulary = replace(vocabulary, chat_template=chat_template, tool_template=None)
    return TextModel(vocabulary)


class UnencodableText(EngineError):
    """The text is not whole Unicode, so it has no tokens."""


class UnknownToken(EngineError):
    """A token id that the model does not have."""

    def __init__(self, token_id: int, vocab_size: int) -> None:
        super().__init__(f"token id {token_id} is not in the vocabulary: give ids from 0 to {vocab_size - 1}")


class TextModel:
    """Text ⇄ token ids, and chats → text.

    Safe to use from several threads: nothing in it changes after loading.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._chat_template = ChatTemplate(
            vocabulary.chat_template, vocabulary.template_tokens, vocabulary.tool_template
        )

    @property
    def tokenizer(self) -> "Tokenizer":
        assert self.vocabulary.tokenizer is not None, "it was loaded to decode only"
        return self.vocabulary.tokenizer

    @property
    def vocab_size(self) -> int:
        """Rows of the model's embedding: valid token ids are 0 … vocab_size-1."""
        return len(self.vocabulary.token_bytes)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ascending; each of them ends an answer."""
        return self.vocabulary.eos_token_ids

    @property
    def context_length(self) -> int:
        """Tokens of prompt and output together that the model was trained for."""
        return self.vocabulary.context_length

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """The token ids of `text`.

        A special token's text, wherever it stands, becomes that token, as Hugging Face tokenizers do: chat templates
        rely on it, and so a client's "<|im_end|>" ends a turn, too.
        add_special   put the tokens before and after that the model wants around a text (BOS for Llama); False for a
                      rendered chat, whose template wrote them
        Raises UnencodableText for a lone surrogate.
        """
        vocabulary = self.vocabulary
        _require_whole(text)
        ids = self.tokenizer.encode(text, add_special_tokens=add_special).ids
        if ids and max(ids) >= self.vocab_size:  # a tokenizer with more tokens than the model has rows
            raise UnknownToken(max(ids), self.vocab_size)
        return [*vocabulary.prefix_ids, *ids, *vocabulary.suffix_ids] if add_special else ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`: what a Detokenizer gives for them, in one piece. Raises UnknownToken."""
        detokenizer = Detokenizer(self, skip_special_tokens=skip_special_tokens)
        pieces = [detokenizer.push(self._known(token_id)) for token_id in token_ids]
        return "".join(pieces) + detokenizer.finish()

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, possibly a part of a character. Raises UnknownToken."""
        return self.vocabulary.token_bytes[self._known(token_id)]

    def token_text(self, token_id: int) -> str:
        """The same as text, U+FFFD for what is not a whole character: for log-probabilities. Raises UnknownToken."""
        return self.token_bytes(token_id).decode(errors="replace")

    @property
    def tool_format(self) -> ToolFormat:
        """How it writes calls of functions."""
        return self._chat_template.tool_format

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        wall_ns: int | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        *,
        goes_on: bool = False,
    ) -> str:
        """The prompt for `messages`, to be encoded with add_special=False: see `ChatTemplate.render`."""
        return self._chat_template.render(messages, add_generation_prompt, wall_ns, tools, variables, goes_on=goes_on)

    def _known(self, token_id: int) -> int:
        if not 0 <= token_id < self.vocab_size:
            raise UnknownToken(token_id, self.vocab_size)
        return token_id


def _require_whole(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnencodableText(
            f"character {error.start} of the text is half a surrogate pair: send whole characters"
        ) from error
