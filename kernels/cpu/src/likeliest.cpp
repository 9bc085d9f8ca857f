// See likeliest.h. The row is split into sets, one for each lane of a group of vectors, and of each the maximum is taken,
// which is one instruction for 16 numbers. The k-th highest of the maxima is reached by k numbers at least, one in each of
// k sets; with four sets for each number wanted, hardly more reach it. So a row costs two passes that do no more than
// compare, and sorting is left to a few dozen numbers.
#include "likeliest.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "row_operations.h"

namespace reprise {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kSetsPerNumber = 4;

inline Floats load_or_lowest(const float* values, int count) {
    return count >= kLanes ? load(values) : first_lanes(load_first(values, count), count, kLowest);
}

}  // namespace

float highest_of(const float* values, int length) {
    Floats highest = broadcast(kLowest);
    for (int i = 0; i < length; i += kLanes) highest = max(load_or_lowest(values + i, length - i), highest);
    return highest_of_lanes(highest);
}

int first_place_of(const float* values, int length, float value) {
    const Floats wanted = broadcast(value);
    for (int i = 0; i < length; i += kLanes) {
        const uint32_t found = at_least(load_or_lowest(values + i, length - i), wanted);
        if (found) return i + __builtin_ctz(found);
    }
    return 0;
}

float bound_of_highest(const float* values, int length, int64_t count, float* maxima) {
    if (count >= length) return kLowest;
    const int64_t numbers_of_set = std::max<int64_t>(1, length / (kSetsPerNumber * count));
    const int group = static_cast<int>(numbers_of_set) * kLanes;
    float* end = maxima;
    for (int start = 0; start < length; start += group, end += kLanes) {
        const int stop = std::min(length, start + group);
        Floats highest = broadcast(kLowest);
        for (int i = start; i < stop; i += kLanes) highest = max(load_or_lowest(values + i, length - i), highest);
        store(end, highest);
    }
    std::nth_element(maxima, maxima + (count - 1), end, std::greater<float>());
    return maxima[count - 1];
}

int places_between(const float* values, int length, float low, float high, int32_t* places) {
    const Floats lows = broadcast(low), highs = broadcast(high);
    int num_found = 0;
    for (int i = 0; i < length; i += kLanes) {
        const Floats part = load_or_lowest(values + i, length - i);
        uint32_t found = at_least(part, lows) & ~at_least(part, highs);
        if (length - i < kLanes) found &= (1u << (length - i)) - 1u;  // -infinity is reached by what is not there, too
        for (; found; found &= found - 1) places[num_found++] = i + __builtin_ctz(found);
    }
    return num_found;
}

}  // namespace reprise
