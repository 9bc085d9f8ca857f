"""Cosines and sines of the rotary embedding, by position: one table for every backend.

Source: Su et al., RoFormer, 2021.
"""

import numpy as np

from kernels.backend import Floats

_POSITIONS_AT_A_TIME = 256  # pieces of one shape: whatever numpy does with a vector's tail, it does everywhere alike


def rotary_tables(inverse_frequencies: tuple[float, ...], max_positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines, float32 [max_positions rounded up to 256, head_dim / 2], computed in float64."""
    frequencies = np.array(inverse_frequencies, dtype=np.float64)
    num_pieces = -(-max_positions // _POSITIONS_AT_A_TIME)
    tables = np.empty((2, num_pieces, _POSITIONS_AT_A_TIME, len(frequencies)), dtype=np.float32)
    for piece in range(num_pieces):
        positions = np.arange(_POSITIONS_AT_A_TIME, dtype=np.float64) + piece * _POSITIONS_AT_A_TIME
        angles = positions[:, None] * frequencies
        tables[0, piece] = np.cos(angles)
        tables[1, piece] = np.sin(angles)
    cos, sin = tables.reshape(2, num_pieces * _POSITIONS_AT_A_TIME, len(frequencies))
    return cos, sin
