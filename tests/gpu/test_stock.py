"""The stock decoder computes the same model: close to the reference in float32, whatever the chunks."""

import numpy as np
import pytest
import torch

from kernels.backend import DecoderParameters, DecoderShape, Floats
from kernels.packing import SequenceRows
from kernels.reference import ReferenceBackend
from tests.execution.steps import Memory
from tests.gpu.stock import StockDecoder, StockWeights
from tests.kernels.tiny_models import random_parameters

SHAPE = DecoderShape(2, 64, 96, 6, 2, 16, 120, 1e-5)
TOKENS = [[7, 3, 11, 90, 55, 2, 31, 4], [1, 118, 60, 60, 5, 9, 77, 12]]


def stock_logits(parameters: DecoderParameters, pieces: tuple[int, ...]) -> Floats:
    """Of the last token, the eight computed in these pieces."""
    weights = StockWeights.of(parameters, 16, torch.device("cpu"), torch.float32)
    decoder = StockDecoder(weights, parameters.shape, len(TOKENS), 16)
    start, logits = 0, torch.empty(0)
    for count in pieces:
        logits = decoder.step(torch.tensor(TOKENS)[:, start : start + count], start)
        start += count
    result: Floats = logits.numpy()
    return result


@pytest.mark.parametrize("is_rich", [False, True])
@pytest.mark.parametrize("pieces", [(8,), (3, 5), (6, 1, 1)])
def test_the_stock_decoder_agrees_with_the_reference(pieces: tuple[int, ...], is_rich: bool) -> None:
    """float32 on both sides: what differs is the order of sums, over at most 96 numbers of about 1."""
    parameters = random_parameters("F32", SHAPE, has_bias=is_rich, has_norms=is_rich)
    reference = ReferenceBackend(1)
    reference.load(parameters, 16)
    memory = Memory(reference, 4)
    rows = [SequenceRows(tokens, 0, (place,), 1) for place, tokens in enumerate(TOKENS)]
    np.testing.assert_allclose(stock_logits(parameters, pieces), memory.step(*rows).logits, rtol=0, atol=2e-4)
