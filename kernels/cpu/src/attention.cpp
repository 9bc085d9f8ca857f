// See attention.h.
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace reprise {
namespace {

constexpr int kGroupsAhead = 3;               // whose keys are on their way while one is scored
constexpr int kGroups = kSplitKeys / kLanes;  // of 16 keys, in a split
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Where a split's groups of 16 keys and values lie.
template <class Element>
struct Split {
    const Element* keys[kGroups];
    const Element* values[kGroups];
};

template <class Element>
size_t block_elements(const AttentionShape& shape, int block_size) {
    return static_cast<size_t>(block_size) * static_cast<size_t>(shape.head_dim);
}

template <class Element>
const Element* kv_block(const AttentionShape& shape, const void* memory, int64_t block, int kv_head, int block_size) {
    const size_t index = static_cast<size_t>(block) * static_cast<size_t>(shape.num_kv_heads) + static_cast<size_t>(kv_head);
    return static_cast<const Element*>(memory) + index * block_elements<Element>(shape, block_size);
}

// Place of dimension `dim` of slot `slot` in a group of 16 keys.
template <class Element>
size_t key_place(int dim, int slot) {
    if constexpr (std::is_same_v<Element, uint16_t>)
        return static_cast<size_t>((dim / 2) * 2 * kLanes + 2 * slot + dim % 2);
    else
        return static_cast<size_t>(dim * kLanes + slot);
}

template <class Element>
Element to_element(float value) {
    if constexpr (std::is_same_v<Element, uint16_t>)
        return to_bfloat(value);
    else
        return value;
}

template <class Element>
void write_key(const AttentionShape& shape, const KvLayer& memory, int64_t slot, int kv_head, const float* key) {
    const int block_size = memory.block_size, offset = static_cast<int>(slot % block_size), dims = shape.head_dim;
    auto* keys = const_cast<Element*>(kv_block<Element>(shape, memory.keys, slot / block_size, kv_head, block_size));
    if (block_size % kLanes == 0) {
        Element* group = keys + static_cast<size_t>(offset / kLanes) * static_cast<size_t>(kLanes * dims);
        for (int d = 0; d < dims; ++d) group[key_place<Element>(d, offset % kLanes)] = to_element<Element>(key[d]);
    } else {
        for (int d = 0; d < dims; ++d) keys[static_cast<size_t>(offset * dims + d)] = to_element<Element>(key[d]);
    }
}

template <class Element>
void write_value(const AttentionShape& shape, const KvLayer& memory, int64_t slot, int kv_head, const float* value) {
    const int block_size = memory.block_size, offset = static_cast<int>(slot % block_size), dims = shape.head_dim;
    auto* values = const_cast<Element*>(kv_block<Element>(shape, memory.values, slot / block_size, kv_head, block_size));
    for (int d = 0; d < dims; ++d) values[static_cast<size_t>(offset * dims + d)] = to_element<Element>(value[d]);
}

template <class Element>
Split<Element> whole_groups(const AttentionShape& shape, const KvLayer& memory, const AttentionTask& task, int first_key,
                            int first_group, int num_keys) {
    Split<Element> split;
    const int block_size = memory.block_size;
    const size_t group_elements = static_cast<size_t>(kLanes * shape.head_dim);
    for (int group = first_group; group * kLanes < num_keys; ++group) {
        const int key = first_key + group * kLanes;
        const int64_t block = task.block_table[key / block_size];
        const size_t offset = static_cast<size_t>(key % block_size / kLanes) * group_elements;
        split.keys[group] = kv_block<Element>(shape, memory.keys, block, task.kv_head, block_size) + offset;
        split.values[group] = kv_block<Element>(shape, memory.values, block, task.kv_head, block_size) + offset;
    }
    return split;
}

template <class Element>
Split<Element> gathered_groups(const AttentionShape& shape, const KvLayer& memory, const AttentionTask& task,
                               int first_key, int first_group, int num_keys, AttentionScratch& scratch) {
    Split<Element> split;
    const int block_size = memory.block_size, dims = shape.head_dim;
    const size_t group_elements = static_cast<size_t>(kLanes * dims);
    auto* keys = reinterpret_cast<Element*>(scratch.gathered_keys.data());
    auto* values = reinterpret_cast<Element*>(scratch.gathered_values.data());
    for (int i = first_group * kLanes; i < num_keys; ++i) {
        const int64_t block = task.block_table[(first_key + i) / block_size];
        const size_t row = static_cast<size_t>((first_key + i) % block_size) * static_cast<size_t>(dims);
        const Element* key = kv_block<Element>(shape, memory.keys, block, task.kv_head, block_size) + row;
        const Element* value = kv_block<Element>(shape, memory.values, block, task.kv_head, block_size) + row;
        Element* group = keys + static_cast<size_t>(i / kLanes) * group_elements;
        for (int d = 0; d < dims; ++d) group[key_place<Element>(d, i % kLanes)] = key[d];
        std::memcpy(values + static_cast<size_t>(i) * static_cast<size_t>(dims), value, static_cast<size_t>(dims) * sizeof(Element));
    }
    for (int group = 0; group < kGroups; ++group) {
        split.keys[group] = keys + static_cast<size_t>(group) * group_elements;
        split.values[group] = values + static_cast<size_t>(group) * group_elements;
    }
    return split;
}

// Calls work(size, first) for begin … end-1 in pieces of at most Size; `size` is a compile-time number.
template <int Size, class Work>
inline void in_pieces(int begin, int end, const Work& work) {
    for (; begin + Size <= end; begin += Size) work(std::integral_constant<int, Size>(), begin);
    if constexpr (Size > 1)
        if (begin < end) in_pieces<(Size > 6 ? 6 : Size > 4 ? 4 : Size - 1)>(begin, end, work);
}

template <class Element>
inline void load_key_pair(const Element* keys, int pair, Floats& even, Floats& odd) {
    if constexpr (std::is_same_v<Element, uint16_t>) {
        from_bfloat_pairs(keys + pair * 2 * kLanes, even, odd);
    } else {
        even = load(keys + pair * 2 * kLanes);
        odd = load(keys + pair * 2 * kLanes + kLanes);
    }
}

inline Floats load_values(const uint16_t* p) { return from_bfloat(p); }
inline Floats load_values(const float* p) { return load(p); }

template <class Element>
inline void fetch_group(const Element* group, int head_dim) {
    const char* p = reinterpret_cast<const char*>(group);
    const size_t num_bytes = static_cast<size_t>(kLanes * head_dim) * sizeof(Element);
    for (size_t i = 0; i < num_bytes; i += kCacheLine) fetch_line(p + i);
}

// q·k of Q queries with a group's 16 keys: even dimensions in one running sum, odd ones in another, then added.
template <int Q, class Element>
inline void score_group(const Element* keys, const float* queries, int head_dim, float scale, float* scores) {
    Floats even_sums[Q], odd_sums[Q];
    for (int q = 0; q < Q; ++q) even_sums[q] = odd_sums[q] = zero_floats();
    for (int pair = 0; pair < head_dim / 2; ++pair) {
        Floats even, odd;
        load_key_pair(keys, pair, even, odd);
#pragma GCC unroll 12
        for (int q = 0; q < Q; ++q) {
            even_sums[q] = fma(even, broadcast(queries[q * head_dim + 2 * pair]), even_sums[q]);
            odd_sums[q] = fma(odd, broadcast(queries[q * head_dim + 2 * pair + 1]), odd_sums[q]);
        }
    }
    for (int q = 0; q < Q; ++q) store(scores + q * kSplitKeys, mul(add(even_sums[q], odd_sums[q]), broadcast(scale)));
}

// Lanes from `count` on of a, `other` in those before.
inline Floats last_lanes(Floats a, int count, float other) {
    if (count <= 0) return a;
    float lanes[kLanes];
    store(lanes, a);
    for (int i = 0; i < count; ++i) lanes[i] = other;
    return load(lanes);
}

// Scores of one query → weights, in place; lanes before its first key and past its last hold 0.
inline void weigh(float* scores, int first_key, int num_keys, float& highest, float& total) {
    const int first = first_key / kLanes * kLanes;
    Floats highest_lanes = broadcast(kLowest);
    for (int key = first; key < num_keys; key += kLanes)
        highest_lanes = max(last_lanes(first_lanes(load(scores + key), num_keys - key, kLowest), first_key - key, kLowest), highest_lanes);
    highest = highest_of_lanes(highest_lanes);
    Floats totals = zero_floats();
    for (int key = first; key < num_keys; key += kLanes) {
        const Floats weights = exp_of_nonpositive(sub(load(scores + key), broadcast(highest)));
        const Floats kept = last_lanes(first_lanes(weights, num_keys - key, 0.0f), first_key - key, 0.0f);
        totals = add(totals, kept);
        store(scores + key, kept);
    }
    total = sum_of_lanes(totals);
}

// Mix V × 16 dimensions of the values by the weights of Q queries, one key after the other.
template <int Q, int V, class Element>
inline void mix(const Split<Element>& split, const float* weights, const int* first_key, const int* end_key, int head_dim,
                int first_dim, float* mixed) {
    Floats sums[Q][V];
    for (int q = 0; q < Q; ++q)
        for (int v = 0; v < V; ++v) sums[q][v] = zero_floats();
    int begin = first_key[0], common_begin = first_key[0], common_end = end_key[0], end = end_key[0];
    for (int q = 1; q < Q; ++q) {
        begin = std::min(begin, first_key[q]), common_begin = std::max(common_begin, first_key[q]);
        common_end = std::min(common_end, end_key[q]), end = std::max(end, end_key[q]);
    }
    const auto mix_some = [&](int from, int to) {  // keys that only some of the queries see
        for (int key = from; key < to; ++key) {
            const Element* row = split.values[key / kLanes] + key % kLanes * head_dim + first_dim;
#pragma GCC unroll 8
            for (int q = 0; q < Q; ++q)
                if (key >= first_key[q] && key < end_key[q])
#pragma GCC unroll 4
                    for (int v = 0; v < V; ++v)
                        sums[q][v] = fma(broadcast(weights[q * kSplitKeys + key]), load_values(row + v * kLanes), sums[q][v]);
        }
    };
    mix_some(begin, std::min(common_begin, end));
    for (int key = common_begin; key < common_end; ++key) {
        const Element* row = split.values[key / kLanes] + key % kLanes * head_dim + first_dim;
        Floats values[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) values[v] = load_values(row + v * kLanes);
#pragma GCC unroll 8
        for (int q = 0; q < Q; ++q) {
            const Floats weight = broadcast(weights[q * kSplitKeys + key]);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sums[q][v] = fma(weight, values[v], sums[q][v]);
        }
    }
    mix_some(std::max(common_begin, common_end), end);
    for (int q = 0; q < Q; ++q)
        for (int v = 0; v < V; ++v) store(mixed + q * head_dim + first_dim + v * kLanes, sums[q][v]);
}

template <class Element>
void attend_split(const AttentionShape& shape, const KvLayer& memory, const AttentionTask& task, int split_index,
                  AttentionScratch& scratch, PartialAttention& result) {
    const int num_queries = task.num_queries(), head_dim = shape.head_dim, first_key = split_index * kSplitKeys;
    int longest = 0, begin = kSplitKeys;
    for (int q = 0; q < num_queries; ++q) {
        const int end = task.first_position + q / task.num_heads + 1 - first_key;  // past the query's last key
        const int first = shape.window == 0 ? 0 : end - shape.window;
        scratch.end_key[q] = std::clamp(end, 0, kSplitKeys);
        scratch.first_key[q] = std::clamp(first, 0, kSplitKeys);
        longest = std::max(longest, scratch.end_key[q]);
        begin = std::min(begin, scratch.first_key[q]);
    }
    const int first_group = begin / kLanes;
    const Split<Element> split = memory.block_size % kLanes == 0
                                     ? whole_groups<Element>(shape, memory, task, first_key, first_group, longest)
                                     : gathered_groups<Element>(shape, memory, task, first_key, first_group, longest, scratch);
    const float scale = shape.scale;
    const bool reads_memory = task.num_rows == 1;  // a prompt's tasks find keys and values in the cache
    const int num_groups = (longest + kLanes - 1) / kLanes;
    for (int group = first_group; reads_memory && group < std::min(first_group + kGroupsAhead, num_groups); ++group)
        fetch_group(split.keys[group], head_dim);
    for (int group = first_group; group < num_groups; ++group) {
        const int key = group * kLanes;
        if (reads_memory) {
            if (group + kGroupsAhead < num_groups) fetch_group(split.keys[group + kGroupsAhead], head_dim);
            fetch_group(split.values[group], head_dim);
        }
        in_pieces<kQueriesAtATime>(0, num_queries, [&](auto size, int first) {
            score_group<decltype(size)::value>(split.keys[group], scratch.queries.data() + first * head_dim, head_dim,
                                               scale, scratch.scores.data() + first * kSplitKeys + key);
        });
    }
    for (int q = 0; q < num_queries; ++q) {
        result.has_keys[q] = scratch.first_key[q] < scratch.end_key[q];
        if (result.has_keys[q])
            weigh(scratch.scores.data() + q * kSplitKeys, scratch.first_key[q], scratch.end_key[q], result.highest[q],
                  result.total[q]);
    }
    in_pieces<(kQueriesAtATime > 6 ? 6 : 1)>(0, num_queries, [&](auto size, int first) {
        in_pieces<4>(0, head_dim / kLanes, [&](auto vectors, int first_vector) {
            mix<decltype(size)::value, decltype(vectors)::value>(
                split, scratch.scores.data() + first * kSplitKeys, scratch.first_key + first, scratch.end_key + first, head_dim,
                first_vector * kLanes, result.mixed + first * head_dim);
        });
    });
}

float exp_of_nonpositive_scalar(float x) {
    float lanes[kLanes];
    store(lanes, exp_of_nonpositive(broadcast(x)));
    return lanes[0];
}

}  // namespace

AttentionScratch::AttentionScratch(int head_dim)
    : queries(static_cast<size_t>(kMaxQueries * head_dim)),
      scores(static_cast<size_t>(kMaxQueries * kSplitKeys)),
      mixed(static_cast<size_t>(2 * kMaxQueries * head_dim)),
      gathered_keys(static_cast<size_t>(kSplitKeys * head_dim)),
      gathered_values(static_cast<size_t>(kSplitKeys * head_dim)) {}

void store_key(const AttentionShape& shape, const KvLayer& memory, int64_t slot, int kv_head, const float* key) {
    if (memory.is_bfloat)
        write_key<uint16_t>(shape, memory, slot, kv_head, key);
    else
        write_key<float>(shape, memory, slot, kv_head, key);
}

void store_value(const AttentionShape& shape, const KvLayer& memory, int64_t slot, int kv_head, const float* value) {
    if (memory.is_bfloat)
        write_value<uint16_t>(shape, memory, slot, kv_head, value);
    else
        write_value<float>(shape, memory, slot, kv_head, value);
}

void attend(const AttentionShape& shape, const KvLayer& memory, const AttentionTask& task, const float* queries,
            size_t stride, int first_split, int last_split, AttentionScratch& scratch, PartialAttention& result) {
    const size_t head_dim = static_cast<size_t>(shape.head_dim);
    const size_t first_head = static_cast<size_t>(task.kv_head * shape.heads_per_kv() + task.first_head);
    const size_t row_floats = static_cast<size_t>(task.num_heads) * head_dim;
    for (int row = 0; row < task.num_rows; ++row)
        std::memcpy(scratch.queries.data() + static_cast<size_t>(row) * row_floats,
                    queries + static_cast<size_t>(task.first_row + row) * stride + first_head * head_dim,
                    row_floats * sizeof(float));
    PartialAttention next;
    next.mixed = scratch.mixed.data() + static_cast<size_t>(kMaxQueries) * head_dim;
    for (int split = first_split; split < last_split; ++split) {
        PartialAttention& target = split == first_split ? result : next;
        if (memory.is_bfloat)
            attend_split<uint16_t>(shape, memory, task, split, scratch, target);
        else
            attend_split<float>(shape, memory, task, split, scratch, target);
        if (split > first_split) merge(task, shape.head_dim, next, result);
    }
}

void merge(const AttentionTask& task, int head_dim, const PartialAttention& next, PartialAttention& running) {
    for (int q = 0; q < task.num_queries(); ++q) {
        if (!next.has_keys[q]) continue;
        if (!running.has_keys[q]) {  // the query's window begins in a later split than its neighbour's
            running.has_keys[q] = true;
            running.highest[q] = next.highest[q];
            running.total[q] = next.total[q];
            std::memcpy(running.mixed + q * head_dim, next.mixed + q * head_dim, static_cast<size_t>(head_dim) * sizeof(float));
            continue;
        }
        const float highest = next.highest[q] > running.highest[q] ? next.highest[q] : running.highest[q];
        const float shrink = exp_of_nonpositive_scalar(running.highest[q] - highest);
        const float shrink_next = exp_of_nonpositive_scalar(next.highest[q] - highest);
        running.highest[q] = highest;
        running.total[q] = std::fma(next.total[q], shrink_next, running.total[q] * shrink);
        float* mixed = running.mixed + q * head_dim;
        for (int d = 0; d < head_dim; d += kLanes)
            store(mixed + d, fma(load(next.mixed + q * head_dim + d), broadcast(shrink_next),
                                 mul(load(mixed + d), broadcast(shrink))));
    }
}

void finish(const AttentionShape& shape, const AttentionTask& task, const PartialAttention& merged, float* out,
            size_t stride) {
    const int head_dim = shape.head_dim, first_head = task.kv_head * shape.heads_per_kv() + task.first_head;
    for (int q = 0; q < task.num_queries(); ++q) {
        float* place = out + static_cast<size_t>(task.first_row + q / task.num_heads) * stride +
                       static_cast<size_t>((first_head + q % task.num_heads) * head_dim);
        for (int d = 0; d < head_dim; d += kLanes)
            store(place + d, div(load(merged.mixed + q * head_dim + d), broadcast(merged.total[q])));
    }
}

}  // namespace reprise
