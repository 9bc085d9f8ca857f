// See row_statistics.h. The sum: chunks of 1024 logits, each summed in 16 float32 lanes (64 terms of at most 1 a lane),
// its lanes added in the one tree, and the chunks added in float64 in ascending order.
#include "row_statistics.h"

#include <cmath>
#include <limits>

#include "likeliest.h"
#include "row_operations.h"

namespace reprise {
namespace {

constexpr int kChunk = 1024;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Of exp(logit - highest).
float sum_of_chunk(const float* logits, int length, float highest) {
    const Floats shift = broadcast(highest);
    Floats sums = zero_floats();
    int i = 0;
    for (; i + kLanes <= length; i += kLanes) sums = add(sums, exp_of_nonpositive(sub(load(logits + i), shift)));
    if (i < length) {
        const Floats terms = exp_of_nonpositive(sub(load_first(logits + i, length - i), shift));
        sums = add(sums, first_lanes(terms, length - i, 0.0f));
    }
    return sum_of_lanes(sums);
}

}  // namespace

RowStatistics row_statistics(const float* logits, int length) {
    RowStatistics result{0, 0.0, kLowest, 0};
    Floats highest = broadcast(kLowest), zero_if_finite = zero_floats();
    const auto look_at = [&](Floats part) {
        highest = max(part, highest);
        zero_if_finite = fma(part, zero_floats(), zero_if_finite);  // infinity × 0 and NaN × 0 are NaN
    };
    const int whole = length / kLanes * kLanes;
    for (int i = 0; i < whole; i += kLanes) look_at(load(logits + i));
    if (whole < length) look_at(first_lanes(load_first(logits + whole, length - whole), length - whole, logits[whole]));
    result.is_finite = sum_of_lanes(zero_if_finite) == 0.0f;
    if (!result.is_finite) return result;
    result.highest = highest_of_lanes(highest);
    result.highest_id = first_place_of(logits, length, result.highest);
    for (int start = 0; start < length; start += kChunk) {
        const int end = length - start < kChunk ? length : start + kChunk;
        result.total += static_cast<double>(sum_of_chunk(logits + start, end - start, result.highest));
    }
    return result;
}

}  // namespace reprise
