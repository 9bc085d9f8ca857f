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

}  // namespace

RowStatistics row_statistics(const float* logits, int length) {
    RowStatistics result{0, 0.0, kLowest, 0};
    Floats highest = broadcast(kLowest), zero_if_finite = zero_floats();
    for (int i = 0; i < length; i += kLanes) {
        const Floats part = load_first(logits + i, length - i);
        highest = max(first_lanes(part, length - i, kLowest), highest);
        zero_if_finite = add(zero_if_finite, mul(part, zero_floats()));  // infinity × 0 and NaN × 0 are NaN
    }
    result.is_finite = sum_of_lanes(zero_if_finite) == 0.0f;
    if (!result.is_finite) return result;
    result.highest = highest_of_lanes(highest);
    result.highest_id = first_place_of(logits, length, result.highest);
    for (int start = 0; start < length; start += kChunk) {
        const int end = length - start < kChunk ? length : start + kChunk;
        Floats sums = zero_floats();
        for (int i = start; i < end; i += kLanes) {
            const Floats terms = exp_of_nonpositive(sub(load_first(logits + i, end - i), broadcast(result.highest)));
            sums = add(sums, first_lanes(terms, end - i, 0.0f));
        }
        result.total += static_cast<double>(sum_of_lanes(sums));
    }
    return result;
}

}  // namespace reprise
