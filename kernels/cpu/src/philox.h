// A counter-based generator: the uniform number of a seed and a position, without any state between two draws. The same
// integers as kernels/philox.py.
// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox4x32-10).
#pragma once

#include <cstdint>

namespace reprise {

// In [0, 1), 53 random bits; the seed is the key, the position the counter's low half.
inline double uniform(uint64_t seed, uint64_t position) {
    uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t product_0 = uint64_t{0xD2511F53u} * c0, product_1 = uint64_t{0xCD9E8D57u} * c2;
        c0 = static_cast<uint32_t>(product_1 >> 32) ^ c1 ^ k0;
        c2 = static_cast<uint32_t>(product_0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(product_1);
        c3 = static_cast<uint32_t>(product_0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (static_cast<double>(c0 >> 5) * 67108864.0 + static_cast<double>(c1 >> 6)) / 9007199254740992.0;
}

}  // namespace reprise
