// The library's face in plain C, for ctypes: numbers and pointers only. kernels/cpu/library.py mirrors it.
//
// A function that can run out of memory returns 0 or null and leaves a text for `reprise_last_error`.
#include <exception>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "block_digest.h"
#include "decoder.h"
#include "row_operations.h"

#ifndef REPRISE_SOURCE_DIGEST
#define REPRISE_SOURCE_DIGEST "unknown"
#endif

using namespace reprise;

namespace {

thread_local std::string last_error;

template <class Result, class Function>
Result guarded(Result failed, Function function) {
    try {
        return function();
    } catch (const std::exception& error) {
        last_error = error.what();
        return failed;
    }
}

Matrix* matrix_of(Decoder* decoder, int layer, int which) {
    if (layer < 0) return &decoder->head;
    Layer& of = decoder->layer(layer);
    Matrix* matrices[] = {&of.q, &of.k, &of.v, &of.o, &of.gate, &of.up, &of.down};
    return matrices[which];
}

Aligned<float>* vector_of(Decoder* decoder, int layer, int which) {
    if (layer < 0) return &decoder->final_norm;
    Layer& of = decoder->layer(layer);
    Aligned<float>* vectors[] = {&of.attention_norm, &of.mlp_norm, &of.q_bias, &of.k_bias, &of.v_bias,
                                &of.q_norm, &of.k_norm, &of.post_attention_norm, &of.post_mlp_norm};
    return vectors[which];
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* reprise_instruction_set() { return kInstructionSet; }
const char* reprise_source_digest() { return REPRISE_SOURCE_DIGEST; }
const char* reprise_last_error() { return last_error.c_str(); }

// 2: AVX-512 with VNNI, 1: AVX2 with FMA and F16C, 0: neither, or another processor.
int reprise_best_instruction_set() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        return 2;
    unsigned eax, ebx, ecx = 0, edx;  // clang knows no name for float16 conversion
    const bool converts_half = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_half) return 1;
#endif
    return 0;
}

Decoder* reprise_create(const DecoderShape* shape, int max_positions, const float* cosines, const float* sines, int num_threads) {
    return guarded<Decoder*>(nullptr, [&] { return new Decoder(*shape, max_positions, cosines, sines, num_threads); });
}
void reprise_destroy(Decoder* decoder) { delete decoder; }
int reprise_set_num_threads(Decoder* decoder, int num_threads) {
    return guarded(0, [&] { return decoder->set_num_threads(num_threads), 1; });
}

// layer -1: the head
int reprise_set_matrix(Decoder* decoder, int layer, int which, const StoredRows* rows) {
    return guarded(0, [&] { return *matrix_of(decoder, layer, which) = pack_matrix(*rows, decoder->weight_memory), 1; });
}
// layer -1: the final norm
int reprise_set_vector(Decoder* decoder, int layer, int which, const float* values, int length) {
    return guarded(0, [&] {
        Aligned<float>& vector = *vector_of(decoder, layer, which);
        vector.reset(static_cast<size_t>(length));
        std::memcpy(vector.data(), values, static_cast<size_t>(length) * sizeof(float));
        return 1;
    });
}
void reprise_set_local(Decoder* decoder, int layer) { decoder->layer(layer).is_local = true; }
void reprise_set_embedding(Decoder* decoder, const StoredRows* rows) { decoder->embedding = *rows; }

int reprise_step(Decoder* decoder, const StepInput* input, const StepOutput* output) {
    return guarded(0, [&] { return decoder->step(*input, *output), 1; });
}
int reprise_step_traced(Decoder* decoder, const StepInput* input, const StepOutput* output, Tap tap) {
    return guarded(0, [&] { return decoder->step_traced(*input, *output, tap), 1; });
}
int reprise_apply(Decoder* decoder, int layer, int which, const float* rows, int num_rows, float* out, int64_t stride) {
    return guarded(0, [&] {
        return decoder->apply(*matrix_of(decoder, layer, which), rows, num_rows, out, static_cast<size_t>(stride)), 1;
    });
}

int reprise_score(Decoder* decoder, const ScoreInput* input, const ScoreOutput* output) {
    return guarded(0, [&] { return decoder->score(*input, *output), 1; });
}

// Tokens for the rows of `rows`, which may be any logits of any length.
int reprise_draw(Decoder* decoder, const LogitRows* rows, const DrawRow* parameters, int num_rows, Drawn* drawn) {
    return guarded(0, [&] { return decoder->sampler.draw(decoder->team(), *rows, parameters, num_rows, drawn), 1; });
}

// Digests of `num_blocks` blocks; any number of threads of the decoder's take one block each.
int reprise_digest_blocks(Decoder* decoder, const BlockMemory* memory, const int64_t* blocks, int num_blocks, uint64_t* digests) {
    struct Call {
        const BlockMemory& memory;
        const int64_t* blocks;
        uint64_t* digests;
    } call{*memory, blocks, digests};
    return guarded(0, [&] {
        decoder->team().begin(&call);
        decoder->team().add([](void* context, int, int item, int) {
            const Call& of = *static_cast<Call*>(context);
            of.digests[item] = block_digest(of.memory, of.blocks[item]);
        }, 0, num_blocks);
        return decoder->team().run(), 1;
    });
}

// Phase times of the last step in nanoseconds; returns how many phases there are room for.
int reprise_measure(Decoder* decoder, int measure, const int64_t** phase_ns) {
    decoder->team().measure = measure != 0;
    *phase_ns = decoder->team().phase_ns.data();
    return decoder->team().max_phases();
}
void reprise_waits(Decoder* decoder, int64_t* num_stalls, int64_t* num_solo_runs) {
    *num_stalls = decoder->team().num_stalls();
    *num_solo_runs = decoder->team().num_solo_runs();
}

// ── single operations, to be compared with the reference ──

void reprise_exp(const float* x, int length, float* result) {
    for (int i = 0; i < length; i += kLanes) store_first(result + i, exp_of_nonpositive(load_first(x + i, length - i)), length - i);
}
void reprise_rms_norm(const float* x, const float* weight, int length, float epsilon, float* result) {
    rms_norm(x, weight, length, epsilon, result);
}
void reprise_rotate(float* head, int head_dim, const float* cosines, const float* sines) { rotate_head(head, head_dim, cosines, sines); }
void reprise_gated(Activation activation, const float* gate, const float* up, int length, float* result) {
    for (int i = 0; i < length; i += kLanes)
        store_first(result + i, gated(activation, load_first(gate + i, length - i), load_first(up + i, length - i)), length - i);
}
void reprise_decode_row(const StoredRows* rows, int row, float* result) { decode_row(*rows, row, result); }
void reprise_row_statistics(const float* logits, int length, RowStatistics* result) { *result = row_statistics(logits, length); }
}  // extern "C"
#pragma GCC visibility pop
