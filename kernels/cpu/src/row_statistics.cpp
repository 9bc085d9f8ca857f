// See row_statistics.h. The sum: chunks of 1024 logits, each summed in 16 float32 lanes (64 terms of at most 1 a lane),
// its lanes added in the one tree, and the chunks added in float64 in ascending order.
#include "row_statistics.h"

#include <cmath>
#include <limits>

#include "row_operations.h"

namespace reprise {
namespace {

constexpr int kChunk = 1024;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

inline bool is_higher(float value, int64_t id, float other_value, int64_t other_id) {
    return value > other_value || (value == other_value && id < other_id);
}

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
    while (logits[result.highest_id] != result.highest) ++result.highest_id;
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

// A heap of the best so far, the worst of them on top.
void highest_logits(const float* logits, int length, int count, int64_t* ids, float* values) {
    int size = 0;
    const auto sink = [&](int place) {
        for (;;) {
            int worst = place;
            for (int child = 2 * place + 1; child <= 2 * place + 2 && child < size; ++child)
                if (is_higher(values[worst], ids[worst], values[child], ids[child])) worst = child;
            if (worst == place) return;
            const float value = values[place];
            const int64_t id = ids[place];
            values[place] = values[worst];
            ids[place] = ids[worst];
            values[worst] = value;
            ids[worst] = id;
            place = worst;
        }
    };
    for (int i = 0; i < length && count > 0; ++i) {
        if (size < count) {
            values[size] = logits[i];
            ids[size] = i;
            if (++size == count)
                for (int place = size / 2; place >= 0; --place) sink(place);
        } else if (logits[i] > values[0]) {  // of equals the lower id came first
            values[0] = logits[i];
            ids[0] = i;
            sink(0);
        }
    }
    while (size > 1) {  // take the worst off, again and again: what is left behind is in order
        --size;
        const float value = values[0];
        const int64_t id = ids[0];
        values[0] = values[size];
        ids[0] = ids[size];
        values[size] = value;
        ids[size] = id;
        sink(0);
    }
}

}  // namespace reprise
