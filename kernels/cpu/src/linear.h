// Linear layers: each output of each row is one sum over the inputs in ascending order of blocks.
//
// Lanes are outputs, never inputs; rows and tiles only share loads. So an output's bits depend on its own row and
// weights: not on how many rows there are, how they are grouped, or which thread computes them.
#pragma once

#include "activations.h"
#include "weights.h"

namespace reprise {

struct RowRange {
    int begin, end;
};

// out[(row - rows.begin) × stride + 16 × (tile - first_tile) + lane] = sum, or += sum where `accumulate`.
// Whole tiles are written: `out` must have room for the padding of the last one.
// `following` is where the weights lie that this thread will most likely read next (null: what it has read just now).
// They are fetched into the second-level cache meanwhile, so that memory and arithmetic overlap; a wrong guess costs time
// only. (Measured on Zen 4, one thread: 1.1 times as fast at 16 rows, 1.4 to 1.7 at 4 to 6. Into the first-level cache,
// which takes fewer lines at once, it gained nothing below 8 rows.)
void multiply(const Matrix& matrix, const Activations& inputs, RowRange rows, int first_tile, int last_tile, float* out,
              size_t stride, bool accumulate, const uint8_t* following);

}  // namespace reprise
