// See decoder.h, step_traced. Each operation is a program of its own for the team, made of the phases of decoder.cpp;
// where a phase does two things, or adds its result at once, it is taken apart here. A sum of the same two numbers and a
// rounding of the same floats to int8 have the same bits wherever they are done.
#include "decoder_step.h"

namespace reprise {
namespace {

void quantise_rows(const Activations& activations, int num_rows) {
    for (int row = 0; row < num_rows; ++row)
        quantise_blocks(activations, row, 0, activations.num_blocks, activations.row(row));
}

}  // namespace

// A step under a tap; `phase` runs one of a step's phases and returns when it is done.
struct Decoder::TracedStep {
    Step step;
    Team& team;
    Tap tap;
    int num_rows;

    void phase(Work work, int layer, int num_items) {
        team.begin(&step);
        team.add(work, layer, num_items);
        team.run();
    }
    void show(int layer, Operation operation, float* rows, int length, size_t stride) const {
        tap(layer, static_cast<int>(operation), rows, num_rows, length, static_cast<int64_t>(stride));
    }
    void show(int layer, Operation operation, const Activations& rows, int length) const {
        show(layer, operation, rows.floats, length, static_cast<size_t>(rows.stride));
    }
    void run();
    void attention_norm(int layer);
    void heads(int layer);
    void attend(int layer);
    void add_projected(int layer, const Matrix& matrix, const ActivationMemory& inputs, Operation projection, Operation residual,
                       const Aligned<float>& post_norm);
    void mlp(int layer);
    void head();
};

void Decoder::step_traced(const StepInput& input, const StepOutput& output, Tap tap) {
    TracedStep traced{prepared(input, output), *team_, tap, input.num_rows};
    traced.step.plan_attention();
    TraceMemory& memory = workspace_->trace;
    const size_t rows = static_cast<size_t>(input.num_rows), gated = static_cast<size_t>(workspace_->gated.view.stride);
    memory.projected.reset(rows * workspace_->x_stride);
    memory.gate.reset(rows * gated);
    memory.up.reset(rows * gated);
    traced.run();
}

void Decoder::TracedStep::run() {
    const DecoderShape& shape = step.shape;
    const Step& of_step = step;
    const int row_items = num_pieces(num_rows, kRowsOfNormItem);
    const auto x = [&](int layer, Operation operation) {
        show(layer, operation, of_step.work.x.data(), shape.hidden_size, of_step.work.x_stride);
    };
    phase([](void* c, int, int item, int) { Step::of(c).embed(item); }, 0, row_items);
    x(-1, Operation::kEmbedding);
    for (int index = 0; index < shape.num_layers; ++index) {
        const Layer& layer = step.decoder.layer(index);
        attention_norm(index);
        heads(index);
        attend(index);
        add_projected(index, layer.o, step.work.attended, Operation::kO, Operation::kAttentionResidual,
                      layer.post_attention_norm);
        mlp(index);
        add_projected(index, layer.down, step.work.gated, Operation::kDown, Operation::kMlpResidual, layer.post_mlp_norm);
    }
    head();
}

void Decoder::TracedStep::attention_norm(int index) {
    phase([](void* c, int l, int item, int) {
        Step::of(c).norm(Step::of(c).decoder.layer(l).attention_norm.data(), Need{}, item);
    }, index, num_pieces(num_rows, kRowsOfNormItem));
    show(index, Operation::kAttentionNorm, step.work.normed.view, step.shape.hidden_size);
    quantise_rows(step.work.normed.view, num_rows);
}

void Decoder::TracedStep::heads(int index) {
    const DecoderShape& shape = step.shape;
    const int num_items = (shape.num_heads + 2 * shape.num_kv_heads) * step.num_row_pieces;
    const int q_length = shape.num_heads * shape.head_dim, kv_length = shape.num_kv_heads * shape.head_dim;
    float* qkv = step.work.qkv.data();
    const size_t stride = step.work.qkv_stride;
    phase([](void* c, int l, int item, int thread) { Step::of(c).project_heads(l, item, thread); }, index, num_items);
    show(index, Operation::kQ, qkv, q_length, stride);
    show(index, Operation::kK, qkv + q_length, kv_length, stride);
    show(index, Operation::kV, qkv + q_length + kv_length, kv_length, stride);
    phase([](void* c, int l, int item, int) { Step::of(c).rotate_heads(l, item); }, index, num_items);
    show(index, Operation::kRotaryQ, qkv, q_length, stride);
    show(index, Operation::kRotaryK, qkv + q_length, kv_length, stride);
    phase([](void* c, int l, int item, int) { Step::of(c).store_heads(l, item); }, index, num_items);
    show(index, Operation::kKvWrite, nullptr, 0, 0);
}

void Decoder::TracedStep::attend(int index) {
    const int num_tasks = static_cast<int>(step.work.tasks.size());
    if (step.splits_apart) {
        phase([](void* c, int l, int item, int thread) { Step::of(c).attend_one_split(l, item, thread); }, index,
              num_tasks * step.max_splits);
        phase([](void* c, int l, int item, int) { Step::of(c).merge_splits(l, item); }, index, num_tasks);
    } else {
        phase([](void* c, int l, int item, int thread) { Step::of(c).attend_task(l, item, thread); }, index, num_tasks);
    }
    const Activations& attended = step.work.attended.view;
    show(index, Operation::kAttention, attended, step.shape.num_heads * step.shape.head_dim);
    quantise_rows(attended, num_rows);
}

void Decoder::TracedStep::add_projected(int index, const Matrix& matrix, const ActivationMemory& inputs,
                                        Operation projection, Operation residual, const Aligned<float>& post_norm) {
    const int hidden = step.shape.hidden_size;
    const size_t stride = step.work.x_stride;
    float* projected = step.work.trace.projected.data();
    step.decoder.apply(matrix, inputs.view, num_rows, projected, stride);
    show(index, projection, projected, hidden, stride);
    for (int row = 0; row < num_rows; ++row) {
        float *x = step.x_row(row), *added = projected + stride * static_cast<size_t>(row);
        if (step.shape.has_post_norms) {
            add_normed(x, added, post_norm.data(), hidden, step.shape.norm_epsilon);
            continue;
        }
        for (int i = 0; i < hidden; ++i) x[i] += added[i];
    }
    show(index, residual, step.work.x.data(), hidden, stride);
}

void Decoder::TracedStep::mlp(int index) {
    const Layer& layer = step.decoder.layer(index);
    const Activations &normed = step.work.normed.view, &gated_rows = step.work.gated.view;
    phase([](void* c, int l, int item, int) {
        Step::of(c).norm(Step::of(c).decoder.layer(l).mlp_norm.data(), Need{}, item);
    }, index, num_pieces(num_rows, kRowsOfNormItem));
    show(index, Operation::kMlpNorm, normed, step.shape.hidden_size);
    quantise_rows(normed, num_rows);
    TraceMemory& memory = step.work.trace;
    const int length = step.shape.intermediate_size;
    const size_t stride = static_cast<size_t>(gated_rows.stride);
    step.decoder.apply(layer.gate, normed, num_rows, memory.gate.data(), stride);
    show(index, Operation::kGate, memory.gate.data(), length, stride);
    step.decoder.apply(layer.up, normed, num_rows, memory.up.data(), stride);
    show(index, Operation::kUp, memory.up.data(), length, stride);
    for (int row = 0; row < num_rows; ++row) {
        const size_t from = stride * static_cast<size_t>(row);
        float* out = gated_rows.row(row);
        for (int i = 0; i < length; i += kLanes)
            store_first(out + i, gated(step.shape.activation, load_first(memory.gate.data() + from + i, length - i),
                                       load_first(memory.up.data() + from + i, length - i)), length - i);
    }
    show(index, Operation::kActivation, gated_rows, length);
    quantise_rows(gated_rows, num_rows);
}

void Decoder::TracedStep::head() {
    const StepInput& input = step.input;
    num_rows = input.num_logits;
    step.work.last_mlp_is_apart = false;
    phase([](void* c, int, int item, int) { Step::of(c).final_norm(item); }, 0, num_pieces(num_rows, kRowsOfNormItem));
    const Activations& normed = step.work.final.view;
    const size_t hidden = static_cast<size_t>(step.shape.hidden_size);
    show(-1, Operation::kFinalNorm, normed, step.shape.hidden_size);
    for (int row = 0; row < num_rows; ++row)
        std::copy(normed.row(row), normed.row(row) + hidden, step.output.hidden + hidden * static_cast<size_t>(row));
    quantise_rows(normed, num_rows);
    phase([](void* c, int, int item, int) { Step::of(c).head(item); }, 0,
          num_pieces(step.decoder.head.num_tiles(), kHeadTilesOfItem) * num_pieces(num_rows, kRowsOfItem));
    show(-1, Operation::kHead, step.output.logits, step.shape.vocab_size, static_cast<size_t>(step.output.logits_stride));
    phase([](void* c, int, int item, int) { Step::of(c).statistics(item); }, 0, num_rows);
}

}  // namespace reprise
