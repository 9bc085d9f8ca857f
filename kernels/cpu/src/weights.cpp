// Weights as they lie in their file → tiles, and one row → float32 (the embedding). See weights.h for the layouts.
// Source of the file's blocks: ggml's quantisation formats (ggml-common.h, ggml-quants.c).
#include "weights.h"

#include "lanes.h"

namespace reprise {
namespace {

// 32 inputs of one output: value = scale × (code - offset) + minimum; Q6_K has a second scale for inputs 16-31.
struct Block {
    uint8_t codes[kBlockInputs];
    int offset = 0;
    float scale[2] = {0, 0};
    float minimum = 0;
    uint16_t scale_half = 0;  // the file's own float16, where the tile keeps it
    uint16_t minimum_half = 0;
};

uint16_t read_u16(const uint8_t* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

float half_to_float(uint16_t half) {
    uint16_t sixteen[kLanes] = {half};
    float result[kLanes];
    store(result, from_half(sixteen));
    return result[0];
}

void set_scales(Block& block, float scale) { block.scale[0] = block.scale[1] = scale; }

void read_nibbles(const uint8_t* packed, Block& block) {
    for (int i = 0; i < 16; ++i) {
        block.codes[i] = packed[i] & 15;
        block.codes[16 + i] = packed[i] >> 4;
    }
}

// Sub-block i's 6-bit scale and minimum, packed by eights into 12 bytes.
void read_k_scales(const uint8_t* packed, int i, int& scale, int& minimum) {
    if (i < 4) {
        scale = packed[i] & 63;
        minimum = packed[i + 4] & 63;
    } else {
        scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
        minimum = (packed[i + 4] >> 4) | (packed[i] >> 6) << 4;
    }
}

Block read_block(Format format, const uint8_t* row, int index) {
    Block block;
    if (format == Format::Q4_0) {
        const uint8_t* p = row + 18 * index;
        block.scale_half = read_u16(p);
        set_scales(block, half_to_float(block.scale_half));
        block.offset = 8;
        read_nibbles(p + 2, block);
    } else if (format == Format::Q4_1) {
        const uint8_t* p = row + 20 * index;
        block.scale_half = read_u16(p);
        block.minimum_half = read_u16(p + 2);
        set_scales(block, half_to_float(block.scale_half));
        block.minimum = half_to_float(block.minimum_half);
        read_nibbles(p + 4, block);
    } else if (format == Format::Q5_0) {
        const uint8_t* p = row + 22 * index;
        block.scale_half = read_u16(p);
        set_scales(block, half_to_float(block.scale_half));
        block.offset = 128;
        read_nibbles(p + 6, block);
        for (int i = 0; i < kBlockInputs; ++i) {  // fifth bits in 32 bits of their own; 16 off, 128 added like Q8_0's
            const int high = (p[2 + i / 8] >> (i % 8)) & 1;
            block.codes[i] = static_cast<uint8_t>((block.codes[i] | high << 4) + 112);
        }
    } else if (format == Format::Q8_0) {
        const uint8_t* p = row + 34 * index;
        block.scale_half = read_u16(p);
        set_scales(block, half_to_float(block.scale_half));
        block.offset = 128;
        for (int i = 0; i < kBlockInputs; ++i) block.codes[i] = static_cast<uint8_t>(p[2 + i] ^ 0x80);
    } else if (format == Format::Q4_K) {
        const uint8_t* p = row + 144 * (index / 8);
        const int sub_block = index % 8;
        int scale, minimum;
        read_k_scales(p + 4, sub_block, scale, minimum);
        set_scales(block, half_to_float(read_u16(p)) * static_cast<float>(scale));
        block.minimum = -(half_to_float(read_u16(p + 2)) * static_cast<float>(minimum));
        const uint8_t* packed = p + 16 + 32 * (sub_block / 2);  // two sub-blocks share 32 bytes: low and high nibbles
        for (int i = 0; i < kBlockInputs; ++i) block.codes[i] = sub_block % 2 ? packed[i] >> 4 : packed[i] & 15;
    } else {  // Q6_K
        const uint8_t* p = row + 210 * (index / 8);
        const int sub_block = index % 8, half = sub_block / 4, quarter = sub_block % 4;
        const uint8_t* low = p + 64 * half + 32 * (quarter % 2);
        const uint8_t* high = p + 128 + 32 * half;
        for (int i = 0; i < kBlockInputs; ++i) {
            const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
            block.codes[i] = static_cast<uint8_t>((nibble | ((high[i] >> (2 * quarter)) & 3) << 4) + 96);
        }
        block.offset = 128;  // codes -32 … 31, kept with 128 added like Q8_0's
        const float scale = half_to_float(read_u16(p + 208));
        const int8_t* scales = reinterpret_cast<const int8_t*>(p + 192) + 8 * half + 2 * quarter;
        block.scale[0] = scale * static_cast<float>(scales[0]);
        block.scale[1] = scale * static_cast<float>(scales[1]);
    }
    return block;
}

void place_block(Format format, const Block& block, int output, uint8_t* quants, uint8_t* scales) {
    if (format == Format::Q8_0 || format == Format::Q5_0 || format == Format::Q6_K) {
        for (int i = 0; i < kBlockInputs; ++i) quants[64 * (i / 4) + 4 * output + i % 4] = block.codes[i];
    } else {
        for (int i = 0; i < 16; ++i)
            quants[64 * (i / 4) + 4 * output + i % 4] =
                static_cast<uint8_t>(block.codes[i] | block.codes[16 + i] << 4);
    }
    const auto put = [&](int vector, auto value) {
        std::memcpy(scales + (vector * kTileOutputs + output) * sizeof value, &value, sizeof value);
    };
    if (format == Format::Q4_K) {
        put(0, block.scale[0]);
        put(1, block.minimum);
    } else if (format == Format::Q6_K) {
        put(0, block.scale[0]);
        put(1, block.scale[1]);
    } else {
        put(0, block.scale_half);
        if (format == Format::Q4_1) put(1, block.minimum_half);
    }
}

void pack_quantised(const StoredRows& rows, Matrix& matrix) {
    for (int output = 0; output < rows.num_rows; ++output) {
        auto* quants = const_cast<uint8_t*>(matrix.quants(output / kTileOutputs));
        auto* scales = const_cast<uint8_t*>(matrix.scales(output / kTileOutputs));
        const uint8_t* row = rows.row(output);
        for (int b = 0; b < matrix.num_blocks; ++b, quants += matrix.block_bytes(), scales += matrix.block_bytes())
            place_block(rows.format, read_block(rows.format, row, b), output % kTileOutputs, quants, scales);
    }
}

void pack_floats(const StoredRows& rows, Matrix& matrix) {
    const size_t size = rows.format == Format::F32 ? 4 : 2;
    for (int output = 0; output < rows.num_rows; ++output) {
        auto* block = const_cast<uint8_t*>(matrix.quants(output / kTileOutputs));
        const uint8_t* row = rows.row(output);
        const size_t lane = static_cast<size_t>(output % kTileOutputs);
        for (int k = 0; k < rows.num_columns; ++k, row += size) {
            const size_t second = static_cast<size_t>(k % 2);
            const size_t place = rows.format == Format::BF16 ? lane * 2 + second : second * kTileOutputs + lane;
            std::memcpy(block + place * size, row, size);
            if (second) block += matrix.block_bytes();
        }
    }
}

size_t quant_bytes_of(Format format) {
    switch (format) {
        case Format::F32: return 128;
        case Format::F16:
        case Format::BF16: return 64;
        case Format::Q8_0:
        case Format::Q6_K: return 512;
        default: return 256;
    }
}

size_t scale_bytes_of(Format format) {
    switch (format) {
        case Format::Q4_0:
        case Format::Q8_0: return 32;
        case Format::Q4_1: return 64;
        case Format::Q4_K:
        case Format::Q6_K: return 128;
        default: return 0;
    }
}

}  // namespace

Matrix pack_matrix(const StoredRows& rows, WeightMemory& memory) {
    Matrix matrix;
    matrix.format = rows.format == Format::Q5_0 ? Format::Q8_0 : rows.format;
    matrix.num_outputs = rows.num_rows;
    matrix.num_inputs = rows.num_columns;
    const int block_inputs = is_quantised(rows.format) ? kBlockInputs : 2;
    matrix.num_blocks = (rows.num_columns + block_inputs - 1) / block_inputs;
    matrix.quant_bytes = quant_bytes_of(matrix.format);
    matrix.scale_bytes = scale_bytes_of(matrix.format);
    matrix.pairs = memory.take(matrix.pair_bytes() * static_cast<size_t>(matrix.num_pairs()));
    if (is_quantised(rows.format))
        pack_quantised(rows, matrix);
    else
        pack_floats(rows, matrix);
    return matrix;
}

void decode_row(const StoredRows& rows, int row, float* result) {
    const uint8_t* p = rows.row(row);
    if (rows.format == Format::F32) {
        std::memcpy(result, p, static_cast<size_t>(rows.num_columns) * sizeof(float));
    } else if (rows.format == Format::F16) {
        for (int i = 0; i < rows.num_columns; ++i) result[i] = half_to_float(read_u16(p + 2 * i));
    } else if (rows.format == Format::BF16) {
        for (int i = 0; i < rows.num_columns; ++i) {
            const uint32_t bits = static_cast<uint32_t>(read_u16(p + 2 * i)) << 16;
            std::memcpy(result + i, &bits, sizeof bits);
        }
    } else {
        for (int b = 0; b < rows.num_columns / kBlockInputs; ++b) {
            const Block block = read_block(rows.format, p, b);
            for (int i = 0; i < kBlockInputs; ++i)
                result[b * kBlockInputs + i] =
                    block.scale[i / 16] * static_cast<float>(block.codes[i] - block.offset) + block.minimum;
        }
    }
}

}  // namespace reprise
