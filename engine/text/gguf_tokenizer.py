"""The tokenizers that GGUF metadata describe, built with the `tokenizers` package.

Byte-level vocabularies ("gpt2") carry their merges, and the name of the rule that cuts text into words before merging.
SentencePiece vocabularies ("llama") carry a score per token instead: the merges follow from the scores.
Source: llama.cpp's conventions for `tokenizer.ggml.*`, and the tokenizer.json files of the models it converts.
"""

from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.core.errors import ModelError
from engine.log import Logger
from engine.text.gguf_metadata import GGUFMetadata

_log = Logger(__name__)


@dataclass(frozen=True, slots=True)
class WordRule:
    """How a byte-level tokenizer cuts text into words.

    pattern        words as a regular expression; "" takes that of GPT-2
    each_digit     a digit is always a word of its own
    normalizes     text is brought into Unicode NFC first
    ignore_merges  a word that is a token stays one, whatever the merges say
    adds_bos       unless the file says otherwise
    """

    pattern: str = ""
    each_digit: bool = False
    normalizes: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


# Contractions, letters, digits, signs, line ends, spaces: the same rule but for the length of a run of digits.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = WordRule(
    _WORDS.format(digits=r"\p{N}{1,3}"),
    ignore_merges=True,
    adds_bos=True,
)
_QWEN2 = WordRule(
    _WORDS.format(digits=r"\p{N}"),
    normalizes=True,
)
_WORD_RULES = {  # tokenizer.ggml.pre
    "gpt-2": WordRule(),
    "default": WordRule(),
    "smollm": WordRule(each_digit=True),
    "starcoder": WordRule(each_digit=True),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def word_rule(metadata: GGUFMetadata) -> WordRule:
    """The rule that the file names. Raises ModelError for one that is not known: other words are other tokens."""
    name = metadata.string("tokenizer.ggml.pre", "")
    if not name:
        _log.warning("gguf_without_pre_tokenizer", path=str(metadata.path), using="gpt-2")
        name = "gpt-2"
    rule = _WORD_RULES.get(name)
    if rule is None:
        raise ModelError(
            f"{metadata.path} cuts words by the rule {name!r}, and these are known: {', '.join(_WORD_RULES)}. "
            "Serve the model as a Hugging Face folder, whose tokenizer.json holds the rule itself"
        )
    return rule


def byte_level_tokenizer(metadata: GGUFMetadata, tokens: list[str], rule: WordRule) -> Tokenizer:
    """GPT-2's kind of tokenizer: words by `rule`, merges as the file lists them, best first.

    A byte that is no token of the vocabulary vanishes from the text, as with the model's own tokenizer.json: of the
    default model's these are the control characters 04, 06, 13, 14, 16 and 1D and the unassigned planes from U+40000.
    """
    merges = [_merge(metadata, line) for line in metadata.strings("tokenizer.ggml.merges")]
    tokenizer = _bpe(metadata, tokens, merges, ignore_merges=rule.ignore_merges)
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rule.each_digit:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.pattern:
        steps.append(pre_tokenizers.Split(Regex(rule.pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not rule.pattern))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if rule.normalizes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece_tokenizer(
    metadata: GGUFMetadata, tokens: list[str], is_normal: list[bool], unknown: str | None, adds_space: bool
) -> Tokenizer:
    """Llama 2's kind of tokenizer: merges from scores, bytes for what has no token."""
    scores = metadata.floats("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise ModelError(f"{metadata.path} has {len(tokens)} tokens but {len(scores)} scores: convert the model again")
    merges = merges_from_scores(tokens, is_normal, scores)
    tokenizer = _bpe(metadata, tokens, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if adds_space else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if adds_space else steps)
    return tokenizer


def merges_from_scores(tokens: list[str], is_normal: list[bool], scores: list[float]) -> list[tuple[str, str]]:
    """The merges of a SentencePiece BPE vocabulary, best first.

    SentencePiece merges the neighbours whose union has the highest score, so every cut of a token into two others is a
    merge of that token's score. Source: Kudo and Richardson, SentencePiece, EMNLP 2018, and its bpe_model.cc.
    """
    ids = {token: number for number, token in enumerate(tokens) if is_normal[number]}
    ranked = []
    for token, number in ids.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[number], number, ids[left], left, right))
    ranked.sort()
    return [(left, right) for _, _, _, left, right in ranked]


def _merge(metadata: GGUFMetadata, line: str) -> tuple[str, str]:
    left, space, right = line[1:].partition(" ")  # the first character may itself be a space
    if not space:
        raise ModelError(f"{metadata.path}: {line!r} is no merge of two tokens: convert the model again")
    return line[0] + left, right


def _bpe(metadata: GGUFMetadata, tokens: list[str], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    ids = {token: number for number, token in reversed(list(enumerate(tokens)))}  # of equal tokens the first
    try:
        return Tokenizer(models.BPE(vocab=ids, merges=merges, **options))
    except Exception as error:  # the package raises nothing narrower, for example on a merge of unknown tokens
        raise ModelError(f"{metadata.path} holds no usable tokenizer: {error}; convert the model again") from error
