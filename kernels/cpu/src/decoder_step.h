// One step's parts: its workspace, and what its phases share. decoder.cpp runs them as one program, traced_step.cpp one
// after the other, so that each operation's result can be looked at.
#pragma once

#include <algorithm>
#include <vector>

#include "decoder.h"
#include "linear.h"
#include "row_operations.h"

namespace reprise {

constexpr int kRowsOfItem = 64;
constexpr int kTilesOfItem = 2;      // of a layer's projection: 32 outputs
constexpr int kHeadTilesOfItem = 8;  // of the vocabulary
constexpr int kRowsOfNormItem = 4;

inline int num_pieces(int count, int size) { return (count + size - 1) / size; }

// Which of the two forms of activations the matrices that read them need.
struct Need {
    bool quantised = false;
    bool floats = false;
    void of(const Matrix& matrix) { (is_quantised(matrix.format) ? quantised : floats) = true; }
};

struct ActivationMemory {
    Aligned<float> floats;
    Aligned<int8_t> values;
    Aligned<BlockScale> scales;
    Activations view;

    void reset(int num_rows, int length) {
        view.stride = static_cast<int>(round_up(static_cast<size_t>(length), kBlockInputs));
        view.num_blocks = view.stride / kBlockInputs;
        const size_t blocks = static_cast<size_t>(num_rows) * static_cast<size_t>(view.num_blocks);
        floats.reset(blocks * kBlockInputs);
        values.reset(blocks * kBlockInputs);
        scales.reset(blocks);
        view.floats = floats.data();
        view.values = values.data();
        view.scales = scales.data();
    }
};

struct ThreadScratch {
    explicit ThreadScratch(int head_dim)
        : attention(head_dim), gate(kRowsOfItem * kBlockInputs), up(kRowsOfItem * kBlockInputs) {}
    AttentionScratch attention;
    Aligned<float> gate, up;  // [kRowsOfItem, 32]
};

// What a step keeps in registers or overwrites, where somebody looks at each operation's result; empty before.
struct TraceMemory {
    Aligned<float> projected;  // [rows, x_stride]: of o, then of down
    Aligned<float> gate, up;   // [rows, stride of gated]
};

// A tile of rows whose logits are looked at and not kept; empty before the first.
struct ScoreMemory {
    Aligned<float> hidden, logits;
    std::vector<RowStatistics> statistics;
    std::vector<DrawScratch> scratch;  // by thread
};

struct Decoder::Workspace {
    int max_rows = 0, max_logits = 0;
    size_t x_stride = 0, qkv_stride = 0;
    Aligned<float> x, qkv;
    Aligned<float> projected;  // [rows, x_stride]: of o or down, until it is normed and added; where the shape has post norms
    ActivationMemory normed, attended, gated, final;
    std::vector<AttentionTask> tasks;
    std::vector<float> partial_mixed;  // [tasks, splits, kMaxQueries, head_dim] where tasks are split
    std::vector<PartialAttention> partials;
    std::vector<ThreadScratch> scratch;
    TraceMemory trace;
    ScoreMemory scoring;
    bool last_mlp_is_apart = false;  // x lacks the last layer's norm(projected), but of rows that logits were asked for
};

// What the phases of one step share.
struct Decoder::Step {
    Decoder& decoder;
    const DecoderShape& shape;
    Workspace& work;
    const StepInput& input;
    const StepOutput& output;
    AttentionShape attention, local_attention;
    int num_row_pieces;
    int max_splits;
    bool splits_apart;
    bool quantises_attended_apart;
    bool adds_last_mlp = false;  // final_norm begins with the last layer's x += norm(projected)

    static Step& of(void* context) { return *static_cast<Step*>(context); }
    RowRange rows_of(int piece) const {
        return {piece * kRowsOfItem, std::min(input.num_rows, (piece + 1) * kRowsOfItem)};
    }
    KvLayer kv_layer(int layer) const {
        const size_t element = input.is_bfloat ? 2 : 4;
        const size_t offset = element * static_cast<size_t>(input.layer_elements) * static_cast<size_t>(layer);
        return {input.is_bfloat != 0, static_cast<char*>(input.keys) + offset, static_cast<char*>(input.values) + offset,
                input.block_size};
    }
    const AttentionShape& attention_of(int layer) const { return decoder.layer(layer).is_local ? local_attention : attention; }
    float* x_row(int row) const { return work.x.data() + work.x_stride * static_cast<size_t>(row); }
    float* projected_row(int row) const { return work.projected.data() + work.x_stride * static_cast<size_t>(row); }

    void embed(int item) const;
    void norm(const float* weight, const Need& need, int item);
    void norm_and_add(const Aligned<float>& post_norm, int item) const;
    void heads(int layer, int item, int thread);
    void project_heads(int layer, int item, int thread);
    void rotate_heads(int layer, int item);
    void store_heads(int layer, int item);
    void attend_task(int layer, int item, int thread);
    void attend_one_split(int layer, int item, int thread);
    void merge_splits(int layer, int item);
    void quantise_attended(int item);
    void hand_on_attended(int layer, const AttentionTask& task);
    void project(const Matrix& matrix, const ActivationMemory& inputs, int item, const Matrix& next, int thread);
    void gate(int layer, int item, int thread);
    void final_norm(int item);
    void head(int item);
    void statistics(int item);
    const uint8_t* following(const Matrix& matrix, int last_tile, int item, int num_items, const Matrix& next, int thread) const;

    void plan_attention();
    void build(Team& team);
    void build_head(Team& team);

    // What heads of which rows an item of `heads` is about.
    struct HeadItem {
        RowRange rows;
        int column_head;  // among q, k and v together
        int head;         // within its kind
        bool is_q, is_k;
        float* out;  // of the first row
    };
    HeadItem head_item(int item) const;
};

}  // namespace reprise
