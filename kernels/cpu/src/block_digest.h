// A 64-bit digest of a KV block over all layers, keys and values: what lies in memory, bit for bit, and where.
//
// The block is read as 64-bit words w, little-endian, numbered i = 0, 1, … over layer 0's keys, layer 0's values, layer
// 1's keys, …  With x = w ^ (i + 1) × 0x9e3779b97f4a7c15 the digest is, modulo 2^64,
//     mixed(Σ w + low32(x) × high32(x))
// A sum of whole numbers, so any order and any vector width give the same; the factor of i makes it notice words that
// have changed places. It finds faults, not forgeries. kernels/block_digest.py is the same in numpy.
// Source: NH of Black et al., UMAC, CRYPTO 1999, with the word itself added as in XXH3 (a product loses a factor beside
// a zero); the mixing at the end is MurmurHash3's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

// Where blocks lie: `layer_bytes` from one layer's block to the next layer's, `block_bytes` from block to block, in a
// layer each of `num_words` words in one piece.
struct BlockMemory {
    const char* keys;
    const char* values;
    int64_t layer_bytes;
    int64_t block_bytes;
    int64_t num_words;
    int64_t num_layers;
};

uint64_t block_digest(const BlockMemory& memory, int64_t block);

}  // namespace reprise
