"""A text model of single bytes: token id = byte value, so that every way of splitting characters can be made."""

from dataclasses import replace

from tokenizers import Tokenizer, models, pre_tokenizers

from engine.text.text_model import TextModel
from engine.text.vocabulary import Vocabulary

END_OF_TEXT = 256
NUM_WORD_TOKENS = 1_020
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'jester' %}{{ raise_exception('no jesters') }}{% endif %}"
    "<{{ message.role }}>{{ message.content }}{% endfor %}"
)


def byte_text_model(chat_template: str | None = None) -> TextModel:
    """257 tokens: the bytes, and an end-of-text token without text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: _byte_of(char) for char in alphabet}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return TextModel(
        Vocabulary(
            tokenizer=tokenizer,
            token_bytes=(*[bytes([byte]) for byte in range(256)], b"<end>"),
            special_ids=frozenset({END_OF_TEXT}),
            strips_leading_space=False,
            eos_token_ids=(END_OF_TEXT,),
            context_length=512,
            chat_template=chat_template,
        )
    )


def word_text_model() -> TextModel:
    """1,000 tokens and a few more: the bytes, then words; so that every token of the scripted runner has a text."""
    bytes_only = byte_text_model(CHAT_TEMPLATE).vocabulary
    words = [f" w{number}".encode() for number in range(len(bytes_only.token_bytes), NUM_WORD_TOKENS)]
    return TextModel(replace(bytes_only, token_bytes=(*bytes_only.token_bytes, *words)))


def _byte_of(char: str) -> int:
    """The byte that GPT-2's alphabet writes as `char`: printable ones as themselves, the others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return others[ord(char) - 256] if ord(char) >= 256 else ord(char)
