// A step's rows as a linear layer takes them: float32, and where the weights are quantised, int8 in blocks of 32.
//
// A block's scale is its largest magnitude / 127; values round to nearest, ties to even. The integer dot product of such
// a block with a block of weights is exact, so all that is rounded is the product with the scales.
#pragma once

#include "lanes.h"
#include "weights.h"

namespace reprise {

// What a block of 32 int8 values needs beside them, together so that a row takes one pointer.
struct BlockScale {
    float scale;
    float scaled_sum;   // scale × sum
    int32_t sum;        // of the values
    int32_t first_sum;  // of the first 16
};

struct Activations {
    int stride = 0;      // floats from one row to the next, a multiple of 32
    int num_blocks = 0;  // stride / 32
    float* floats = nullptr;
    int8_t* values = nullptr;      // [rows, stride]
    BlockScale* scales = nullptr;  // [rows, num_blocks]

    float* row(int index) const { return floats + static_cast<size_t>(index) * static_cast<size_t>(stride); }
    size_t block(int row, int index) const {
        return static_cast<size_t>(row) * static_cast<size_t>(num_blocks) + static_cast<size_t>(index);
    }
};

// Fill in the int8 form of blocks first … last-1 of a row from 32 floats each at `source`.
inline void quantise_blocks(const Activations& to, int row, int first, int last, const float* source) {
    for (int b = first; b < last; ++b, source += kBlockInputs) {
        const Floats low = load(source), high = load(source + kLanes);
        const float highest = highest_of_lanes(max(abs(low), abs(high)));
        const Floats inverse = broadcast(highest > 0.0f ? 127.0f / highest : 0.0f);
        const Ints low_values = to_nearest_ints(mul(low, inverse)), high_values = to_nearest_ints(mul(high, inverse));
        const size_t block = to.block(row, b);
        store_bytes(to.values + block * kBlockInputs, low_values);
        store_bytes(to.values + block * kBlockInputs + kLanes, high_values);
        const int32_t first_sum = sum_of_lanes(low_values), sum = first_sum + sum_of_lanes(high_values);
        const float scale = highest * (1.0f / 127.0f);
        to.scales[block] = {scale, scale * static_cast<float>(sum), sum, first_sum};
    }
}

}  // namespace reprise
