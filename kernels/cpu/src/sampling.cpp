// See sampling.h. A row's way:
//
//   logits ─► adjusted     bias, penalties, bans, in a copy; only where there are any
//          ─► candidates   the top_k highest logits, or the whole row
//          ─► weights      exp((logit - highest) / temperature), 0 where min_p drops a token
//          ─► nucleus      weights outside of top_p become 0
//          ─► choice       the uniform number looked up in the cumulative weights, ids ascending
//
// Nothing sorts the row: each bound is found by passes that compare 16 numbers at a time, and what is left is sorted.
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "philox.h"
#include "row_operations.h"

namespace reprise {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kBlock = 1024;               // 64 weights a lane, as row_statistics.cpp sums
constexpr int kMaxSorted = 128;            // sorting so many takes as long as one pass over the row
constexpr double kSmallestWeight = 1e-37;  // above exp(-87), which exp_of_nonpositive gives for all that is less
constexpr double kSmallestTemperature = 1e-30;

float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool changes_logits(const DrawRow& row) {
    const bool penalises = row.repetition_penalty != 1.0 || row.presence_penalty != 0.0 || row.frequency_penalty != 0.0;
    return row.num_biased > 0 || row.num_banned > 0 || row.allowed != nullptr || (penalises && row.num_seen > 0);
}

bool is_laborious(const DrawRow& row) { return row.temperature > 0.0 || row.num_logprobs > 0 || changes_logits(row); }

// ── what changes the logits ──

void forbid_others(float* logits, int length, const DrawRow& row) {
    for (int first = 0, word = 0; first < length; first += 32, ++word) {
        const uint32_t bits = word < row.num_allowed ? row.allowed[word] : 0;
        if (bits == ~0u) continue;
        const int end = std::min(32, length - first);
        for (int bit = 0; bit < end; ++bit)
            if ((bits >> bit & 1u) == 0) logits[first + bit] = -kInfinity;
    }
}

// float32 steps in the reference's order: bias, repetition, frequency, presence, bans, what is allowed.
void adjust(float* logits, int length, const DrawRow& row) {
    const auto is_known = [&](int64_t id) { return id >= 0 && id < length; };
    for (int i = 0; i < row.num_biased; ++i)
        if (is_known(row.biased[i])) logits[row.biased[i]] += row.biases[i];
    const bool repels = row.repetition_penalty != 1.0;
    const bool counts = row.presence_penalty != 0.0 || row.frequency_penalty != 0.0;
    const float frequency = static_cast<float>(row.frequency_penalty), presence = static_cast<float>(row.presence_penalty);
    for (int i = 0; i < row.num_seen && (repels || counts); ++i) {
        if (!is_known(row.seen[i])) continue;
        float& logit = logits[row.seen[i]];
        if (repels) {
            const double known = static_cast<double>(logit);
            const double penalised = known > 0.0 ? known / row.repetition_penalty : known * row.repetition_penalty;
            logit = static_cast<float>(std::min(std::max(penalised, -static_cast<double>(kLargest)), static_cast<double>(kLargest)));
        }
        if (counts && row.counts[i] > 0) {
            logit -= frequency * static_cast<float>(row.counts[i]);
            logit -= presence;
        }
    }
    for (int i = 0; i < row.num_banned; ++i)
        if (is_known(row.banned[i])) logits[row.banned[i]] = -kInfinity;
    if (row.allowed != nullptr) forbid_others(logits, length, row);
}

// ── what chooses among them ──

// Tokens that may be drawn, ids ascending: weights beside their ids, or beside nothing where it is the whole row.
// A weight of 0 is dropped.
struct Candidates {
    float* weights;
    int length;
    const int32_t* ids;
    int32_t id_of(int place) const { return ids ? ids[place] : place; }
};

// exp((logit - highest) / temperature) on 16 lanes: the likeliest has 1; less than `smallest` counts as 0.
class Weighing {
public:
    Weighing(float highest, const DrawRow& row)
        : highest_(broadcast(highest)),
          scale_(broadcast(static_cast<float>(1.0 / std::max(row.temperature, kSmallestTemperature)))),
          smallest_(broadcast(static_cast<float>(std::min(std::max(row.min_p, kSmallestWeight), 1.0)))) {}

    void weigh(const float* logits, int length, float* weights) const {
        int i = 0;
        for (; i + kLanes <= length; i += kLanes) store(weights + i, of(load(logits + i)));
        if (i < length) store_first(weights + i, of(load_first(logits + i, length - i)), length - i);
    }

private:
    Floats of(Floats logits) const {
        return at_least_or_zero(exp_of_nonpositive(mul(sub(logits, highest_), scale_)), smallest_);
    }
    const Floats highest_, scale_, smallest_;
};

// Sum and number of those that are at least `bound`, a block's in lanes, the blocks' in double.
struct Reached {
    double weight;
    int count;
};

float sum_of_block(const float* weights, int length, float bound, int* count) {
    const Floats bounds = broadcast(bound);
    Floats sums = zero_floats();
    int i = 0;
    for (; i + kLanes <= length; i += kLanes) {
        const Floats part = load(weights + i);
        if (count) *count += __builtin_popcount(at_least(part, bounds));
        sums = add(sums, at_least_or_zero(part, bounds));
    }
    if (i < length) {
        const Floats part = load_first(weights + i, length - i);
        if (count) *count += __builtin_popcount(at_least(part, bounds));
        sums = add(sums, at_least_or_zero(part, bounds));
    }
    return sum_of_lanes(sums);
}

Reached reached(const Candidates& candidates, float bound) {
    Reached result{0.0, 0};
    for (int first = 0; first < candidates.length; first += kBlock)
        result.weight += static_cast<double>(sum_of_block(candidates.weights + first, std::min(kBlock, candidates.length - first),
                                                          bound, &result.count));
    return result;
}

void drop_below(float* weights, int length, float bound) {
    const Floats bounds = broadcast(bound);
    for (int i = 0; i < length; i += kLanes) {
        const Floats part = load_first(weights + i, length - i);
        store_first(weights + i, at_least_or_zero(part, bounds), length - i);
    }
}

// The `count` highest logits, ties by lowest id.
Candidates highest_candidates(const float* logits, int length, int64_t count, const Weighing& weighing, DrawScratch& scratch) {
    int32_t* ids = scratch.ids.data();
    const float bound = bound_of_highest(logits, length, count, scratch.values.data());
    int num_found = places_between(logits, length, bound, kInfinity, ids);
    if (num_found > count) {
        Ranked* ranked = scratch.ranked.data();
        for (int i = 0; i < num_found; ++i) ranked[i] = {logits[ids[i]], ids[i]};
        std::nth_element(ranked, ranked + (count - 1), ranked + num_found, is_before);
        const Ranked last = ranked[count - 1];
        num_found = static_cast<int>(std::remove_if(ids, ids + num_found, [&](int32_t id) {
            return is_before(last, {logits[id], id});
        }) - ids);
    }
    float* gathered = scratch.values.data();
    for (int i = 0; i < num_found; ++i) gathered[i] = logits[ids[i]];
    weighing.weigh(gathered, num_found, scratch.weights.data());
    return {scratch.weights.data(), num_found, ids};
}

// Drop what does not belong to the fewest likeliest (by weight, ties by lowest id) that have the share top_p of all.
//
// A bound is looked for that the nucleus ends below, halving or interpolating the floats' bits, until few enough are left in doubt to be
// sorted: those from `low` to below `high`. What weighs less than (1 - top_p) × total / length weighs together less than
// what the nucleus leaves out, so `low` starts there.
void drop_outside_nucleus(const Candidates& candidates, double top_p, DrawScratch& scratch) {
    float* weights = candidates.weights;
    const int length = candidates.length;
    const double total = reached(candidates, 0.0f).weight, wanted = top_p * total;
    const double too_light = (1.0 - top_p) * total / length * (1.0 - 1e-6);
    uint32_t low = bits_of(static_cast<float>(std::max(too_light, kSmallestWeight))), high = bits_of(1.0f) + 1;
    Reached above{0.0, 0}, from_low{total, length};
    double share = 0.5;  // of the way from low to high; after the first try as if weight were spread evenly over it
    while (from_low.count - above.count > kMaxSorted && high - low > 1) {
        const uint32_t middle = low + std::max(1u, static_cast<uint32_t>((high - low) * share));
        const Reached from_middle = reached(candidates, float_of(middle));
        if (from_middle.weight >= wanted) low = middle, from_low = from_middle;
        else high = middle, above = from_middle;
        const double even = (from_low.weight - wanted) / (from_low.weight - above.weight);
        share = std::min(std::max(even, 0.1), 0.9);
    }
    Ranked* ranked = scratch.ranked.data();
    int32_t* places = scratch.places.data();
    const int num_ranked = places_between(weights, length, float_of(low), float_of(high), places);
    for (int i = 0; i < num_ranked; ++i) ranked[i] = {weights[places[i]], places[i]};
    if (!std::is_sorted(ranked, ranked + num_ranked, is_before)) std::sort(ranked, ranked + num_ranked, is_before);
    double passed = above.weight;
    int last = 0;
    for (; last + 1 < num_ranked; ++last) {
        passed += static_cast<double>(ranked[last].value);
        if (passed >= wanted) break;
    }
    if (num_ranked == 0) return;  // by a rounding: all together do not reach it
    const Ranked& end = ranked[last];
    drop_below(weights, end.id + 1, end.value);
    drop_below(weights + end.id + 1, length - end.id - 1, float_of(bits_of(end.value) + 1));
}

// The uniform number looked up in the cumulative weights: first the block, by the blocks' sums, and in it the place.
int chosen_place(const Candidates& candidates, double uniform, DrawScratch& scratch) {
    double* sums = scratch.block_sums.data();
    double total = 0.0;
    int last_block = 0;
    for (int first = 0, block = 0; first < candidates.length; first += kBlock, ++block) {
        sums[block] = static_cast<double>(
            sum_of_block(candidates.weights + first, std::min(kBlock, candidates.length - first), 0.0f, nullptr));
        total += sums[block];
        if (sums[block] > 0.0) last_block = block;
    }
    const double wanted = uniform * total;
    double passed = 0.0;
    int block = 0;
    while (block < last_block && passed + sums[block] <= wanted) passed += sums[block++];
    int chosen = block * kBlock;  // rounding can lead past the last weight of the block: then that one is taken
    const int end = std::min(candidates.length, chosen + kBlock);
    for (int place = chosen; place < end && passed <= wanted; ++place) {
        if (candidates.weights[place] == 0.0f) continue;
        chosen = place;
        passed += static_cast<double>(candidates.weights[place]);
    }
    return chosen;
}

int64_t choose(const float* logits, int length, float highest, const DrawRow& row, DrawScratch& scratch) {
    const Weighing weighing(highest, row);
    const bool has_top_k = row.top_k > 0 && row.top_k < length;
    Candidates candidates{scratch.weights.data(), length, nullptr};
    if (has_top_k) candidates = highest_candidates(logits, length, row.top_k, weighing, scratch);
    else weighing.weigh(logits, length, candidates.weights);
    if (row.top_p < 1.0) drop_outside_nucleus(candidates, std::max(row.top_p, 0.0), scratch);
    return candidates.id_of(chosen_place(candidates, uniform(row.seed, row.position), scratch));
}

}  // namespace

DrawScratch::DrawScratch(int length) {
    const size_t padded = round_up(static_cast<size_t>(length), kLanes);
    for (Aligned<float>* floats : {&adjusted, &weights, &values}) floats->reset(padded);
    for (Aligned<int32_t>* numbers : {&ids, &places}) numbers->reset(padded);
    ranked.reset(padded);
    block_sums.reset(padded / kBlock + 1);
}

Drawn draw_row(const float* logits, int length, const RowStatistics& statistics, const DrawRow& row, DrawScratch& scratch) {
    if (!statistics.is_finite) return {};
    int64_t token_id = statistics.highest_id;
    if (row.temperature > 0.0 || changes_logits(row)) {
        const float* adjusted = logits;
        float highest = statistics.highest;
        if (changes_logits(row)) {
            std::memcpy(scratch.adjusted.data(), logits, static_cast<size_t>(length) * sizeof(float));
            adjust(scratch.adjusted.data(), length, row);
            adjusted = scratch.adjusted.data();
            highest = highest_of(adjusted, length);
            if (!std::isfinite(highest)) return {};  // every token is banned
        }
        token_id = row.temperature > 0.0 ? choose(adjusted, length, highest, row, scratch)
                                         : first_place_of(adjusted, length, highest);
    }
    const LogProbabilities logprobs(statistics);
    if (row.num_logprobs > 0)
        list_alternatives(logits, length, logprobs, std::min(row.num_logprobs, length), row.alternatives, scratch.values.data(),
                          scratch.ids.data(), scratch.ranked.data());
    return {token_id, logprobs.of(logits[token_id]), 1};
}

void Sampler::draw(Team& team, const LogitRows& rows, const DrawRow* parameters, int num_rows, Drawn* drawn) {
    if (rows.length > length_) scratch_.clear();
    length_ = std::max(length_, rows.length);
    const size_t num_threads = static_cast<size_t>(team.num_threads());
    while (scratch_.size() < num_threads) scratch_.emplace_back(length_);

    struct Call {
        const LogitRows& rows;
        const DrawRow* parameters;
        Drawn* drawn;
        Sampler& sampler;
        void draw(int row, int thread) const {
            drawn[row] = draw_row(rows.logits + static_cast<size_t>(rows.stride) * static_cast<size_t>(row), rows.length,
                                  rows.statistics[row], parameters[row], sampler.scratch_[static_cast<size_t>(thread)]);
        }
    } call{rows, parameters, drawn, *this};

    laborious_.clear();
    for (int row = 0; row < num_rows; ++row) {
        if (is_laborious(parameters[row])) laborious_.push_back(row);
        else call.draw(row, 0);
    }
    if (laborious_.size() == 1) return call.draw(laborious_[0], 0);  // not worth to wake anybody
    team.begin(&call);
    team.add([](void* context, int, int item, int thread) {
        const Call& call = *static_cast<Call*>(context);
        call.draw(call.sampler.laborious_[static_cast<size_t>(item)], thread);
    }, 0, static_cast<int>(laborious_.size()));
    team.run();
}

}  // namespace reprise
