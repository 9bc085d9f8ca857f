// Draws tokens from rows of logits; what each parameter means stands in kernels/sampling.py.
//
// A draw's bits depend on its own row alone, and are the same on every instruction set: weights are float32 by the one
// `exp_of_nonpositive`; a sum of them is taken over lanes in blocks and the blocks' in double, in an order that follows
// from the row; no function of the system's mathematical library decides anything.
#pragma once

#include <cstdint>
#include <vector>

#include "aligned.h"
#include "likeliest.h"
#include "log_probabilities.h"
#include "row_statistics.h"
#include "team.h"

namespace reprise {

// What one row is drawn by; kernels/cpu/draws.py packs it. Ids outside the vocabulary are passed over.
struct DrawRow {
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed, position;
    int64_t top_k;           // 0: all
    const int64_t* seen;     // [num_seen], distinct: tokens of the prompt and the output
    const int64_t* counts;   // [num_seen]: how often each is in the output
    const int64_t* biased;   // [num_biased]
    const float* biases;     // [num_biased]
    const int64_t* banned;   // [num_banned]
    const uint32_t* allowed; // [num_allowed] words, the lowest bit of the first is token 0's; null: all
    Alternative* alternatives;  // [num_logprobs]; out: as many of them as the vocabulary has tokens
    int32_t num_seen, num_biased, num_banned, num_allowed, num_logprobs;
};

struct Drawn {
    int64_t token_id;
    float logprob;
    int32_t is_finite;  // 0: nothing could be drawn, and the rest is 0
};

// The logits of a step and what is known of them.
struct LogitRows {
    const float* logits;  // a row every `stride` floats
    int64_t stride;
    int length;
    const RowStatistics* statistics;
};

// Memory of one thread for one row.
struct DrawScratch {
    explicit DrawScratch(int length);

    Aligned<float> adjusted, weights, values;
    Aligned<int32_t> ids, places;
    Aligned<Ranked> ranked;
    Aligned<double> block_sums;
};

Drawn draw_row(const float* logits, int length, const RowStatistics& statistics, const DrawRow& row, DrawScratch& scratch);

class Sampler {
public:
    // Rows that need more than their statistics are shared out over the team. Throws std::bad_alloc where a longer row
    // or a larger team than any before needs more memory.
    void draw(Team& team, const LogitRows& rows, const DrawRow* parameters, int num_rows, Drawn* drawn);

private:
    int length_ = 0;
    std::vector<DrawScratch> scratch_;  // by thread
    std::vector<int> laborious_;        // rows for the team
};

}  // namespace reprise
