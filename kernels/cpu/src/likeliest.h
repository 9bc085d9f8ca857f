// The highest numbers of a long row, found without sorting it: a bound that enough of them reach, then who reaches it.
#pragma once

#include <cstdint>

#include "lanes.h"

namespace reprise {

// A token as it is ranked: by value, ties by lowest id.
struct Ranked {
    float value;
    int32_t id;
};

inline bool is_before(const Ranked& a, const Ranked& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

// The highest of the row; its numbers are not NaN.
float highest_of(const float* values, int length);

// The lowest place of `value`, which is in the row and which no number of the row exceeds.
int first_place_of(const float* values, int length, float value);

// A number that at least `count` of the row's reach, and not many more; -infinity where count >= length.
// maxima   [length rounded up to 16] to work in
float bound_of_highest(const float* values, int length, int64_t count, float* maxima);

// Places of the numbers that are at least `low` and below `high`, ascending; returns how many. places [length]
int places_between(const float* values, int length, float low, float high, int32_t* places);

}  // namespace reprise
