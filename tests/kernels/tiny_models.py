"""Small random decoders in any weight format, made without a file."""

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

from engine.execution.rotary import inverse_frequencies
from kernels.backend import DecoderParameters, DecoderShape, LayerParameters
from kernels.stored_tensor import StoredTensor

FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "BF16", "F16", "F32")

SMALL = DecoderShape(
    num_layers=2,
    hidden_size=256,
    intermediate_size=512,
    num_heads=12,
    num_kv_heads=4,
    head_dim=64,
    vocab_size=1003,
    norm_epsilon=1e-5,
)

GEMMA = (
    DecoderShape(  # layers 0 and 1 see a window, layer 2 everything; around position 2,050 it begins in another split
        num_layers=3,
        hidden_size=256,
        intermediate_size=512,
        num_heads=4,
        num_kv_heads=1,
        head_dim=128,
        vocab_size=1003,
        norm_epsilon=1e-6,
        activation="gelu_tanh",
        has_post_norms=True,
        embedding_scale=16.0,
        attention_scale=0.07,
        window=515,
    )
)


def random_matrix(format: str, num_rows: int, num_columns: int, seed: int, scale: float | None = None) -> StoredTensor:
    """Weights of about scale / sqrt(num_columns), stored in `format`."""
    random = np.random.default_rng([seed, num_rows, num_columns])
    values = random.standard_normal((num_rows, num_columns)).astype(np.float32)
    values *= (1.0 if scale is None else scale) / num_columns**0.5
    shape = (num_rows, num_columns)
    if format in ("Q4_K", "Q6_K"):  # the package cannot write them: random blocks with scales of the right size
        return StoredTensor(format, shape, _random_blocks(format, shape, random))
    stored = np.ascontiguousarray(quantize(values, GGMLQuantizationType[format]))
    return StoredTensor(format, shape, stored.view(np.uint8).reshape(num_rows, -1))


def random_vector(length: int, seed: int, centre: float) -> StoredTensor:
    values = (centre + 0.2 * np.random.default_rng([seed, length]).standard_normal((1, length))).astype(np.float32)
    return StoredTensor("F32", (length,), values.view(np.uint8))


def random_parameters(
    format: str,
    shape: DecoderShape = SMALL,
    *,
    embedding: str | None = None,
    has_bias: bool = False,
    has_norms: bool = False,
) -> DecoderParameters:
    """Weights in `format`; the tied embedding too, or in a format of its own."""
    table = random_matrix(embedding or format, shape.vocab_size, shape.hidden_size, 1, scale=8.0)
    layers = tuple([_random_layer(format, shape, index, has_bias, has_norms) for index in range(shape.num_layers)])
    frequencies = tuple(inverse_frequencies(10_000.0, shape.head_dim))
    local = tuple(inverse_frequencies(100.0, shape.head_dim)) if shape.window else ()
    return DecoderParameters(shape, table, layers, random_vector(shape.hidden_size, 2, 1.0), table, frequencies, local)


def _random_layer(format: str, shape: DecoderShape, index: int, has_bias: bool, has_norms: bool) -> LayerParameters:
    seed = 100 * (index + 1)
    hidden, middle = shape.hidden_size, shape.intermediate_size
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    return LayerParameters(
        attention_norm=random_vector(hidden, seed, 1.0),
        q=random_matrix(format, q_size, hidden, seed + 1, scale=2.0),
        k=random_matrix(format, kv_size, hidden, seed + 2, scale=2.0),
        v=random_matrix(format, kv_size, hidden, seed + 3),
        o=random_matrix(format, hidden, q_size, seed + 4),
        mlp_norm=random_vector(hidden, seed + 5, 1.0),
        gate=random_matrix(format, middle, hidden, seed + 6),
        up=random_matrix(format, middle, hidden, seed + 7),
        down=random_matrix(format, hidden, middle, seed + 8),
        q_bias=random_vector(q_size, seed + 9, 0.0) if has_bias else None,
        k_bias=random_vector(kv_size, seed + 10, 0.0) if has_bias else None,
        v_bias=random_vector(kv_size, seed + 11, 0.0) if has_bias else None,
        q_norm=random_vector(shape.head_dim, seed + 12, 1.0) if has_norms else None,
        k_norm=random_vector(shape.head_dim, seed + 13, 1.0) if has_norms else None,
        post_attention_norm=random_vector(hidden, seed + 14, 1.0) if shape.has_post_norms else None,
        post_mlp_norm=random_vector(hidden, seed + 15, 1.0) if shape.has_post_norms else None,
        is_local=shape.window > 0 and index + 1 < shape.num_layers,
    )


def _random_blocks(format: str, shape: tuple[int, int], random: np.random.Generator) -> NDArray[np.uint8]:
    num_rows, num_columns = shape
    block_length, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[format]]
    blocks = random.integers(0, 256, (num_rows, num_columns // block_length, block_bytes), dtype=np.uint8)
    size = num_columns**-0.5
    if format == "Q4_K":  # value = d × scale × (0 … 15) - dmin × minimum, scales and minima 0 … 63
        _put_halves(blocks, 0, random.uniform(0.5, 1.0, blocks.shape[:2]) * size / 130)
        _put_halves(blocks, 2, random.uniform(0.5, 1.0, blocks.shape[:2]) * size / 18)
    else:  # value = d × scale × (-32 … 31), scales -128 … 127
        _put_halves(blocks, 208, random.uniform(0.5, 1.0, blocks.shape[:2]) * size / 1000)
    return blocks.reshape(num_rows, -1)


def _put_halves(blocks: NDArray[np.uint8], place: int, values: NDArray[np.float64]) -> None:
    blocks[..., place : place + 2] = values.astype(np.float16)[..., None].view(np.uint8)
