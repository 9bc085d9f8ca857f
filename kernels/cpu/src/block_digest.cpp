// See block_digest.h. Eight independent sums, so that the compiler makes vectors of them.
#include "block_digest.h"

#include <cstring>
#include <initializer_list>

namespace reprise {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
constexpr int kSums = 8;

inline uint64_t term(uint64_t word, uint64_t key) {
    const uint64_t x = word ^ key;
    return word + (x & 0xffffffffu) * (x >> 32);
}

// Of `count` words in one piece, the first of them numbered `first`.
uint64_t sum_of_words(const char* words, int64_t count, uint64_t first) {
    uint64_t sums[kSums] = {}, keys[kSums], total = 0;
    for (int lane = 0; lane < kSums; ++lane) keys[lane] = (first + static_cast<uint64_t>(lane) + 1) * kStep;
    int64_t i = 0;
    for (; i + kSums <= count; i += kSums) {
        uint64_t piece[kSums];
        std::memcpy(piece, words + i * 8, sizeof piece);
        for (int lane = 0; lane < kSums; ++lane) {
            sums[lane] += term(piece[lane], keys[lane]);
            keys[lane] += kSums * kStep;
        }
    }
    for (; i < count; ++i) {
        uint64_t word;
        std::memcpy(&word, words + i * 8, sizeof word);
        total += term(word, (first + static_cast<uint64_t>(i) + 1) * kStep);
    }
    for (const uint64_t sum : sums) total += sum;
    return total;
}

uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

}  // namespace

uint64_t block_digest(const BlockMemory& memory, int64_t block) {
    uint64_t sum = 0, first = 0;
    for (int64_t layer = 0; layer < memory.num_layers; ++layer) {
        const int64_t offset = layer * memory.layer_bytes + block * memory.block_bytes;
        for (const char* part : {memory.keys, memory.values}) {
            sum += sum_of_words(part + offset, memory.num_words, first);
            first += static_cast<uint64_t>(memory.num_words);
        }
    }
    return mixed(sum);
}

}  // namespace reprise
