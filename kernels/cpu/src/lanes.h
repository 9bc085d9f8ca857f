// Sixteen lanes: the one vector type that all operations are written in, so that every instruction set gives the same
// bits.
//
// `Floats` holds 16 float32, `Ints` 16 int32, `Bytes` 64 bytes, whatever the machine's registers are: one AVX-512
// register, two AVX2 registers, or an array. Every function below is either exact (integers, conversions, loads) or one
// IEEE operation in each lane, rounded once (fma rounds once too). A sum over lanes is always the same tree:
//     lane i + lane i+8, then i + i+4, then i + i+2, then i + i+1.
// So a formula written in these functions has one meaning, and -ffp-contract=off keeps the compiler from making another
// of it. What has its own rounding (vdpbf16ps, which also flushes subnormals; rsqrt and exp approximations) is not used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include "lanes_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "lanes_avx2.h"
#else
#include "lanes_portable.h"
#endif

namespace reprise {

constexpr int kLanes = 16;

// Four consecutive int8 activations as the one word that `dot` multiplies with every lane's four weights.
inline int32_t load_four(const int8_t* values) {
    int32_t word;
    std::memcpy(&word, values, sizeof word);
    return word;
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// bfloat16 of a finite float32, to nearest, ties to even. A NaN stays one.
inline uint16_t to_bfloat(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// exp(x) for x <= 0, relative error below 2e-7; everything below -87 counts as -87, so no result is subnormal.
// Cody-Waite reduction by ln 2 in two parts, then the Taylor polynomial of degree 6 on |r| <= ln(2)/2.
inline Floats exp_of_nonpositive(Floats x) {
    x = max(x, broadcast(-87.0f));
    const Ints exponent = to_nearest_ints(mul(x, broadcast(1.44269504f)));
    const Floats whole = to_floats(exponent);
    Floats rest = fma(whole, broadcast(-0.693359375f), x);
    rest = fma(whole, broadcast(2.12194440e-4f), rest);
    Floats sum = broadcast(1.0f / 720);
    sum = fma(sum, rest, broadcast(1.0f / 120));
    sum = fma(sum, rest, broadcast(1.0f / 24));
    sum = fma(sum, rest, broadcast(1.0f / 6));
    sum = fma(sum, rest, broadcast(0.5f));
    sum = fma(sum, rest, broadcast(1.0f));
    sum = fma(sum, rest, broadcast(1.0f));
    return mul(sum, power_of_two(exponent));
}

}  // namespace reprise
