// Runs small random decoders, one per weight format and one with Gemma 3's layers, through prefill and decode steps and draws, and prints a digest of
// all float bits per decoder. Built with several compilers and for several processors, the lines must be equal: see
// test_cpu_other_compilers.py. Uses the library's own sources and nothing of Python.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include "decoder.h"
#include "sampling.h"

using namespace reprise;

namespace {

constexpr int kLayers = 2, kHidden = 256, kMiddle = 512, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kVocab = 320;
constexpr int kBlockSize = 16, kNumBlocks = 24, kLength = 300, kPrefill = 290;

struct Random {
    uint64_t state;
    uint32_t next() { return static_cast<uint32_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33); }
    float uniform() { return static_cast<float>(next() % 2048) / 2048.0f - 0.5f; }
    uint16_t half() { return static_cast<uint16_t>(0x1c00 + next() % 0x800); }  // 0.004 … 0.016
};

struct Digest {
    uint64_t value = 14695981039346656037u;
    void add(const void* data, size_t size) {
        const unsigned char* p = static_cast<const unsigned char*>(data);
        for (size_t i = 0; i < size; ++i) value = (value ^ p[i]) * 1099511628211u;
    }
};

size_t row_bytes(Format format, int columns) {
    const size_t n = static_cast<size_t>(columns);
    switch (format) {
        case Format::F32: return 4 * n;
        case Format::F16:
        case Format::BF16: return 2 * n;
        case Format::Q4_0: return n / 32 * 18;
        case Format::Q4_1: return n / 32 * 20;
        case Format::Q8_0: return n / 32 * 34;
        case Format::Q4_K: return n / 256 * 144;
        case Format::Q6_K: return n / 256 * 210;
        case Format::Q5_0: return n / 32 * 22;
    }
    return 0;
}

void put_half(std::vector<uint8_t>& bytes, size_t at, uint16_t half) { std::memcpy(bytes.data() + at, &half, 2); }

std::vector<uint8_t> random_rows(Format format, int rows, int columns, Random& random) {
    const size_t size = row_bytes(format, columns) * static_cast<size_t>(rows);
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
    if (format == Format::F32)
        for (size_t i = 0; i < size; i += 4) {
            const float value = random.uniform() * 0.2f;
            std::memcpy(bytes.data() + i, &value, 4);
        }
    if (format == Format::F16)
        for (size_t i = 0; i < size; i += 2) put_half(bytes, i, static_cast<uint16_t>(random.half() + 0x800 + (random.next() & 1) * 0x8000));
    if (format == Format::BF16)
        for (size_t i = 0; i < size; i += 2) put_half(bytes, i, static_cast<uint16_t>(0x3d00 + random.next() % 0x80 + (random.next() & 1) * 0x8000));
    const size_t block = format == Format::Q4_0 ? 18 : format == Format::Q4_1 ? 20 : format == Format::Q8_0 ? 34 : format == Format::Q4_K ? 144 : format == Format::Q5_0 ? 22 : 210;
    if (is_quantised(format))
        for (size_t i = 0; i < size; i += block) {
            put_half(bytes, format == Format::Q6_K ? i + 208 : i, static_cast<uint16_t>(random.half() - (format == Format::Q4_K || format == Format::Q6_K ? 0x1000 : 0)));
            if (format == Format::Q4_1) put_half(bytes, i + 2, static_cast<uint16_t>(random.half() + 0x8800));
            if (format == Format::Q4_K) put_half(bytes, i + 2, static_cast<uint16_t>(random.half() - 0x1000));
        }
    return bytes;
}

// Q5_0 is the format of the decoder with Gemma 3's layers: its first sees a window, with angles of its own.
uint64_t digest_of(Format format, bool is_bfloat, int num_threads) {
    const bool is_gemma = format == Format::Q5_0;
    Random random{static_cast<uint64_t>(format) * 977 + 1};
    std::vector<float> cosines(kLength * kHeadDim), sines(cosines.size());
    for (float& value : cosines) value = random.uniform();
    for (float& value : sines) value = random.uniform();
    DecoderShape shape{kLayers, kHidden, kMiddle, kHeads, kKvHeads, kHeadDim, kVocab, 1e-5f, 1.0f, 0.0f, Activation::kSilu, 0, 0};
    if (is_gemma) shape.embedding_scale = 16.0f, shape.attention_scale = 0.1f, shape.activation = Activation::kGeluTanh;
    if (is_gemma) shape.has_post_norms = 1, shape.window = 37;
    Decoder decoder(shape, kLength, cosines.data(), sines.data(), num_threads);
    const auto vector = [&](Aligned<float>& target, int length) {
        target.reset(static_cast<size_t>(length));
        for (size_t i = 0; i < target.size(); ++i) target[i] = 1.0f + random.uniform();
    };
    const auto matrix = [&](int rows, int columns) {
        const std::vector<uint8_t> bytes = random_rows(format, rows, columns, random);
        return pack_matrix({format, rows, columns, bytes.data(), row_bytes(format, columns), nullptr}, decoder.weight_memory);
    };
    for (int index = 0; index < kLayers; ++index) {
        Layer& layer = decoder.layer(index);
        vector(layer.attention_norm, kHidden), vector(layer.mlp_norm, kHidden);
        layer.q = matrix(kHeads * kHeadDim, kHidden), layer.k = matrix(kKvHeads * kHeadDim, kHidden);
        layer.v = matrix(kKvHeads * kHeadDim, kHidden), layer.o = matrix(kHidden, kHeads * kHeadDim);
        layer.gate = matrix(kMiddle, kHidden), layer.up = matrix(kMiddle, kHidden), layer.down = matrix(kHidden, kMiddle);
        vector(layer.q_bias, kHeads * kHeadDim), vector(layer.k_norm, kHeadDim);
        if (is_gemma) vector(layer.post_attention_norm, kHidden), vector(layer.post_mlp_norm, kHidden);
        layer.is_local = is_gemma && index == 0;
    }
    vector(decoder.final_norm, kHidden);
    decoder.head = matrix(kVocab, kHidden);
    const std::vector<uint8_t> embedding = random_rows(format, kVocab, kHidden, random);
    decoder.embedding = {format, kVocab, kHidden, embedding.data(), row_bytes(format, kHidden), nullptr};

    const int64_t layer_elements = static_cast<int64_t>(kNumBlocks) * kKvHeads * kBlockSize * kHeadDim;
    std::vector<float> keys(static_cast<size_t>(layer_elements) * kLayers), values(keys.size());
    std::vector<int64_t> table(kNumBlocks);
    for (int i = 0; i < kNumBlocks; ++i) table[static_cast<size_t>(i)] = i * 7 % kNumBlocks;
    Digest digest;
    for (int start = 0; start < kLength;) {
        const int count = start == 0 ? kPrefill : 1, num_logits = start == 0 ? 40 : 1;
        std::vector<int64_t> ids, positions, slots, logit_rows, starts{0, count};
        for (int position = start; position < start + count; ++position) {
            ids.push_back(position * 31 % kVocab), positions.push_back(position);
            slots.push_back(table[static_cast<size_t>(position / kBlockSize)] * kBlockSize + position % kBlockSize);
        }
        for (int i = count - num_logits; i < count; ++i) logit_rows.push_back(i);
        std::vector<float> hidden(static_cast<size_t>(num_logits) * kHidden), logits(static_cast<size_t>(num_logits) * kVocab);
        std::vector<RowStatistics> statistics(static_cast<size_t>(num_logits));
        decoder.step({count, 1, num_logits, kNumBlocks, ids.data(), positions.data(), slots.data(), starts.data(), table.data(),
                      logit_rows.data(), keys.data(), values.data(), layer_elements, kBlockSize, is_bfloat},
                     {hidden.data(), logits.data(), statistics.data(), kVocab});
        digest.add(hidden.data(), hidden.size() * sizeof(float));
        digest.add(logits.data(), logits.size() * sizeof(float));
        std::vector<DrawRow> rows(static_cast<size_t>(num_logits));
        std::vector<Alternative> alternatives(static_cast<size_t>(num_logits) * 5);
        for (size_t i = 0; i < rows.size(); ++i) {
            rows[i] = DrawRow{};
            rows[i].temperature = i % 3 == 0 ? 0.0 : 0.8, rows[i].top_p = i % 2 ? 0.9 : 1.0, rows[i].top_k = i % 5 ? 0 : 30;
            rows[i].repetition_penalty = 1.1, rows[i].seed = 42, rows[i].position = i;
            rows[i].alternatives = alternatives.data() + 5 * i, rows[i].num_logprobs = 5;
        }
        std::vector<Drawn> drawn(rows.size());
        decoder.sampler.draw(decoder.team(), {logits.data(), kVocab, kVocab, statistics.data()}, rows.data(), num_logits, drawn.data());
        for (const Drawn& one : drawn) {
            digest.add(&one.token_id, sizeof one.token_id);
            digest.add(&one.logprob, sizeof one.logprob);
        }
        digest.add(alternatives.data(), alternatives.size() * sizeof(Alternative));
        start += count;
    }
    return digest.value;
}

}  // namespace

int main() {
    const char* names[] = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "Q5_0"};
    for (int format = 0; format < 9; ++format)
        for (const bool is_bfloat : {true, false})
            for (const int num_threads : {1, 2})
                std::printf("%s %s %d %016" PRIx64 "\n", names[format], is_bfloat ? "bfloat16" : "float32", num_threads,
                            digest_of(static_cast<Format>(format), is_bfloat, num_threads));
}
