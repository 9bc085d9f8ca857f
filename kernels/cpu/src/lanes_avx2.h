// Sixteen lanes in two AVX2 registers. See lanes.h for what each function means.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

namespace reprise {

constexpr const char* kInstructionSet = "avx2";
constexpr int kRowsAtATime = 2;  // sixteen registers hold 2 rows × 16 columns of integer and float sums
constexpr int kColumnsAtATime = 1;
constexpr int kQueriesAtATime = 3;

struct Floats {
    __m256 lo, hi;
};
struct Ints {
    __m256i lo, hi;
};
struct Bytes {
    __m256i lo, hi;
};

inline Floats zero_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Floats a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Floats abs(Floats a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline Floats where_negative(Floats x, Floats a, Floats b) {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, zero, _CMP_LT_OQ)),
            _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, zero, _CMP_LT_OQ))};
}
inline uint32_t at_least(Floats a, Floats b) {
    const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ)), hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ));
    return static_cast<uint32_t>(lo) | static_cast<uint32_t>(hi) << 8;
}
inline Floats at_least_or_zero(Floats a, Floats b) {
    return {_mm256_and_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), a.lo), _mm256_and_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ), a.hi)};
}
inline Floats first_lanes(Floats a, int count, float other) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 kept_lo = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
    const __m256 kept_hi = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lane));
    const __m256 rest = _mm256_set1_ps(other);
    return {_mm256_blendv_ps(rest, a.lo, kept_lo), _mm256_blendv_ps(rest, a.hi, kept_hi)};
}
inline float sum_of_lanes(Floats a) {
    const __m256 eight = _mm256_add_ps(a.lo, a.hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float highest_of_lanes(Floats a) {
    const __m256 eight = _mm256_max_ps(a.lo, a.hi);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

inline Ints zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Ints broadcast_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Ints add(Ints a, Ints b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline Floats to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Ints to_nearest_ints(Floats a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline Floats power_of_two(Ints n) {
    const __m256i bias = _mm256_set1_epi32(127);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}
inline int32_t sum_of_lanes(Ints a) {
    const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
}
inline void store_bytes(int8_t* p, Ints a) {
    const __m128i low = _mm_packs_epi32(_mm256_castsi256_si128(a.lo), _mm256_extracti128_si256(a.lo, 1));
    const __m128i high = _mm_packs_epi32(_mm256_castsi256_si128(a.hi), _mm256_extracti128_si256(a.hi, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(low, high));
}

inline Floats from_half(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Floats from_bfloat(const uint16_t* p) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))};
}
inline void from_bfloat_pairs(const uint16_t* p, Floats& first, Floats& second) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
    const __m256i upper = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
    first = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    second = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
}

inline Bytes load_bytes(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Bytes low_nibbles(Bytes a) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline Bytes high_nibbles(Bytes a) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask), _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
// vpmaddubsw adds two products in 16 bits and saturates: 2 × 127 × 127 fits.
inline __m256i dot_of_eight_lanes(__m256i sums, __m256i weights, __m256i activations) {
    const __m256i pairs = _mm256_maddubs_epi16(weights, activations);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Ints dot_small(Ints sums, Bytes weights, int32_t activations) {
    const __m256i word = _mm256_set1_epi32(activations);
    return {dot_of_eight_lanes(sums.lo, weights.lo, word), dot_of_eight_lanes(sums.hi, weights.hi, word)};
}
// 255 × 127 × 2 would saturate. The bias is taken off and the sign moved to the activation instead: 128 × 127 × 2 fits.
inline Ints start_biased(int32_t) { return zero_ints(); }
inline Ints dot_biased(Ints sums, Bytes weights, int32_t activations) {
    const __m256i word = _mm256_set1_epi32(activations), bias = _mm256_set1_epi8(-128);
    const __m256i low = _mm256_xor_si256(weights.lo, bias), high = _mm256_xor_si256(weights.hi, bias);
    return {dot_of_eight_lanes(sums.lo, _mm256_abs_epi8(low), _mm256_sign_epi8(word, low)),
            dot_of_eight_lanes(sums.hi, _mm256_abs_epi8(high), _mm256_sign_epi8(word, high))};
}

}  // namespace reprise
