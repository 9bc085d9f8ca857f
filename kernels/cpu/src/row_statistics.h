// What a sampler asks of a row of logits, in one pass order that is fixed: so that 50,000 floats need not travel.
#pragma once

#include <cstdint>

#include "lanes.h"

namespace reprise {

struct RowStatistics {
    int64_t highest_id;  // the lowest id of those with the highest logit
    double total;        // of exp(logit - highest) over the row
    float highest;
    int32_t is_finite;  // 0: a NaN or an infinity is among them, and the rest means nothing
};

RowStatistics row_statistics(const float* logits, int length);

}  // namespace reprise
