// A weight matrix as the linear layer reads it: tiles of 16 outputs, an output per lane.
//
//   tile      the 16 outputs' quants, block after block, then their scales, block after block
//   block     32 inputs of the 16 outputs
//
//   format   quants of a block                                        scales of a block
//   Q4_0     4 × 64 bytes: byte 4c+i of group j holds, for output c,   16 float16
//   Q4_1       input 4j+i (low nibble) and 16+4j+i (high nibble)       16 float16 and 16 float16 minima
//   Q4_K       same                                                    16 float32 and 16 float32 minima, negated
//   Q8_0     8 × 64 bytes: byte 4c+i of group j is input 4j+i + 128    16 float16
//   Q6_K       same, + 128 above -32 … 31                              2 × 16 float32: inputs 0-15, 16-31
//
//   BF16     pairs of inputs, 16 outputs × 2 bfloat16 (64 bytes)       none: a block is one pair of inputs
//   F16      two inputs, each 16 float16
//   F32      two inputs, each 16 float32
//
// Quants and scales are apart so that every 64-byte load of quants stays within a cache line. Q4_K and Q6_K products of
// scales (11 × 6 and 11 × 7 significant bits) are exact in float32: nothing of the file is rounded.
// Outputs are padded to a whole tile, inputs to a whole block, with zeros.
#pragma once

#include <cstdint>

#include "aligned.h"

namespace reprise {

enum class Format : int32_t { F32 = 0, F16 = 1, BF16 = 2, Q4_0 = 3, Q4_1 = 4, Q8_0 = 5, Q4_K = 6, Q6_K = 7 };

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
    size_t quant_bytes = 0;  // of one block
    size_t scale_bytes = 0;
    size_t tile_bytes = 0;
    Aligned<uint8_t> tiles;

    int num_tiles() const { return (num_outputs + kTileOutputs - 1) / kTileOutputs; }
    const uint8_t* tile(int index) const { return tiles.data() + tile_bytes * static_cast<size_t>(index); }
};

// Throws std::bad_alloc.
Matrix pack_matrix(const StoredRows& rows);

// The numbers of one row, as float32: what the file's format means, in the order of operations of the gguf package.
void decode_row(const StoredRows& rows, int row, float* result);

}  // namespace reprise
