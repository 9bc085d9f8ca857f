// A row's log-probabilities under its unmodified logits, as they are reported: float32, likeliest first, ties by lowest id.
#pragma once

#include <cstdint>

#include "likeliest.h"
#include "row_statistics.h"

namespace reprise {

struct Alternative {
    int32_t token_id;
    float logprob;
};

// Of a row whose statistics are finite.
class LogProbabilities {
public:
    explicit LogProbabilities(const RowStatistics& statistics);
    float of(float logit) const { return static_cast<float>(static_cast<double>(logit) - highest_ - log_total_); }

private:
    double highest_, log_total_;
};

// The `count` likeliest, count <= length.
// maxima, places, ranked   [length rounded up to 16] to work in
void list_alternatives(const float* logits, int length, const LogProbabilities& logprobs, int count, Alternative* alternatives,
                       float* maxima, int32_t* places, Ranked* ranked);

// The place of `token_id` among all tokens, from 1. places: as above
int rank_of(const float* logits, int length, const LogProbabilities& logprobs, int64_t token_id, int32_t* places);

}  // namespace reprise
