// Sixteen lanes in an array: standard C++ for any processor, and the plainest statement of what each function means.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace reprise {

constexpr const char* kInstructionSet = "portable";
constexpr int kRowsAtATime = 1;
constexpr int kColumnsAtATime = 1;
constexpr int kQueriesAtATime = 3;

struct Floats {
    float lane[16];
};
struct Ints {
    int32_t lane[16];
};
struct Bytes {
    uint8_t byte[64];
};

template <class Function>
inline Floats floats_by_lane(Function function) {
    Floats result;
    for (int i = 0; i < 16; ++i) result.lane[i] = function(i);
    return result;
}
template <class Function>
inline Ints ints_by_lane(Function function) {
    Ints result;
    for (int i = 0; i < 16; ++i) result.lane[i] = function(i);
    return result;
}

inline Floats broadcast(float x) {
    return floats_by_lane([&](int) { return x; });
}
inline Floats zero_floats() { return broadcast(0.0f); }
inline Floats load(const float* p) {
    return floats_by_lane([&](int i) { return p[i]; });
}
inline void store(float* p, Floats a) { std::memcpy(p, a.lane, sizeof a.lane); }
inline Floats add(Floats a, Floats b) {
    return floats_by_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats sub(Floats a, Floats b) {
    return floats_by_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Floats mul(Floats a, Floats b) {
    return floats_by_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats div(Floats a, Floats b) {
    return floats_by_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Floats fma(Floats a, Floats b, Floats c) {
    return floats_by_lane([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Floats max(Floats a, Floats b) {
    return floats_by_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats abs(Floats a) {
    return floats_by_lane([&](int i) { return std::fabs(a.lane[i]); });
}
inline Floats where_negative(Floats x, Floats a, Floats b) {
    return floats_by_lane([&](int i) { return x.lane[i] < 0.0f ? a.lane[i] : b.lane[i]; });
}
inline uint32_t at_least(Floats a, Floats b) {
    uint32_t bits = 0;
    for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(a.lane[i] >= b.lane[i]) << i;
    return bits;
}
inline Floats at_least_or_zero(Floats a, Floats b) {
    return floats_by_lane([&](int i) { return a.lane[i] >= b.lane[i] ? a.lane[i] : 0.0f; });
}
inline Floats first_lanes(Floats a, int count, float other) {
    return floats_by_lane([&](int i) { return i < count ? a.lane[i] : other; });
}
inline float sum_of_lanes(Floats a) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) a.lane[i] = a.lane[i] + a.lane[i + width];
    return a.lane[0];
}
inline float highest_of_lanes(Floats a) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
    return a.lane[0];
}

inline Ints broadcast_int(int32_t x) {
    return ints_by_lane([&](int) { return x; });
}
inline Ints zero_ints() { return broadcast_int(0); }
inline Ints add(Ints a, Ints b) {
    return ints_by_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats to_floats(Ints a) {
    return floats_by_lane([&](int i) { return static_cast<float>(a.lane[i]); });
}
inline Ints to_nearest_ints(Floats a) {
    const float shift = 12582912.0f;  // 1.5 × 2^23: adding it leaves no place for a fraction, and rounds to nearest even
    return ints_by_lane([&](int i) { return static_cast<int32_t>((a.lane[i] + shift) - shift); });
}
inline Floats power_of_two(Ints n) {
    return floats_by_lane([&](int i) {
        const uint32_t bits = static_cast<uint32_t>(n.lane[i] + 127) << 23;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    });
}
inline int32_t sum_of_lanes(Ints a) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += a.lane[i];
    return sum;
}
inline void store_bytes(int8_t* p, Ints a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.lane[i]);
}

inline float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
// Every float16 is a float32: a normal one by moving its fields, a subnormal one as an integer times 2^-24.
inline float from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 31u, fraction = half & 0x3ffu;
    if (exponent == 0) return float_of_bits(sign | 0x3f800000u) * (static_cast<float>(fraction) * 5.9604644775390625e-8f);
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13);
    return float_of_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}
inline Floats from_half(const uint16_t* p) {
    return floats_by_lane([&](int i) { return from_half(p[i]); });
}
inline Floats from_bfloat(const uint16_t* p) {
    return floats_by_lane([&](int i) { return float_of_bits(static_cast<uint32_t>(p[i]) << 16); });
}
inline void from_bfloat_pairs(const uint16_t* p, Floats& first, Floats& second) {
    first = floats_by_lane([&](int i) { return float_of_bits(static_cast<uint32_t>(p[2 * i]) << 16); });
    second = floats_by_lane([&](int i) { return float_of_bits(static_cast<uint32_t>(p[2 * i + 1]) << 16); });
}

inline Bytes load_bytes(const uint8_t* p) {
    Bytes result;
    std::memcpy(result.byte, p, sizeof result.byte);
    return result;
}
inline Bytes low_nibbles(Bytes a) {
    for (uint8_t& byte : a.byte) byte &= 15;
    return a;
}
inline Bytes high_nibbles(Bytes a) {
    for (uint8_t& byte : a.byte) byte >>= 4;
    return a;
}
inline int32_t activation(int32_t word, int place) {
    int8_t four[4];
    std::memcpy(four, &word, sizeof four);
    return four[place];
}
inline Ints dot_small(Ints sums, Bytes weights, int32_t activations) {
    for (int place = 0; place < 4; ++place) {
        const int32_t factor = activation(activations, place);
        for (int i = 0; i < 16; ++i) sums.lane[i] += weights.byte[4 * i + place] * factor;
    }
    return sums;
}
inline Ints start_biased(int32_t sum_of_activations) { return broadcast_int(-128 * sum_of_activations); }
inline Ints dot_biased(Ints sums, Bytes weights, int32_t activations) { return dot_small(sums, weights, activations); }

}  // namespace reprise
