// See log_probabilities.h. Rounding can make equals of two logits a little apart, so whatever may be reported alike is
// looked at as it is reported, and only what is clearly above or below is compared by its logit.
#include "log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "row_operations.h"

namespace reprise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kSlack = 5e-7;  // of a log-probability: four units in the last place

// Natural logarithm of a finite x >= 1, the same bits wherever it is compiled: x = m × 2^n with m in [√½, √2), and
// ln m = 2 artanh((m - 1) / (m + 1)), whose series is cut off below 2^-54.
double natural_log(double x) {
    int exponent;
    double mantissa = std::frexp(x, &exponent);  // exact
    if (mantissa < 0.70710678118654752) mantissa *= 2.0, --exponent;
    const double s = (mantissa - 1.0) / (mantissa + 1.0), square = s * s;
    double sum = 0.0;
    for (int odd = 23; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
    return exponent * 0.69314718055994531 + 2.0 * s * sum;
}

double slack_of(float logit, const LogProbabilities& logprobs) {
    return std::fabs(static_cast<double>(logprobs.of(logit))) * kSlack;
}

int num_at_least(const float* values, int length, float bound) {
    const Floats bounds = broadcast(bound);
    int count = 0, i = 0;
    for (; i + kLanes <= length; i += kLanes) count += __builtin_popcount(at_least(load(values + i), bounds));
    for (; i < length; ++i) count += values[i] >= bound;
    return count;
}

}  // namespace

LogProbabilities::LogProbabilities(const RowStatistics& statistics)
    : highest_(statistics.highest), log_total_(natural_log(statistics.total)) {}

void list_alternatives(const float* logits, int length, const LogProbabilities& logprobs, int count, Alternative* alternatives,
                       float* maxima, int32_t* places, Ranked* ranked) {
    const float bound = bound_of_highest(logits, length, count, maxima);
    const float lowest = static_cast<float>(static_cast<double>(bound) - slack_of(bound, logprobs));
    const int num_found = places_between(logits, length, lowest, kInfinity, places);
    for (int i = 0; i < num_found; ++i) ranked[i] = {logprobs.of(logits[places[i]]), places[i]};
    std::partial_sort(ranked, ranked + count, ranked + num_found, is_before);
    for (int i = 0; i < count; ++i) alternatives[i] = {ranked[i].id, ranked[i].value};
}

int rank_of(const float* logits, int length, const LogProbabilities& logprobs, int64_t token_id, int32_t* places) {
    const float logit = logits[token_id];
    const Ranked own{logprobs.of(logit), static_cast<int32_t>(token_id)};
    const double slack = slack_of(logit, logprobs);
    const float low = static_cast<float>(static_cast<double>(logit) - slack);
    const float high = std::nextafter(static_cast<float>(static_cast<double>(logit) + slack), kInfinity);
    int rank = 1 + num_at_least(logits, length, high);
    const int num_near = places_between(logits, length, low, high, places);
    for (int i = 0; i < num_near; ++i) rank += is_before({logprobs.of(logits[places[i]]), places[i]}, own);
    return rank;
}

}  // namespace reprise
