// See linear.h. Per block of 32 inputs: exact integer sums, then one fma (two with minima) into the running float sum.
// Float weights: even inputs go into one running sum, odd ones into another, which are added at the end: two shorter
// chains hide the latency of an fma.
#include "linear.h"

#include <algorithm>

namespace reprise {
namespace {

// A block of weights of up to two neighbouring tiles, and the same block of R rows.
struct Place {
    const uint8_t* quants;
    const uint8_t* scales;
    size_t quant_bytes;  // from one tile to the next
    size_t scale_bytes;
};
struct Rows {
    const int8_t* values;
    const BlockScale* scales;
    size_t value_stride;  // from one row to the next
    size_t scale_stride;
};

template <int R, int C>
inline void dot_nibbles(const Place& at, const Rows& rows, Ints (&sums)[R][C]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        Bytes low[C], high[C];
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
            const Bytes packed = load_bytes(at.quants + at.quant_bytes * c + 64 * j);
            low[c] = low_nibbles(packed);
            high[c] = high_nibbles(packed);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const int8_t* values = rows.values + rows.value_stride * r;
            const int32_t first = load_four(values + 4 * j), second = load_four(values + 16 + 4 * j);
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c)
                sums[r][c] = dot_small(dot_small(sums[r][c], low[c], first), high[c], second);
        }
    }
}

// Groups first … last-1 of four inputs.
template <int R, int C>
inline void dot_bytes(const Place& at, const Rows& rows, int first, int last, Ints (&sums)[R][C]) {
#pragma GCC unroll 8
    for (int j = first; j < last; ++j) {
        Bytes weights[C];
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) weights[c] = load_bytes(at.quants + at.quant_bytes * c + 64 * j);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const int32_t four = load_four(rows.values + rows.value_stride * r + 4 * j);
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c) sums[r][c] = dot_biased(sums[r][c], weights[c], four);
        }
    }
}

inline Floats scale_vector(const Place& at, int column, int vector, bool is_half) {
    const uint8_t* scales = at.scales + at.scale_bytes * column;
    if (is_half) return from_half(reinterpret_cast<const uint16_t*>(scales) + vector * kTileOutputs);
    return load(reinterpret_cast<const float*>(scales) + vector * kTileOutputs);
}

// totals += scale of weights × scale of activations × integer sums
template <int R, int C>
inline void add_scaled(const Place& at, const Rows& rows, int vector, bool is_half, const Ints (&sums)[R][C],
                       Floats (&totals)[R][C]) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
        const Floats weight_scale = scale_vector(at, c, vector, is_half);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
            totals[r][c] = fma(mul(weight_scale, broadcast(rows.scales[rows.scale_stride * r].scale)), to_floats(sums[r][c]), totals[r][c]);
    }
}

template <int R, int C>
inline void add_minima(const Place& at, const Rows& rows, bool is_half, Floats (&totals)[R][C]) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
        const Floats minima = scale_vector(at, c, 1, is_half);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) totals[r][c] = fma(minima, broadcast(rows.scales[rows.scale_stride * r].scaled_sum), totals[r][c]);
    }
}

template <Format F, int R, int C>
inline void add_block(const Place& at, const Rows& rows, Floats (&totals)[R][C]) {
    Ints sums[R][C];
    if constexpr (F == Format::Q4_0 || F == Format::Q4_1 || F == Format::Q4_K) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c)
                sums[r][c] = F == Format::Q4_0 ? broadcast_int(-8 * rows.scales[rows.scale_stride * r].sum) : zero_ints();
        dot_nibbles(at, rows, sums);
        add_scaled(at, rows, 0, F != Format::Q4_K, sums, totals);
        if constexpr (F != Format::Q4_0) add_minima(at, rows, F != Format::Q4_K, totals);
    } else if constexpr (F == Format::Q8_0) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c) sums[r][c] = start_biased(rows.scales[rows.scale_stride * r].sum);
        dot_bytes(at, rows, 0, 8, sums);
        add_scaled(at, rows, 0, true, sums, totals);
    } else {  // Q6_K
        for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const int32_t first = rows.scales[rows.scale_stride * r].first_sum;
#pragma GCC unroll 2
                for (int c = 0; c < C; ++c)
                    sums[r][c] = start_biased(half == 0 ? first : rows.scales[rows.scale_stride * r].sum - first);
            }
            dot_bytes(at, rows, 4 * half, 4 * half + 4, sums);
            add_scaled(at, rows, half, false, sums, totals);
        }
    }
}

template <int R, int C>
inline void write_out(const Floats (&totals)[R][C], float* out, size_t stride, bool accumulate) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
            float* place = out + stride * r + kTileOutputs * c;
            store(place, accumulate ? add(load(place), totals[r][c]) : totals[r][c]);
        }
}

// What a pass over a pair fetches of the pair that will be read after it: these bytes of each of its blocks.
struct Ahead {
    const uint8_t* pair;
    size_t begin, end;
};

inline void fetch(Ahead& ahead, size_t block_bytes) {
    for (size_t i = ahead.begin; i < ahead.end; i += kCacheLine) fetch_line(ahead.pair + i);
    ahead.pair += block_bytes;
}

template <Format F, int R, int C>
[[gnu::noinline]] void quantised_tile(const Matrix& matrix, const Activations& inputs, int first_row, int tile, float* out,
                                     size_t stride, bool accumulate, Ahead ahead) {
    Floats totals[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) totals[r][c] = zero_floats();
    const size_t first_block = inputs.block(first_row, 0);
    Rows rows{inputs.values + first_block * kBlockInputs, inputs.scales + first_block, static_cast<size_t>(inputs.stride),
              static_cast<size_t>(inputs.num_blocks)};
    Place at{matrix.quants(tile), matrix.scales(tile), matrix.quant_bytes, matrix.scale_bytes};
    for (int block = 0; block < matrix.num_blocks; ++block) {
        fetch(ahead, matrix.block_bytes());
        add_block<F, R, C>(at, rows, totals);
        at.quants += matrix.block_bytes();
        at.scales += matrix.block_bytes();
        rows.values += kBlockInputs;
        rows.scales += 1;
    }
    write_out<R, C>(totals, out, stride, accumulate);
}

template <Format F>
inline void load_pair(const uint8_t* pair, Floats& even, Floats& odd) {
    if constexpr (F == Format::BF16) {
        from_bfloat_pairs(reinterpret_cast<const uint16_t*>(pair), even, odd);
    } else if constexpr (F == Format::F16) {
        even = from_half(reinterpret_cast<const uint16_t*>(pair));
        odd = from_half(reinterpret_cast<const uint16_t*>(pair) + kTileOutputs);
    } else {
        even = load(reinterpret_cast<const float*>(pair));
        odd = load(reinterpret_cast<const float*>(pair) + kTileOutputs);
    }
}

template <Format F, int R, int C>
[[gnu::noinline]] void float_tile(const Matrix& matrix, const Activations& inputs, int first_row, int tile, float* out,
                                 size_t stride, bool accumulate, Ahead ahead) {
    Floats totals[R][C], odd_totals[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) totals[r][c] = odd_totals[r][c] = zero_floats();
    const float* row = inputs.row(first_row);
    const uint8_t* pair = matrix.quants(tile);
    for (int k = 0; k < matrix.num_blocks; ++k, pair += matrix.block_bytes()) {
        fetch(ahead, matrix.block_bytes());
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
            Floats even, odd;
            load_pair<F>(pair + matrix.quant_bytes * c, even, odd);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const float* inputs_of_row = row + static_cast<size_t>(inputs.stride) * r + 2 * k;
                totals[r][c] = fma(even, broadcast(inputs_of_row[0]), totals[r][c]);
                odd_totals[r][c] = fma(odd, broadcast(inputs_of_row[1]), odd_totals[r][c]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) totals[r][c] = add(totals[r][c], odd_totals[r][c]);
    write_out<R, C>(totals, out, stride, accumulate);
}

template <Format F, int R, int C>
inline void one_tile(const Matrix& matrix, const Activations& inputs, int first_row, int tile, float* out, size_t stride,
                     bool accumulate, Ahead ahead) {
    if constexpr (F == Format::F32 || F == Format::F16 || F == Format::BF16)
        float_tile<F, R, C>(matrix, inputs, first_row, tile, out, stride, accumulate, ahead);
    else
        quantised_tile<F, R, C>(matrix, inputs, first_row, tile, out, stride, accumulate, ahead);
}

// All rows × C tiles: kRowsAtATime rows at once, then the rest one size at a time. Each pass fetches its share.
template <Format F, int C, int R>
void some_rows(const Matrix& matrix, const Activations& inputs, RowRange rows, int tile, float* out, size_t stride,
               bool accumulate, Ahead ahead, size_t share) {
    int row = rows.begin;
    for (; row + R <= rows.end; row += R) {
        one_tile<F, R, C>(matrix, inputs, row, tile, out + stride * static_cast<size_t>(row - rows.begin), stride,
                          accumulate, ahead);
        ahead.begin = ahead.end;
        ahead.end = std::min(ahead.end + share, matrix.block_bytes());
    }
    if constexpr (R > 1)
        if (row < rows.end)
            some_rows<F, C, R - 1>(matrix, inputs, {row, rows.end}, tile,
                                   out + stride * static_cast<size_t>(row - rows.begin), stride, accumulate, ahead, share);
}

// Bytes of a block, whole cache lines, that a pass over so many rows fetches of the block of the next pair.
size_t share_of_pass(const Matrix& matrix, RowRange rows) {
    const size_t num_passes = static_cast<size_t>(std::max(1, (rows.end - rows.begin) / kRowsAtATime));
    return round_up((matrix.block_bytes() + num_passes - 1) / num_passes, kCacheLine);
}

template <Format F>
void multiply_format(const Matrix& matrix, const Activations& inputs, RowRange rows, int first_tile, int last_tile,
                     float* out, size_t stride, bool accumulate, const uint8_t* following) {
    const size_t share = share_of_pass(matrix, rows);
    for (int tile = first_tile; tile < last_tile;) {
        const bool is_pair = kColumnsAtATime == 2 && tile % 2 == 0 && tile + 2 <= last_tile;
        const int next = tile + (is_pair ? 2 : 1);
        const uint8_t* pair = next < last_tile ? matrix.pair_of(next) : following;
        const size_t each = next % 2 == 0 && pair != nullptr ? share : 0;
        const Ahead ahead{each > 0 ? pair : matrix.pairs, 0, std::min(each, matrix.block_bytes())};
        if (is_pair)
            some_rows<F, kColumnsAtATime, kRowsAtATime>(matrix, inputs, rows, tile, out, stride, accumulate, ahead, each);
        else
            some_rows<F, 1, kRowsAtATime>(matrix, inputs, rows, tile, out, stride, accumulate, ahead, each);
        out += (next - tile) * kTileOutputs;
        tile = next;
    }
}

}  // namespace

void multiply(const Matrix& matrix, const Activations& inputs, RowRange rows, int first_tile, int last_tile, float* out,
              size_t stride, bool accumulate, const uint8_t* following) {
    switch (matrix.format) {
#define REPRISE_CASE(name)                                                                                       \
    case Format::name:                                                                                           \
        return multiply_format<Format::name>(matrix, inputs, rows, first_tile, last_tile, out, stride, accumulate, following);
        REPRISE_CASE(F32)
        REPRISE_CASE(F16)
        REPRISE_CASE(BF16)
        REPRISE_CASE(Q4_0)
        REPRISE_CASE(Q4_1)
        REPRISE_CASE(Q8_0)
        REPRISE_CASE(Q4_K)
        REPRISE_CASE(Q6_K)
#undef REPRISE_CASE
        case Format::Q5_0: break;  // no matrix is kept so
    }
}

}  // namespace reprise
