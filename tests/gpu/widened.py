"""A model's matrices in bfloat16, whatever format they lie in: so that two paths read equally many bytes."""

from dataclasses import replace

import numpy as np

from kernels.decoder import DecoderParameters, LayerParameters
from kernels.stored_tensor import StoredTensor


def in_bfloat16(parameters: DecoderParameters) -> DecoderParameters:
    """The same numbers, rounded to nearest even; norms and biases stay."""
    embedding = _widened(parameters.embedding)
    is_tied = parameters.head is parameters.embedding
    head = embedding if is_tied else _widened(parameters.head)
    return replace(parameters, embedding=embedding, head=head, layers=tuple(map(_layer, parameters.layers)))


def _layer(layer: LayerParameters) -> LayerParameters:
    return replace(
        layer,
        q=_widened(layer.q),
        k=_widened(layer.k),
        v=_widened(layer.v),
        o=_widened(layer.o),
        gate=_widened(layer.gate),
        up=_widened(layer.up),
        down=_widened(layer.down),
    )


def _widened(stored: StoredTensor) -> StoredTensor:
    bits = stored.float32().view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return StoredTensor("BF16", stored.shape, np.ascontiguousarray(rounded.astype(np.uint16)).view(np.uint8))
