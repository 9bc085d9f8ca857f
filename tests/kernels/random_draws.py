"""Logits of many shapes, and rows that ask for every mixture of parameters: what samplers are compared on."""

from array import array

import numpy as np

from kernels.sampling import DrawParameters, DrawRow, SeenTokens, ids_of
from tests.kernels.samplers import Floats

SHAPES = ("flat", "narrow", "wide", "rounded", "constant", "zipf", "peaked")


def random_logits(generator: np.random.Generator, shape: str, num_rows: int, length: int) -> Floats:
    values = generator.standard_normal((num_rows, length)) * {"flat": 0.1, "wide": 6.0}.get(shape, 2.5)
    if shape == "rounded":  # many are equal
        values = np.round(values)
    elif shape == "constant":
        values[:] = values[:, :1]
    elif shape == "zipf":
        ranks = generator.permuted(np.tile(np.arange(1, length + 1), (num_rows, 1)), axis=1)
        values = -1.2 * np.log(ranks)
    elif shape == "peaked":
        values[:, : length // 50 + 1] += 12
    return values.astype(np.float32)


def random_row(generator: np.random.Generator, vocab_size: int) -> DrawRow:
    def one_of(*values: float) -> float:
        return float(generator.choice(values))

    def tokens() -> list[int]:
        return [int(token_id) for token_id in generator.integers(0, vocab_size, 30)]

    biased = [vocab_size // 2, vocab_size + 9] if one_of(0, 0, 0, 1) else []
    parameters = DrawParameters(
        temperature=one_of(0, 0.3, 0.7, 1, 1, 1.5, 2, 1e-30),
        top_k=int(one_of(0, 0, 1, 5, 40, 300, vocab_size + 5)),
        top_p=one_of(1, 1, 0.1, 0.5, 0.9, 0.95, 0.99, 0.9999999),
        min_p=one_of(0, 0, 0.05, 0.5, 1.0),
        repetition_penalty=one_of(1, 1, 1.2, 0.8),
        presence_penalty=one_of(0, 0, 0.5, -1),
        frequency_penalty=one_of(0, 0, 0.3),
        seed=int(generator.integers(0, 2**63)),
        num_logprobs=int(one_of(-1, 0, 3, 20)),
        biased=ids_of(biased),
        biases=array("f", [2.5] * len(biased)),
    )
    seen = SeenTokens(tokens(), tokens()) if parameters.has_penalties else None
    banned = ids_of([0, vocab_size + 3] if one_of(0, 0, 0, 1) else [])
    position = int(generator.integers(0, 1000))
    return DrawRow(parameters, position, seen, banned, random_words(generator, vocab_size))


def random_words(generator: np.random.Generator, vocab_size: int) -> "array[int] | None":
    """What is allowed: anything, or by a mask with many or few bits, at times a word short."""
    share = float(generator.choice([0, 0, 0.01, 0.5, 0.99]))
    if share == 0:
        return None
    bits = generator.random(-(-vocab_size // 32) * 32) < share
    bits[vocab_size // 2] = True  # in the first half, so that something is left of a mask that is short
    words = np.packbits(bits, bitorder="little").view(np.uint32)
    return array("I", words[: max(1, len(words) - int(generator.integers(0, 2)))].tolist())
