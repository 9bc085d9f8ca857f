// Paged attention: softmax(q·kᵀ × scale)·v of each query, in an order that depends on its own keys alone.
//
// The keys are taken in splits of kSplitKeys, aligned to position 0; within a split a lane is a key slot (scores) or a
// dimension of the head (output), never the axis summed over; keys are mixed one after the other. The partial results of
// the splits (highest score, sum of weights, mix of values) are merged in ascending order. Whether a query is computed
// beside others, and whether one task goes through all its splits or many tasks take one each, changes no bit. A key
// after the query is not touched, so nothing that another row wrote can leak in, not even as 0 × NaN. With a window the
// first key and its split follow from the query's own position; earlier keys are not touched either.
//
// Memory of one block and kv head, `slots` = block_size:
//   block_size a multiple of 16   keys    groups of 16 slots: bfloat16 [dims/2][16][2], float32 [dims][16]
//                                 values  [slots][dims]
//   other block sizes             keys    [slots][dims], brought into groups of 16 a split at a time
//                                 values  [slots][dims]
// Source: Kwon et al., PagedAttention, SOSP 2023; Milakov and Gimelshein, online softmax, 2018.
#pragma once

#include "aligned.h"
#include "lanes.h"

namespace reprise {

constexpr int kSplitKeys = 256;
constexpr int kMaxQueries = 12;  // of one task: queries that share loads of keys and values

struct AttentionShape {
    int num_heads;
    int num_kv_heads;
    int head_dim;  // a multiple of 16
    float scale;   // of scores
    int window;    // keys that a query sees, itself the last of them; 0: all up to itself
    int heads_per_kv() const { return num_heads / num_kv_heads; }
};

// One layer's keys and values.
struct KvLayer {
    bool is_bfloat;  // else float32
    void* keys;
    void* values;
    int block_size;
};

// Neighbouring rows of one sequence × heads that share a kv head. Position of row i: first_position + i.
struct AttentionTask {
    const int64_t* block_table;
    int first_row, num_rows;
    int first_position;
    int kv_head;
    int first_head, num_heads;  // within those of the kv head

    int num_queries() const { return num_rows * num_heads; }
    // Splits that some of the rows see keys in: first_split … num_splits - 1.
    int first_split(int window) const { return window == 0 || first_position < window ? 0 : (first_position - window + 1) / kSplitKeys; }
    int num_splits() const { return (first_position + num_rows - 1) / kSplitKeys + 1; }
};

// Result of one split, or of several merged. `mixed` is [kMaxQueries, head_dim].
struct PartialAttention {
    float highest[kMaxQueries];
    float total[kMaxQueries];
    bool has_keys[kMaxQueries];
    float* mixed;
};

struct AttentionScratch {
    explicit AttentionScratch(int head_dim);

    Aligned<float> queries;  // [kMaxQueries, head_dim]
    Aligned<float> scores;   // [kMaxQueries, kSplitKeys]
    Aligned<float> mixed;    // [2, kMaxQueries, head_dim]: running and of the split
    Aligned<float> gathered_keys, gathered_values;  // a split's, where blocks are not whole groups
    int first_key[kMaxQueries], end_key[kMaxQueries];  // that each query sees of the split; none where first >= end
};

// Store a row's rotated key, or its value, [head_dim] of one kv head in `slot` (block × block_size + offset).
void store_key(const AttentionShape& shape, const KvLayer& memory, int64_t slot, int kv_head, const float* key);
void store_value(const AttentionShape& shape, const KvLayer& memory, int64_t slot, int kv_head, const float* value);

// The splits first … last-1 of a task, merged. `queries` is row 0's first query head, `stride` floats from row to row.
void attend(const AttentionShape& shape, const KvLayer& memory, const AttentionTask& task, const float* queries,
            size_t stride, int first_split, int last_split, AttentionScratch& scratch, PartialAttention& result);

// Merge `next` (later keys) into `running`.
void merge(const AttentionTask& task, int head_dim, const PartialAttention& next, PartialAttention& running);

// mixed / total of each query into `out` (row 0's first head, `stride` floats from row to row).
void finish(const AttentionShape& shape, const AttentionTask& task, const PartialAttention& merged, float* out,
            size_t stride);

}  // namespace reprise
