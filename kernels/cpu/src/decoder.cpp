// See decoder.h. A step is a program of phases for the team, six a layer:
//
//   norm       per row             x → normed activations      (with post norms, x += norm(projected) before)
//   heads      per head            q, k or v of one head: projection, bias, norm, rotary embedding, key and value stored
//   attend     per task × kv head  attention → activations of o      (few long sequences: per split, then merged)
//   project    per outputs         x += o(attended)           (with post norms, projected = o(attended); down likewise)
//   norm       per row
//   gate       per 32 outputs      activation(gate) × up → activations of down
//   down       per outputs         x += down(…)
//
// Whatever can be finished where it is computed is, so that no phase only copies: with two threads a phase's end costs
// about a microsecond, at batch 1 a layer takes 50.
// Rows are done in stretches of kRowsOfItem, so that a long prompt's items are small enough to share out evenly.
#include "decoder_step.h"

namespace reprise {

Decoder::Decoder(const DecoderShape& shape_, int max_positions, const float* cosines, const float* sines, int num_threads)
    : shape(shape_), workspace_(std::make_shared<Workspace>()) {
    table_size_ = static_cast<size_t>(max_positions) * static_cast<size_t>(shape.head_dim / 2);
    cosines_.reset(2 * table_size_);
    sines_.reset(2 * table_size_);
    std::copy(cosines, cosines + 2 * table_size_, cosines_.data());
    std::copy(sines, sines + 2 * table_size_, sines_.data());
    layers_.resize(static_cast<size_t>(shape.num_layers));
    set_num_threads(num_threads);
}

void Decoder::set_num_threads(int num_threads) {
    team_ = nullptr;  // the old threads end before the new ones begin
    team_ = std::make_unique<Team>(num_threads, shape.num_layers * 9 + 5);
    workspace_->scratch.clear();
    for (int thread = 0; thread < team_->num_threads(); ++thread) workspace_->scratch.emplace_back(shape.head_dim);
}

Decoder::Step Decoder::prepared(const StepInput& input, const StepOutput& output) {
    Workspace& work = *workspace_;
    if (input.num_rows > work.max_rows) {
        const size_t rows = static_cast<size_t>(input.num_rows);
        work.x_stride = round_up(static_cast<size_t>(shape.hidden_size), kBlockInputs);
        work.qkv_stride = static_cast<size_t>((shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim);
        work.x.reset(rows * work.x_stride);
        work.qkv.reset(rows * work.qkv_stride);
        if (shape.has_post_norms) work.projected.reset(rows * work.x_stride);
        work.normed.reset(input.num_rows, shape.hidden_size);
        work.attended.reset(input.num_rows, shape.num_heads * shape.head_dim);
        work.gated.reset(input.num_rows, shape.intermediate_size);
        work.max_rows = input.num_rows;
    }
    if (input.num_logits > work.max_logits) {
        work.final.reset(input.num_logits, shape.hidden_size);
        work.max_logits = input.num_logits;
    }
    const float scale = shape.attention_scale != 0.0f ? shape.attention_scale : 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    const AttentionShape attention{shape.num_heads, shape.num_kv_heads, shape.head_dim, scale, 0};
    AttentionShape local = attention;
    local.window = shape.window;
    return Step{*this, shape, work, input, output, attention, local,
                num_pieces(input.num_rows, kRowsOfItem), 0, false, false};
}

void Decoder::step(const StepInput& input, const StepOutput& output) {
    Step step = prepared(input, output);
    step.plan_attention();
    team_->begin(&step);
    step.build(*team_);
    team_->run();
}

void Decoder::Step::build(Team& team) {
    const auto row_items = num_pieces(input.num_rows, kRowsOfNormItem);
    const auto of_outputs = [&](const Matrix& matrix) { return num_pieces(matrix.num_tiles(), kTilesOfItem) * num_row_pieces; };
    const int num_tasks = static_cast<int>(work.tasks.size());
    team.add([](void* c, int, int item, int) { of(c).embed(item); }, 0, row_items);
    for (int index = 0; index < shape.num_layers; ++index) {
        const Layer& layer = decoder.layer(index);
        team.add([](void* c, int l, int item, int) {
            const Layer& layer = of(c).decoder.layer(l);
            Need need;
            need.of(layer.q), need.of(layer.k), need.of(layer.v);
            if (l > 0) of(c).norm_and_add(of(c).decoder.layer(l - 1).post_mlp_norm, item);
            of(c).norm(layer.attention_norm.data(), need, item);
        }, index, row_items);
        team.add([](void* c, int l, int item, int thread) { of(c).heads(l, item, thread); }, index,
                 (shape.num_heads + 2 * shape.num_kv_heads) * num_row_pieces);
        if (splits_apart) {
            team.add([](void* c, int l, int item, int thread) { of(c).attend_one_split(l, item, thread); }, index,
                     num_tasks * max_splits);
            team.add([](void* c, int l, int item, int) { of(c).merge_splits(l, item); }, index, num_tasks);
        } else {
            team.add([](void* c, int l, int item, int thread) { of(c).attend_task(l, item, thread); }, index, num_tasks);
        }
        if (quantises_attended_apart && is_quantised(layer.o.format))
            team.add([](void* c, int, int item, int) { of(c).quantise_attended(item); }, index, row_items);
        team.add([](void* c, int l, int item, int thread) {
            const Layer& layer = of(c).decoder.layer(l);
            of(c).project(layer.o, of(c).work.attended, item, layer.gate, thread);
        }, index, of_outputs(layer.o));
        team.add([](void* c, int l, int item, int) {
            const Layer& layer = of(c).decoder.layer(l);
            Need need;
            need.of(layer.gate), need.of(layer.up);
            of(c).norm_and_add(layer.post_attention_norm, item);
            of(c).norm(layer.mlp_norm.data(), need, item);
        }, index, row_items);
        team.add([](void* c, int l, int item, int thread) { of(c).gate(l, item, thread); }, index, of_outputs(layer.gate));
        team.add([](void* c, int l, int item, int thread) {
            Decoder& decoder = of(c).decoder;
            const Matrix& next = l + 1 < decoder.shape.num_layers ? decoder.layer(l + 1).q : decoder.head;
            of(c).project(decoder.layer(l).down, of(c).work.gated, item, next, thread);
        }, index, of_outputs(layer.down));
    }
    adds_last_mlp = work.last_mlp_is_apart = shape.has_post_norms != 0;
    build_head(team);
}

// Of the rows that logits are asked for: final norm, logits and their statistics.
void Decoder::Step::build_head(Team& team) {
    team.add([](void* c, int, int item, int) { of(c).final_norm(item); }, 0, num_pieces(input.num_logits, kRowsOfNormItem));
    team.add([](void* c, int, int item, int) { of(c).head(item); }, 0,
             num_pieces(decoder.head.num_tiles(), kHeadTilesOfItem) * num_pieces(input.num_logits, kRowsOfItem));
    team.add([](void* c, int, int item, int) { of(c).statistics(item); }, 0, input.num_logits);
}

void Decoder::Step::embed(int item) const {
    const int end = std::min(input.num_rows, (item + 1) * kRowsOfNormItem);
    for (int row = item * kRowsOfNormItem; row < end; ++row) {
        decode_row(decoder.embedding, static_cast<int>(input.token_ids[row]), x_row(row));
        if (shape.embedding_scale != 1.0f) scale_row(x_row(row), shape.hidden_size, shape.embedding_scale);
    }
}

// x += norm(projected) of an item's rows; without post norms the projection has been added already.
void Decoder::Step::norm_and_add(const Aligned<float>& post_norm, int item) const {
    if (!shape.has_post_norms) return;
    const int end = std::min(input.num_rows, (item + 1) * kRowsOfNormItem);
    for (int row = item * kRowsOfNormItem; row < end; ++row)
        add_normed(x_row(row), projected_row(row), post_norm.data(), shape.hidden_size, shape.norm_epsilon);
}

void Decoder::Step::norm(const float* weight, const Need& need, int item) {
    const Activations& normed = work.normed.view;
    const int end = std::min(input.num_rows, (item + 1) * kRowsOfNormItem);
    for (int row = item * kRowsOfNormItem; row < end; ++row) {
        rms_norm(x_row(row), weight, shape.hidden_size, shape.norm_epsilon, normed.row(row));
        if (need.quantised) quantise_blocks(normed, row, 0, normed.num_blocks, normed.row(row));
    }
}

// Which weights a thread reads after tile last_tile - 1 of `matrix`, its item of a phase of `num_items`: the tile that
// follows, or, where its stretch of the items ends, its stretch of the next phase's matrix. Null: those it has just read.
const uint8_t* Decoder::Step::following(const Matrix& matrix, int last_tile, int item, int num_items, const Matrix& next,
                                        int thread) const {
    if ((item + 1) % num_row_pieces != 0) return nullptr;
    const int threads = decoder.team().num_threads();
    const bool ends_stretch = item + 1 == num_items * (thread + 1) / threads || last_tile == matrix.num_tiles();
    return ends_stretch ? next.pair_of(next.num_tiles() * thread / threads) : matrix.pair_of(last_tile);
}

// Heads in the order q, k, v; the rows of one head one stretch after the other.
Decoder::Step::HeadItem Decoder::Step::head_item(int item) const {
    const int column_head = item / num_row_pieces;
    const RowRange rows = rows_of(item % num_row_pieces);
    const bool is_q = column_head < shape.num_heads, is_k = !is_q && column_head < shape.num_heads + shape.num_kv_heads;
    const int head = is_q ? column_head : is_k ? column_head - shape.num_heads : column_head - shape.num_heads - shape.num_kv_heads;
    float* out = work.qkv.data() + work.qkv_stride * static_cast<size_t>(rows.begin) + static_cast<size_t>(column_head * shape.head_dim);
    return {rows, column_head, head, is_q, is_k, out};
}

void Decoder::Step::heads(int layer, int item, int thread) {
    project_heads(layer, item, thread);
    rotate_heads(layer, item);
    store_heads(layer, item);
}

void Decoder::Step::project_heads(int layer_index, int item, int thread) {
    const Layer& layer = decoder.layer(layer_index);
    const HeadItem at = head_item(item);
    const int head_dim = shape.head_dim, tiles = head_dim / kTileOutputs;
    const Matrix& matrix = at.is_q ? layer.q : at.is_k ? layer.k : layer.v;
    const Aligned<float>& bias = at.is_q ? layer.q_bias : at.is_k ? layer.k_bias : layer.v_bias;
    const int num_items = (shape.num_heads + 2 * shape.num_kv_heads) * num_row_pieces;
    const Matrix& next = at.is_q ? layer.k : at.is_k ? layer.v : layer.o;
    multiply(matrix, work.normed.view, at.rows, at.head * tiles, (at.head + 1) * tiles, at.out, work.qkv_stride, false,
             following(matrix, (at.head + 1) * tiles, item, num_items, next, thread));
    if (bias.size() == 0) return;
    float* out = at.out;
    for (int row = at.rows.begin; row < at.rows.end; ++row, out += work.qkv_stride)
        for (int d = 0; d < head_dim; ++d) out[d] += bias[static_cast<size_t>(at.head * head_dim + d)];
}

void Decoder::Step::rotate_heads(int layer_index, int item) {
    const Layer& layer = decoder.layer(layer_index);
    const HeadItem at = head_item(item);
    if (!at.is_q && !at.is_k) return;
    const Aligned<float>& head_norm = at.is_q ? layer.q_norm : layer.k_norm;
    const int head_dim = shape.head_dim;
    float* out = at.out;
    for (int row = at.rows.begin; row < at.rows.end; ++row, out += work.qkv_stride) {
        if (head_norm.size() > 0) rms_norm(out, head_norm.data(), head_dim, shape.norm_epsilon, out);
        const size_t angles = (layer.is_local ? decoder.table_size_ : 0) +
                              static_cast<size_t>(input.positions[row]) * static_cast<size_t>(head_dim / 2);
        rotate_head(out, head_dim, decoder.cosines_.data() + angles, decoder.sines_.data() + angles);
    }
}

void Decoder::Step::store_heads(int layer_index, int item) {
    const HeadItem at = head_item(item);
    if (at.is_q) return;
    const KvLayer memory = kv_layer(layer_index);
    const float* out = at.out;
    for (int row = at.rows.begin; row < at.rows.end; ++row, out += work.qkv_stride)
        at.is_k ? store_key(attention, memory, input.slot_mapping[row], at.head, out)
                : store_value(attention, memory, input.slot_mapping[row], at.head, out);
}

// Neighbouring rows of a sequence together, as many as there are queries for; longest first, so that the last tasks,
// which one thread does while the others wait, are short.
void Decoder::Step::plan_attention() {
    std::vector<AttentionTask>& tasks = work.tasks;
    tasks.clear();
    const int heads_per_kv = attention.heads_per_kv();
    const int heads_of_task = std::min(heads_per_kv, kMaxQueries), rows_of_task = kMaxQueries / heads_of_task;
    for (int sequence = 0; sequence < input.num_sequences; ++sequence) {
        const int end = static_cast<int>(input.query_starts[sequence + 1]);
        for (int row = static_cast<int>(input.query_starts[sequence]); row < end; row += rows_of_task)
            for (int kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head)
                for (int first_head = 0; first_head < heads_per_kv; first_head += heads_of_task)
                    tasks.push_back({input.block_tables + static_cast<size_t>(sequence) * static_cast<size_t>(input.table_stride),
                                     row, std::min(rows_of_task, end - row), static_cast<int>(input.positions[row]), kv_head,
                                     first_head, std::min(heads_of_task, heads_per_kv - first_head)});
    }
    std::sort(tasks.begin(), tasks.end(), [](const AttentionTask& a, const AttentionTask& b) {
        return a.first_position + a.num_rows > b.first_position + b.num_rows;
    });
    quantises_attended_apart = heads_of_task * shape.head_dim % kBlockInputs != 0 ||
                               heads_per_kv % heads_of_task * shape.head_dim % kBlockInputs != 0;
    max_splits = tasks.empty() ? 0 : tasks[0].num_splits();
    const size_t few = static_cast<size_t>(4 * decoder.team().num_threads());
    splits_apart = decoder.team().num_threads() > 1 && max_splits > 1 && tasks.size() < few;
    if (splits_apart) {
        const size_t num_partials = tasks.size() * static_cast<size_t>(max_splits);
        const size_t mixed = static_cast<size_t>(kMaxQueries * shape.head_dim);
        if (work.partials.size() < num_partials) {
            work.partials.resize(num_partials);
            work.partial_mixed.resize(num_partials * mixed);
        }
        for (size_t i = 0; i < num_partials; ++i) work.partials[i].mixed = work.partial_mixed.data() + i * mixed;
    }
}

void Decoder::Step::attend_task(int layer, int item, int thread) {
    const AttentionTask& task = work.tasks[static_cast<size_t>(item)];
    AttentionScratch& scratch = work.scratch[static_cast<size_t>(thread)].attention;
    PartialAttention result;
    result.mixed = scratch.mixed.data();
    const AttentionShape& of_layer = attention_of(layer);
    attend(of_layer, kv_layer(layer), task, work.qkv.data(), work.qkv_stride, task.first_split(of_layer.window),
           task.num_splits(), scratch, result);
    finish(attention, task, result, work.attended.view.floats, static_cast<size_t>(work.attended.view.stride));
    hand_on_attended(layer, task);
}

void Decoder::Step::attend_one_split(int layer, int item, int thread) {
    const AttentionTask& task = work.tasks[static_cast<size_t>(item / max_splits)];
    const int split = item % max_splits;
    const AttentionShape& of_layer = attention_of(layer);
    if (split < task.first_split(of_layer.window) || split >= task.num_splits()) return;
    attend(of_layer, kv_layer(layer), task, work.qkv.data(), work.qkv_stride, split, split + 1,
           work.scratch[static_cast<size_t>(thread)].attention, work.partials[static_cast<size_t>(item)]);
}

void Decoder::Step::merge_splits(int layer, int item) {
    const AttentionTask& task = work.tasks[static_cast<size_t>(item)];
    PartialAttention* partials = work.partials.data() + static_cast<size_t>(item * max_splits);
    const int first = task.first_split(attention_of(layer).window);
    for (int split = first + 1; split < task.num_splits(); ++split) merge(task, shape.head_dim, partials[split], partials[first]);
    finish(attention, task, partials[first], work.attended.view.floats, static_cast<size_t>(work.attended.view.stride));
    hand_on_attended(layer, task);
}

// The int8 form of what a task has attended to, where its heads make up whole blocks of 32; else it is a phase of its own.
void Decoder::Step::hand_on_attended(int layer, const AttentionTask& task) {
    if (!is_quantised(decoder.layer(layer).o.format) || quantises_attended_apart) return;
    const Activations& attended = work.attended.view;
    const int first_column = (task.kv_head * attention.heads_per_kv() + task.first_head) * shape.head_dim;
    const int num_columns = task.num_heads * shape.head_dim;
    for (int row = task.first_row; row < task.first_row + task.num_rows; ++row)
        quantise_blocks(attended, row, first_column / kBlockInputs, (first_column + num_columns) / kBlockInputs,
                        attended.row(row) + first_column);
}

void Decoder::Step::quantise_attended(int item) {
    const Activations& attended = work.attended.view;
    const int end = std::min(input.num_rows, (item + 1) * kRowsOfNormItem);
    for (int row = item * kRowsOfNormItem; row < end; ++row)
        quantise_blocks(attended, row, 0, attended.num_blocks, attended.row(row));
}

void Decoder::Step::project(const Matrix& matrix, const ActivationMemory& inputs, int item, const Matrix& next, int thread) {
    const RowRange rows = rows_of(item % num_row_pieces);
    const int first = item / num_row_pieces * kTilesOfItem, last = std::min(first + kTilesOfItem, matrix.num_tiles());
    const int num_items = num_pieces(matrix.num_tiles(), kTilesOfItem) * num_row_pieces;
    float* out = shape.has_post_norms ? projected_row(rows.begin) : x_row(rows.begin);
    multiply(matrix, inputs.view, rows, first, last, out + first * kTileOutputs, work.x_stride, !shape.has_post_norms,
             following(matrix, last, item, num_items, next, thread));
}

void Decoder::Step::gate(int layer_index, int item, int thread) {
    const Layer& layer = decoder.layer(layer_index);
    ThreadScratch& scratch = work.scratch[static_cast<size_t>(thread)];
    const RowRange rows = rows_of(item % num_row_pieces);
    const int block = item / num_row_pieces, first = block * kTilesOfItem;
    const int last = std::min(first + kTilesOfItem, layer.gate.num_tiles());
    const int num_items = num_pieces(layer.gate.num_tiles(), kTilesOfItem) * num_row_pieces;
    multiply(layer.gate, work.normed.view, rows, first, last, scratch.gate.data(), kBlockInputs, false, layer.up.pair_of(first));
    multiply(layer.up, work.normed.view, rows, first, last, scratch.up.data(), kBlockInputs, false,
             following(layer.gate, last, item, num_items, layer.down, thread));
    const bool is_down_quantised = is_quantised(layer.down.format);
    for (int row = rows.begin; row < rows.end; ++row) {
        const size_t from = static_cast<size_t>(row - rows.begin) * kBlockInputs;
        float* gates = scratch.gate.data() + from;
        float* out = is_down_quantised ? gates : work.gated.view.row(row) + first * kTileOutputs;  // who reads no floats has none
        for (int i = 0; i < (last - first) * kTileOutputs; i += kLanes)
            store(out + i, gated(shape.activation, load(gates + i), load(scratch.up.data() + from + i)));
        std::fill(gates + (last - first) * kTileOutputs, gates + kBlockInputs, 0.0f);  // past the last output
        if (is_down_quantised) quantise_blocks(work.gated.view, row, block, block + 1, out);
    }
}

void Decoder::Step::final_norm(int item) {
    const Activations& normed = work.final.view;
    const int end = std::min(input.num_logits, (item + 1) * kRowsOfNormItem);
    for (int i = item * kRowsOfNormItem; i < end; ++i) {
        const int row = static_cast<int>(input.logit_rows[i]);
        if (adds_last_mlp)
            add_normed(x_row(row), projected_row(row), decoder.layer(shape.num_layers - 1).post_mlp_norm.data(), shape.hidden_size,
                       shape.norm_epsilon);
        rms_norm(x_row(row), decoder.final_norm.data(), shape.hidden_size, shape.norm_epsilon, normed.row(i));
        std::copy(normed.row(i), normed.row(i) + shape.hidden_size,
                  output.hidden + static_cast<size_t>(i) * static_cast<size_t>(shape.hidden_size));
        if (is_quantised(decoder.head.format)) quantise_blocks(normed, i, 0, normed.num_blocks, normed.row(i));
    }
}

void Decoder::Step::head(int item) {
    const int num_pieces_of_rows = num_pieces(input.num_logits, kRowsOfItem);
    const int piece = item % num_pieces_of_rows, first = item / num_pieces_of_rows * kHeadTilesOfItem;
    const RowRange rows{piece * kRowsOfItem, std::min(input.num_logits, (piece + 1) * kRowsOfItem)};
    const size_t stride = static_cast<size_t>(output.logits_stride);
    const int last = std::min(first + kHeadTilesOfItem, decoder.head.num_tiles());
    multiply(decoder.head, work.final.view, rows, first, last,
             output.logits + stride * static_cast<size_t>(rows.begin) + first * kTileOutputs, stride, false,
             piece + 1 < num_pieces_of_rows ? nullptr : decoder.head.pair_of(last));
}

void Decoder::Step::statistics(int item) {
    const float* logits = output.logits + static_cast<size_t>(output.logits_stride) * static_cast<size_t>(item);
    output.statistics[item] = row_statistics(logits, shape.vocab_size);
}

void Decoder::apply(const Matrix& matrix, const float* rows, int num_rows, float* out, size_t stride) {
    ActivationMemory inputs;
    inputs.reset(num_rows, matrix.num_inputs);
    for (int row = 0; row < num_rows; ++row) {
        std::copy(rows + static_cast<size_t>(row) * static_cast<size_t>(matrix.num_inputs),
                  rows + static_cast<size_t>(row + 1) * static_cast<size_t>(matrix.num_inputs), inputs.view.row(row));
        if (is_quantised(matrix.format)) quantise_blocks(inputs.view, row, 0, inputs.view.num_blocks, inputs.view.row(row));
    }
    apply(matrix, inputs.view, num_rows, out, stride);
}

void Decoder::apply(const Matrix& matrix, const Activations& inputs, int num_rows, float* out, size_t stride) {
    struct Call {
        const Matrix& matrix;
        const Activations& inputs;
        int num_rows;
        float* out;
        size_t stride;
    } call{matrix, inputs, num_rows, out, stride};
    team_->begin(&call);
    team_->add([](void* context, int, int item, int) {
        const Call& call = *static_cast<Call*>(context);
        const int first = item * kTilesOfItem, last = std::min(first + kTilesOfItem, call.matrix.num_tiles());
        multiply(call.matrix, call.inputs, {0, call.num_rows}, first, last, call.out + first * kTileOutputs, call.stride, false,
                 nullptr);
    }, 0, num_pieces(matrix.num_tiles(), kTilesOfItem));
    team_->run();
}

}  // namespace reprise
