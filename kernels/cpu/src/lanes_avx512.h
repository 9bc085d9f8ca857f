// Sixteen lanes in one AVX-512 register; integer dot products by VNNI. See lanes.h for what each function means.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

namespace reprise {

constexpr const char* kInstructionSet = "avx512";
constexpr int kRowsAtATime = 6;     // rows × column vectors held in registers by a linear layer
constexpr int kColumnsAtATime = 2;  // in units of 16 columns
constexpr int kQueriesAtATime = 12;

struct Floats {
    __m512 v;
};
struct Ints {
    __m512i v;
};
struct Bytes {
    __m512i v;
};

inline Floats zero_floats() { return {_mm512_setzero_ps()}; }
inline Floats broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }
inline Floats add(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats sub(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats mul(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats div(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where one is NaN
inline Floats abs(Floats a) { return {_mm512_abs_ps(a.v)}; }

// Lanes of `a` where x < 0, of `b` elsewhere.
inline Floats where_negative(Floats x, Floats a, Floats b) {
    return {_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_LT_OQ), a.v)};
}
// Bit i: whether lane i of a is at least that of b.
inline uint32_t at_least(Floats a, Floats b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
// Lanes of a that are at least those of b, 0 in the others.
inline Floats at_least_or_zero(Floats a, Floats b) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ), a.v)};
}
// The first `count` lanes of a, `other` in the rest.
inline Floats first_lanes(Floats a, int count, float other) {
    const __mmask16 kept = static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
    return {_mm512_mask_mov_ps(_mm512_set1_ps(other), kept, a.v)};
}
inline float sum_of_lanes(Floats a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float highest_of_lanes(Floats a) { return _mm512_reduce_max_ps(a.v); }

inline Ints zero_ints() { return {_mm512_setzero_si512()}; }
inline Ints broadcast_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Ints to_nearest_ints(Floats a) { return {_mm512_cvtps_epi32(a.v)}; }  // ties to even; |a| < 2^22
inline Floats power_of_two(Ints n) {                                         // -126 <= n <= 127
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}
inline int32_t sum_of_lanes(Ints a) { return _mm512_reduce_add_epi32(a.v); }
inline void store_bytes(int8_t* p, Ints a) {  // each lane in -128 … 127
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

inline Floats from_half(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Floats from_bfloat(const uint16_t* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}
// 16 pairs of bfloat16: the first of each pair, the second of each pair.
inline void from_bfloat_pairs(const uint16_t* p, Floats& first, Floats& second) {
    const __m512i pairs = _mm512_loadu_si512(p);
    first = {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))};
    second = {_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))))};
}

inline Bytes load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline Bytes low_nibbles(Bytes a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline Bytes high_nibbles(Bytes a) {
    return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
// sums + (in each lane) its four weights, 0 … 127, times the four activations of the word.
inline Ints dot_small(Ints sums, Bytes weights, int32_t activations) {
    return {_mm512_dpbusd_epi32(sums.v, weights.v, _mm512_set1_epi32(activations))};
}
// The same for weights -128 … 127, stored with 128 added. VNNI takes the first factor as unsigned: the 128 × (sum of
// activations) that is too much is taken off at the start.
inline Ints start_biased(int32_t sum_of_activations) { return {_mm512_set1_epi32(-128 * sum_of_activations)}; }
inline Ints dot_biased(Ints sums, Bytes weights, int32_t activations) {
    return {_mm512_dpbusd_epi32(sums.v, weights.v, _mm512_set1_epi32(activations))};
}

}  // namespace reprise
