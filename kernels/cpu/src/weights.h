// A weight matrix as the linear layer reads it: tiles of 16 outputs, an output per lane.
//
//   pair      two neighbouring tiles, block after block: one stream for the processor to read ahead
//   block     32 inputs: the first tile's quants, the second's, the first's scales, the second's
//
//   format   quants of a block                                        scales of a block
//   Q4_0     4 × 64 bytes: byte 4c+i of group j holds, for output c,   16 float16
//   Q4_1       input 4j+i (low nibble) and 16+4j+i (high nibble)       16 float16 and 16 float16 minima
//   Q4_K       same                                                    16 float32 and 16 float32 minima, negated
//   Q8_0     8 × 64 bytes: byte 4c+i of group j is input 4j+i + 128    16 float16
//   Q5_0       kept as Q8_0: the same scales, and 5 bits fit in 8
//   Q6_K       same, + 128 above -32 … 31                              2 × 16 float32: inputs 0-15, 16-31
//
//   BF16     pairs of inputs, 16 outputs × 2 bfloat16 (64 bytes)       none: a block is one pair of inputs
//   F16      two inputs, each 16 float16
//   F32      two inputs, each 16 float32
//
// A block of a pair is a whole number of cache lines, so that no 64-byte load of quants crosses one. (Tiles one by one,
// quants and scales in streams of their own, took 1.7 times as long at batch 1.) Q4_K and Q6_K products of
// scales (11 × 6 and 11 × 7 significant bits) are exact in float32: nothing of the file is rounded.
// Outputs are padded to a whole tile, inputs to a whole block, with zeros.
#pragma once

#include <cstdint>

#include "weight_memory.h"

namespace reprise {

enum class Format : int32_t { F32 = 0, F16 = 1, BF16 = 2, Q4_0 = 3, Q4_1 = 4, Q8_0 = 5, Q4_K = 6, Q6_K = 7, Q5_0 = 8 };

constexpr int kTileOutputs = 16;
constexpr int kBlockInputs = 32;  // of a quantised format, and of the activations' own scales

inline bool is_quantised(Format format) { return format >= Format::Q4_0; }

// Rows as they lie in a GGUF or safetensors file; row i of the matrix is row order[i], or i where there is no order.
struct StoredRows {
    Format format;
    int num_rows;
    int num_columns;
    const uint8_t* bytes;
    size_t row_bytes;
    const int64_t* order;

    const uint8_t* row(int i) const { return bytes + row_bytes * static_cast<size_t>(order ? order[i] : i); }
};

struct Matrix {
    Format format = Format::F32;
    int num_outputs = 0;
    int num_inputs = 0;
    int num_blocks = 0;
    size_t quant_bytes = 0;  // of one tile's block
    size_t scale_bytes = 0;
    uint8_t* pairs = nullptr;  // in a WeightMemory

    int num_tiles() const { return (num_outputs + kTileOutputs - 1) / kTileOutputs; }
    int num_pairs() const { return (num_tiles() + 1) / 2; }
    size_t block_bytes() const { return 2 * (quant_bytes + scale_bytes); }

    // A tile's first block; the next one is block_bytes() further, the pair's other tile quant_bytes or scale_bytes.
    const uint8_t* quants(int tile) const { return pair_of(tile) + quant_bytes * static_cast<size_t>(tile % 2); }
    const uint8_t* scales(int tile) const {
        return pair_of(tile) + 2 * quant_bytes + scale_bytes * static_cast<size_t>(tile % 2);
    }

    const uint8_t* pair_of(int tile) const {
        return pairs + pair_bytes() * static_cast<size_t>(tile / 2);
    }
    size_t pair_bytes() const { return block_bytes() * static_cast<size_t>(num_blocks); }
};

// Throws std::bad_alloc.
Matrix pack_matrix(const StoredRows& rows, WeightMemory& memory);

// The numbers of one row, as float32: what the file's format means, in the order of operations of the gguf package.
void decode_row(const StoredRows& rows, int row, float* result);

}  // namespace reprise
