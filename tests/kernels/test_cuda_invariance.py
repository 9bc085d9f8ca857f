"""The strong test of rows, chunks and company on a GPU, for decoders of every kind that is served. Skipped without one.

In triton's interpreter `tests/execution/interpreted` asks the same of tiny ones.
"""

from dataclasses import replace

import pytest

from kernels.decoder import DecoderParameters
from kernels.selftest import run_thorough_test
from tests.kernels.cuda_device import loaded_on_gpu
from tests.kernels.tiny_models import GEMMA, SMALL, random_parameters

MAX_POSITIONS = 2304


def gemma(window: int, head_dim: int) -> DecoderParameters:
    return random_parameters("Q8_0", replace(GEMMA, window=window, head_dim=head_dim), has_norms=True)


MODELS = {
    "llama": lambda: random_parameters("Q4_K", SMALL),
    "qwen": lambda: random_parameters("BF16", replace(SMALL, num_heads=14, num_kv_heads=2), has_bias=True),
    "without-groups": lambda: random_parameters("Q4_0", replace(SMALL, num_heads=4, head_dim=128)),
    "gemma-of-short-windows": lambda: gemma(6, 256),
    "gemma-of-long-windows": lambda: gemma(515, 128),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float8"])
@pytest.mark.parametrize("model", MODELS)
def test_rows_are_their_own_on_cuda(model: str, dtype: str) -> None:
    backend = loaded_on_gpu(MODELS[model](), dtype=dtype, max_positions=MAX_POSITIONS)
    assert run_thorough_test(backend, num_threads=1).failures == ()
    assert backend.wide_tiles.are_equal
