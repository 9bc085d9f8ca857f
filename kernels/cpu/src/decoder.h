// A decoder: its weights, its workspace, and one step through all of it.
#pragma once

#include <memory>
#include <vector>

#include "activations.h"
#include "attention.h"
#include "row_operations.h"
#include "row_statistics.h"
#include "sampling.h"
#include "team.h"
#include "weights.h"

namespace reprise {

struct DecoderShape {
    int num_layers;
    int hidden_size;
    int intermediate_size;
    int num_heads;
    int num_kv_heads;
    int head_dim;
    int vocab_size;
    float norm_epsilon;
    float embedding_scale;
    float attention_scale;
    Activation activation;
    int has_post_norms;
    int window;  // keys that a query of a local layer sees; 0: there are no local layers
};

struct Layer {
    bool is_local = false;
    Aligned<float> attention_norm, mlp_norm;
    Aligned<float> post_attention_norm, post_mlp_norm;  // where the shape has them
    Matrix q, k, v, o, gate, up, down;
    Aligned<float> q_bias, k_bias, v_bias;  // empty: the model has none
    Aligned<float> q_norm, k_norm;
};

// One step's rows; see StepBatch in kernels/backend.py. All arrays are the caller's.
struct StepInput {
    int num_rows;
    int num_sequences;
    int num_logits;
    int table_stride;  // blocks from one block table to the next
    const int64_t* token_ids;
    const int64_t* positions;
    const int64_t* slot_mapping;
    const int64_t* query_starts;  // [num_sequences + 1]
    const int64_t* block_tables;
    const int64_t* logit_rows;
    void* keys;  // [layers, blocks, kv heads, block size × head dim]
    void* values;
    int64_t layer_elements;  // from one layer's memory to the next
    int block_size;
    int is_bfloat;
};

struct StepOutput {
    float* hidden;  // [num_logits, hidden_size]: rows of the final norm
    float* logits;  // [num_logits, logits_stride], at least vocab_size rounded up to 16
    RowStatistics* statistics;  // [num_logits]
    int64_t logits_stride;
};

// Rows of the last step, none of which it was asked logits for, each once; and a token that each is asked about.
struct ScoreInput {
    int num_rows;
    int num_top;  // likeliest tokens wanted of each; at most the vocabulary
    const int64_t* rows;
    const int64_t* token_ids;
};

struct Scored {
    float logprob;
    int32_t rank;  // 0: the row's logits are not finite, and the rest means nothing
};

struct ScoreOutput {
    Scored* scored;            // [num_rows]
    Alternative* alternatives;  // [num_rows, num_top]
};

// The operations of a step in their order; kernels/trace.py has their names.
enum class Operation : int {
    kEmbedding, kAttentionNorm, kQ, kK, kV, kRotaryQ, kRotaryK, kKvWrite, kAttention, kO, kAttentionResidual,
    kMlpNorm, kGate, kUp, kActivation, kDown, kMlpResidual, kFinalNorm, kHead,
};

// Shown an operation's result, [num_rows, length] floats `stride` apart, between it and the next one, by the thread that
// runs the step. What it writes there is what the next one reads. Layer -1: outside the layers. kKvWrite has no rows of
// its own: `rows` is null, the result lies in the KV memory.
using Tap = void (*)(int layer, int operation, float* rows, int num_rows, int length, int64_t stride);

class Decoder {
public:
    // cosines, sines: [2, max_positions, head_dim / 2], of the layers that see everything, then of the local ones.
    Decoder(const DecoderShape& shape, int max_positions, const float* cosines, const float* sines, int num_threads);

    const DecoderShape shape;
    WeightMemory weight_memory;
    Layer& layer(int index) { return layers_[static_cast<size_t>(index)]; }
    Aligned<float> final_norm;
    Matrix head;
    StoredRows embedding{};  // the caller's memory: it must outlive the decoder

    void set_num_threads(int num_threads);
    Team& team() { return *team_; }
    Sampler sampler;

    // Throws std::bad_alloc where a step larger than any before needs a larger workspace.
    void step(const StepInput& input, const StepOutput& output);

    // The same step one operation after the other, each result shown to `tap`; the same bits, several times slower.
    void step_traced(const StepInput& input, const StepOutput& output, Tap tap);

    // Log-probabilities of rows of the last step. Throws std::bad_alloc the first time where memory lacks.
    void score(const ScoreInput& input, const ScoreOutput& output);

    // One linear layer on `num_rows` rows [num_rows, num_inputs], as a step would compute it; out has `stride` floats a row.
    void apply(const Matrix& matrix, const float* rows, int num_rows, float* out, size_t stride);

private:
    struct Workspace;
    struct Step;
    struct TracedStep;
    void apply(const Matrix& matrix, const Activations& inputs, int num_rows, float* out, size_t stride);
    Step prepared(const StepInput& input, const StepOutput& output);

    size_t table_size_;  // max_positions × head_dim / 2
    Aligned<float> cosines_, sines_;  // [2, max_positions, head_dim / 2]
    std::vector<Layer> layers_;
    std::unique_ptr<Team> team_;
    std::shared_ptr<Workspace> workspace_;
};

}  // namespace reprise
