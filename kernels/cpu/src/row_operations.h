// What is done to one row at a time: norm, rotary embedding, gated activation.
#pragma once

#include <cmath>

#include "lanes.h"

namespace reprise {

// Up to 16 floats, zeros in the lanes past them.
inline Floats load_first(const float* p, int count) {
    if (count >= kLanes) return load(p);
    float padded[kLanes] = {};
    for (int i = 0; i < count; ++i) padded[i] = p[i];
    return load(padded);
}
inline void store_first(float* p, Floats a, int count) {
    if (count >= kLanes) return store(p, a);
    float padded[kLanes];
    store(padded, a);
    for (int i = 0; i < count; ++i) p[i] = padded[i];
}

// result = x / sqrt(mean(x²) + epsilon) × weight, over `length` numbers. The squares go round robin into four vectors of
// sums (four, for the latency of an fma), which are added as (0+1) + (2+3) and then over the lanes.
// Source: Zhang and Sennrich, RMSNorm, 2019.
inline void rms_norm(const float* x, const float* weight, int length, float epsilon, float* result) {
    Floats sums[4] = {zero_floats(), zero_floats(), zero_floats(), zero_floats()};
    for (int i = 0, vector = 0; i < length; i += kLanes, ++vector) {
        const Floats part = load_first(x + i, length - i);
        sums[vector % 4] = fma(part, part, sums[vector % 4]);
    }
    const float sum = sum_of_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
    const Floats factor = broadcast(1.0f / std::sqrt(sum / static_cast<float>(length) + epsilon));
    for (int i = 0; i < length; i += kLanes) {
        const Floats part = load_first(x + i, length - i), scale = load_first(weight + i, length - i);
        store_first(result + i, mul(mul(part, factor), scale), length - i);
    }
}

// Rotary embedding of one head, in place: dimension i is paired with i + head_dim/2. Plain products and one sum, each
// rounded, as the reference has them.
// Source: Su et al., RoFormer, 2021, in the half-split form of GPT-NeoX.
inline void rotate_head(float* head, int head_dim, const float* cosines, const float* sines) {
    const int half = head_dim / 2;
    for (int i = 0; i < half; ++i) {
        const float first = head[i], second = head[half + i];
        head[i] = first * cosines[i] - second * sines[i];
        head[half + i] = second * cosines[i] + first * sines[i];
    }
}

// By exp(-|x|), which cannot overflow.
inline Floats sigmoid(Floats x) {
    const Floats one = broadcast(1.0f);
    const Floats power = exp_of_nonpositive(sub(zero_floats(), abs(x)));
    return div(where_negative(x, power, one), add(one, power));
}

enum class Activation : int32_t { kSilu = 0, kGeluTanh = 1 };  // ACTIVATION_NUMBERS in library.py

// activation(gate) × up on 16 lanes. GELU by its tanh formula: (1 + tanh(u)) / 2 is the sigmoid of 2u, with
// u = √(2/π) × (x + 0.044715 x³). Source: Hendrycks and Gimpel, GELUs, 2016.
inline Floats gated(Activation activation, Floats gate, Floats up) {
    if (activation == Activation::kSilu) return mul(mul(gate, sigmoid(gate)), up);
    const Floats cube = mul(mul(gate, gate), gate);
    const Floats twice_u = mul(fma(cube, broadcast(0.044715f), gate), broadcast(1.59576912f));
    return mul(mul(gate, sigmoid(twice_u)), up);
}

inline void scale_row(float* row, int length, float scale) {
    for (int i = 0; i < length; ++i) row[i] *= scale;
}

// x += rms_norm(added), which is overwritten.
inline void add_normed(float* x, float* added, const float* weight, int length, float epsilon) {
    rms_norm(added, weight, length, epsilon, added);
    for (int i = 0; i < length; ++i) x[i] += added[i];
}

}  // namespace reprise
