// What rows of the step before say of given tokens: final norm, head and log-probabilities, a tile of rows at a time, so
// that of the logits no more than a tile's are ever held. The residual stream lies in the workspace as the step left it.
#include "decoder_step.h"
#include "log_probabilities.h"

namespace reprise {
namespace {

constexpr int kRowsOfTile = 32;

struct Tile {
    const ScoreInput& input;
    const ScoreOutput& output;
    const RowStatistics* statistics;
    const float* logits;
    size_t stride;
    int length, first;
    std::vector<DrawScratch>& scratch;

    void score(int item, int thread) const {
        const size_t row = static_cast<size_t>(first + item);
        Scored& scored = output.scored[row];
        scored = {0.0f, 0};
        if (!statistics[item].is_finite) return;
        const float* of_row = logits + stride * static_cast<size_t>(item);
        const LogProbabilities logprobs(statistics[item]);
        DrawScratch& memory = scratch[static_cast<size_t>(thread)];
        const int64_t token_id = input.token_ids[row];
        scored = {logprobs.of(of_row[token_id]), rank_of(of_row, length, logprobs, token_id, memory.places.data())};
        if (input.num_top > 0)
            list_alternatives(of_row, length, logprobs, input.num_top, output.alternatives + row * static_cast<size_t>(input.num_top),
                              memory.values.data(), memory.places.data(), memory.ranked.data());
    }
};

}  // namespace

void Decoder::score(const ScoreInput& input, const ScoreOutput& output) {
    Workspace& work = *workspace_;
    ScoreMemory& memory = work.scoring;
    const size_t stride = round_up(static_cast<size_t>(shape.vocab_size), kLanes);
    if (memory.logits.size() == 0) {
        memory.hidden.reset(kRowsOfTile * static_cast<size_t>(shape.hidden_size));
        memory.logits.reset(kRowsOfTile * stride);
        memory.statistics.resize(kRowsOfTile);
    }
    while (memory.scratch.size() < static_cast<size_t>(team_->num_threads())) memory.scratch.emplace_back(shape.vocab_size);
    for (int first = 0; first < input.num_rows; first += kRowsOfTile) {
        StepInput rows{};
        rows.num_logits = std::min(kRowsOfTile, input.num_rows - first);
        rows.logit_rows = input.rows + first;
        const StepOutput of_rows{memory.hidden.data(), memory.logits.data(), memory.statistics.data(), static_cast<int64_t>(stride)};
        Step step = prepared(rows, of_rows);
        step.adds_last_mlp = work.last_mlp_is_apart;
        team_->begin(&step);
        step.build_head(*team_);
        team_->run();
        Tile tile{input, output, memory.statistics.data(), memory.logits.data(), stride, shape.vocab_size, first, memory.scratch};
        team_->begin(&tile);
        team_->add([](void* context, int, int item, int thread) { static_cast<Tile*>(context)->score(item, thread); }, 0,
                   rows.num_logits);
        team_->run();
    }
}

}  // namespace reprise
