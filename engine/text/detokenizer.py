"""Tokens of one answer → text, as they come, in whole characters.

A token stands for bytes, and a character may be spread over several tokens: its bytes are held until it is whole. So
the text is that of all bytes joined, decoded once, however the tokens arrived. Constant work per token.
"""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.text.text_model import TextModel

_Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """
    skip_special_tokens   leave out tokens that control the model
    shown_ids             of these, those that are not left out
    follows_text          the answer goes on from a prompt, so a leading space is a part of it; otherwise the one that
                          SentencePiece tokenizers put before a text is taken away
    Bytes that can be part of no character become U+FFFD at once, those of an unfinished one at the end, once.
    """

    def __init__(
        self,
        text_model: "TextModel",
        *,
        skip_special_tokens: bool = True,
        shown_ids: frozenset[int] = frozenset(),
        follows_text: bool = False,
    ) -> None:
        vocabulary = text_model.vocabulary
        self._token_bytes = vocabulary.token_bytes
        self._skipped_ids = vocabulary.special_ids - shown_ids if skip_special_tokens else frozenset()
        self._strips_space = vocabulary.strips_leading_space and not follows_text
        self._decoder = _Decoder(errors="replace")

    def push(self, token_id: int) -> str:
        """The characters that are whole with this token, often none; `token_id` must be in the vocabulary."""
        if token_id in self._skipped_ids:
            return ""
        data = self._token_bytes[token_id]
        if self._strips_space and data:
            data = data.removeprefix(b" ")
            self._strips_space = False
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is still held, as U+FFFD; afterwards nothing is."""
        return self._decoder.decode(b"", final=True)
