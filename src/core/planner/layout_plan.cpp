#include "core/planner/layout_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/kernels/pool_classes.h"
#include "core/schedule/schedule_builders.h"

namespace nxd {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 28;
// AdamW reads the gradient, both moments and the F32 value, and writes the latter three; with BF16
// parameters also these.
constexpr double kUpdateBytes = 28;
// Microbatches that are received before they are needed.
constexpr double kAhead = 2;

uint64_t whole_bytes(double bytes) {
  constexpr double kMost = 1e18;
  return static_cast<uint64_t>(std::min(std::ceil(bytes), kMost));
}

void fill(int32_t& value, const char* name) {
  check_argument(value >= 0, "layout->", name, ": expected at least 1, or 0 for its default, got ",
                 value);
  if (value == 0) value = 1;
}

// Checks what tensor-parallel layers demand: each rank has a head and a feature of the MLP.
// Vocabularies are padded, and so is a sequence that ranks share.
void check_tensor_size(const nxd_plan_layout_t& layout, const ModelSizes& model) {
  const int tensor = layout.tensor_parallel_size;
  const int64_t fewest = fewest_heads(model.kv_heads, tensor);
  check_argument(model.heads >= fewest, "layout->tensor_parallel_size: ", tensor,
                 " ranks and num_kv_heads ", model.kv_heads, " need num_heads of at least ", fewest,
                 ", got ", model.heads);
  check_argument(model.intermediate >= tensor,
                 "layout->tensor_parallel_size: expected at most intermediate_size (",
                 model.intermediate, "), got ", tensor);
}

}  // namespace

void check_sequence_length(const char* name, int32_t length, const ModelSizes& model) {
  check_argument(length >= 1, name, ": expected at least 1, got ", length);
  check_argument(length <= kMostTokens, name, ": expected at most ", kMostTokens, ", got ", length);
  if (model.positions > 0) {
    check_argument(length <= model.positions, name, ": expected at most the ", model.positions,
                   " positions of the model, got ", length);
  }
}

nxd_plan_layout_t read_plan_layout(const nxd_plan_layout_t& given, const ModelSizes& model) {
  nxd_plan_layout_t layout = given;
  fill(layout.tensor_parallel_size, "tensor_parallel_size");
  fill(layout.pipeline_parallel_size, "pipeline_parallel_size");
  fill(layout.data_parallel_size, "data_parallel_size");
  fill(layout.virtual_size, "virtual_size");
  fill(layout.num_microbatches, "num_microbatches");
  fill(layout.microbatch_size, "microbatch_size");
  check_sequence_length("layout->sequence_length", layout.sequence_length, model);
  check_argument(int64_t{layout.microbatch_size} * layout.sequence_length <= kMostTokens,
                 "layout: expected at most ", kMostTokens, " tokens in a microbatch, got ",
                 layout.microbatch_size, " sequences of ", layout.sequence_length);
  // Divided, for the product of three sizes does not fit in 64 bits.
  check_argument(int64_t{layout.tensor_parallel_size} * layout.pipeline_parallel_size <=
                     INT32_MAX / layout.data_parallel_size,
                 "layout: expected at most ", INT32_MAX, " ranks, got ",
                 layout.tensor_parallel_size, " x ", layout.pipeline_parallel_size, " x ",
                 layout.data_parallel_size);
  check_argument(layout.dtype == NXD_DTYPE_F32 || layout.dtype == NXD_DTYPE_BF16,
                 "layout->dtype: expected F32 or BF16, got ", layout.dtype);
  flag(layout.zero_stage, "layout->zero_stage");
  flag(layout.sequence_parallel, "layout->sequence_parallel");
  flag(layout.recompute, "layout->recompute");
  check_argument(
      layout.partition >= NXD_PP_PARTITION_DEFAULT && layout.partition <= NXD_PP_PARTITION_COST,
      "layout->partition: expected an NXD_PP_PARTITION_*, got ", layout.partition);
  check_tensor_size(layout, model);
  const PipelineShape shape{layout.pipeline_parallel_size, layout.virtual_size,
                            layout.num_microbatches};
  layout.schedule = resolve_schedule(layout.schedule, shape);
  check_argument(layout.schedule != NXD_PP_SCHEDULE_INFERENCE,
                 "layout->schedule: expected one that trains, got INFERENCE");
  if (layout.partition == NXD_PP_PARTITION_DEFAULT) layout.partition = NXD_PP_PARTITION_EVEN;
  return layout;
}

LayoutPlan::LayoutPlan(const ModelSizes& model, const nxd_plan_machine_t& machine,
                       const nxd_plan_layout_t& layout, const std::vector<int>& layers)
    : model_(model),
      machine_(machine),
      layout_(layout),
      shape_{layout.pipeline_parallel_size, layout.virtual_size, layout.num_microbatches},
      kind_(layout.schedule) {
  const PlanParts parts = plan_parts(model, machine, layout);
  add_stages(parts, layers);
  boundary_bytes_ = parts.boundary_bytes;
  add_memory(layers);
  for (int rank = 0; rank < shape_.ranks; ++rank) add_finish(rank);
}

// add(stage, how many, which part) for what each stage has: its layers, the first the embedding
// too, and the last the head.
template <class Add>
void LayoutPlan::for_parts(const std::vector<int>& layers, const Add& add) const {
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    add(static_cast<int>(stage), layers[stage], kLayer);
  }
  add(0, 1, kEmbedding);
  add(shape_.stages() - 1, 1, kHead);
}

void LayoutPlan::add_stages(const PlanParts& all, const std::vector<int>& layers) {
  rank_elements_.assign(static_cast<size_t>(shape_.ranks), 0);
  forward_.resize(layers.size());
  input_ = weight_ = forward_;
  const std::array<const PlanPart*, kParts> parts{&all.layer, &all.embedding, &all.head};
  for_parts(layers, [&](int stage, double count, size_t index) {
    const PlanPart& part = *parts[index];
    const auto s = static_cast<size_t>(stage);
    forward_[s] += count * part.forward;
    input_[s] += count * part.input;
    weight_[s] += count * part.weight;
    rank_elements_[static_cast<size_t>(shape_.rank_of(stage))] += count * number(part.elements);
  });
  if (model_.tied_embeddings && shape_.ranks == 1) {  // one matrix, and not two copies of it
    rank_elements_[0] -= number(model_.head_elements(layout_.tensor_parallel_size));
  }
  for (size_t s = 0; s < layers.size(); ++s) {
    costs_.forward.push_back(forward_[s].sum());
    costs_.backward_input.push_back(input_[s].sum());
    costs_.backward_weight.push_back(weight_[s].sum());
  }
  if (shape_.ranks > 1) {
    const int stride = ranks_of_stage();
    costs_.transfer = message_time(machine_, stride * shape_.ranks, stride, all.boundary_bytes);
  }
}

// Bytes that blocks of matrices, their gradients and AdamW's states have beyond their elements.
// Gradients of copies lie in buckets, and with ZeRO parameters do too.
double LayoutPlan::slack_bytes(const BlockList& matrices) const {
  const double element = number(bytes_of(layout_.dtype));
  const bool copies = layout_.data_parallel_size > 1, sharded = copies && layout_.zero_stage == 1;
  const double alike = (sharded ? 0 : 1) + (copies ? 0 : 1);
  const double states = layout_.dtype == NXD_DTYPE_BF16 ? 3 : 2;
  double slack = 0;
  for (const BlockCount& matrix : matrices) {
    const auto beyond = [&](double bytes) { return pool_bytes({{1, bytes}}) - bytes; };
    const double of_states = states / (sharded ? layout_.data_parallel_size : 1);
    slack += matrix.count * (alike * beyond(element * matrix.bytes) +
                             of_states * beyond(kF32Bytes * matrix.bytes));
  }
  return slack;
}

void LayoutPlan::add_memory(const std::vector<int>& layers) {
  const ModelMemory memory = model_memory(model_, machine_, layout_);
  const std::array<const PartMemory*, kParts> parts{&memory.layer, &memory.embedding, &memory.head};
  std::array<double, kParts> kept, slack;
  for (size_t i = 0; i < parts.size(); ++i) {
    kept[i] = pool_bytes(parts[i]->kept);
    slack[i] = slack_bytes(parts[i]->matrices);
  }
  stage_kept_.assign(layers.size(), 0);
  rank_other_.assign(static_cast<size_t>(shape_.ranks), 0);
  std::vector<std::array<bool, kParts>> has(rank_other_.size());
  for_parts(layers, [&](int stage, double count, size_t part) {
    const auto rank = static_cast<size_t>(shape_.rank_of(stage));
    if (count == 0) return;
    stage_kept_[static_cast<size_t>(stage)] += count * kept[part];
    rank_other_[rank] += count * slack[part];
    has[rank][part] = true;
  });
  std::map<std::array<bool, kParts>, double> transient;
  for (size_t rank = 0; rank < has.size(); ++rank) {
    const auto [found, is_new] = transient.try_emplace(has[rank], 0);
    if (is_new) {
      std::vector<const BlockList*> lists;
      double packing = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!has[rank][i]) continue;
        lists.push_back(&parts[i]->transient);
        found->second += pool_bytes(parts[i]->workspaces);
        packing = std::max(packing, parts[i]->packing);
      }
      found->second += pool_bytes_of_most(lists) + packing;
    }
    rank_other_[rank] += found->second + left_by_parameters(rank_elements_[rank]);
  }
  const bool is_freed_first = layout_.num_microbatches == 1 && layout_.data_parallel_size == 1;
  if (shape_.stages() == 1 && is_freed_first)
    stage_kept_[0] -= taken_by_gradients(memory, layers[0]);
}

// With ZeRO parameters move to buckets. The last slab that had them stays, as others have blocks in
// it; states in F32 take those of parameters in F32.
double LayoutPlan::left_by_parameters(double elements) const {
  const double copies = layout_.data_parallel_size;
  if (copies == 1 || layout_.zero_stage == 0) return 0;
  const double free = layout_.dtype == NXD_DTYPE_BF16 ? 1 : 1 - 2 / copies;
  return free * std::min(number(kernels::kSlabBytes), number(bytes_of(layout_.dtype)) * elements);
}

// Gradients of one microbatch take blocks that the activations leave. The head's are there
// before, and those of copies in buckets.
double LayoutPlan::taken_by_gradients(const ModelMemory& memory, int layers) const {
  const double element = number(bytes_of(layout_.dtype));
  BlockList kept = memory.head.kept, gradients = memory.embedding.matrices;
  for (BlockCount blocks : memory.layer.kept) kept.push_back({layers * blocks.count, blocks.bytes});
  for (BlockCount blocks : memory.layer.matrices) {
    gradients.push_back({layers * blocks.count, blocks.bytes});
  }
  for (BlockCount& blocks : gradients) blocks.bytes *= element;
  return shared_pool_bytes(kept, gradients);
}

// Bytes of activations that a rank keeps at once at most.
double LayoutPlan::kept_bytes(int rank) const {
  const auto kept = [&](int chunk) {
    return stage_kept_[static_cast<size_t>(shape_.stage_of(rank, chunk))];
  };
  if (shape_.chunks == 1) return most_activations(kind_, shape_, rank) * kept(0);
  double now = 0, most = 0;
  if (kind_ == NXD_PP_SCHEDULE_GPIPE) {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) now += shape_.microbatches * kept(chunk);
    return now;
  }
  // Interleaved tasks repeat after a group of microbatches: a few groups show all there is.
  PipelineShape few = shape_;
  few.microbatches = std::min(shape_.microbatches, 4 * shape_.ranks);
  for (const PipelineTask& task : build_rank_tasks(kind_, few, rank)) {
    now += task.kind == NXD_PP_TASK_FORWARD ? kept(task.chunk) : -kept(task.chunk);
    most = std::max(most, now);
  }
  return most;
}

LayoutPlan::Memory LayoutPlan::memory_of(int rank) const {
  const auto r = static_cast<size_t>(rank);
  const double element = number(bytes_of(layout_.dtype));
  const double elements = rank_elements_[r];
  Memory memory;
  memory.parameters = element * elements;
  memory.gradients = element * elements;
  // Both moments in F32; BF16 parameters have an F32 copy.
  memory.optimizer = (layout_.dtype == NXD_DTYPE_BF16 ? 12 : 8) * elements;
  if (layout_.zero_stage == 1) memory.optimizer /= layout_.data_parallel_size;
  memory.activations = kept_bytes(rank);
  memory.buffers = rank_other_[r];
  if (shape_.ranks > 1) {
    const double received = most_activations(kind_, shape_, rank) + kAhead;
    const bool is_first = rank == 0 && shape_.chunks == 1;
    const bool is_last = rank == shape_.ranks - 1 && shape_.chunks == 1;
    memory.buffers += boundary_bytes_ * ((is_first ? 0 : received) + (is_last ? 0 : kAhead));
  }
  return memory;
}

int LayoutPlan::fullest_rank() const {
  int fullest = 0;
  double most = 0;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    const double bytes = memory_of(rank).total();
    if (bytes > most) {
      most = bytes;
      fullest = rank;
    }
  }
  return fullest;
}

double LayoutPlan::total_bytes() const { return memory_of(fullest_rank()).total(); }

void LayoutPlan::add_finish(int rank) {
  const auto r = static_cast<size_t>(rank);
  const double element = number(bytes_of(layout_.dtype));
  const double bytes = element * rank_elements_[r];
  const double last_backward = costs_.backward_input[r] + costs_.backward_weight[r];
  Finish finish;
  const auto add = [&](const CollectiveTime& time, bool overlaps) {
    finish.reduction += time.sum();
    // Within a host the ranks themselves copy; only a link works beside them, from the last
    // microbatch's backward pass on.
    finish.exposed += time.host + (overlaps ? std::max(0.0, time.link - last_backward) : time.link);
  };
  if (layout_.data_parallel_size > 1) {
    const GroupPlaces places = group_places(machine_, ranks_in(layout_), layout_.data_parallel_size,
                                            layout_.tensor_parallel_size);
    if (layout_.zero_stage == 1) {
      add(reduce_scatter_time(machine_, places, bytes), true);
      add(reduce_scatter_time(machine_, places, bytes), false);
    } else {
      add(all_reduce_time(machine_, places, bytes), true);
    }
  }
  if (model_.tied_embeddings && shape_.ranks > 1 && (rank == 0 || rank == shape_.ranks - 1)) {
    const int stride = ranks_of_stage();
    const double tied =
        message_time(machine_, stride * shape_.ranks, stride,
                     element * number(model_.head_elements(layout_.tensor_parallel_size)));
    finish.reduction += tied;
    finish.exposed += tied;
  }
  // The norm reads the gradients once.
  const double shards = layout_.zero_stage == 1 ? layout_.data_parallel_size : 1;
  finish.optimizer =
      (kUpdateBytes + element) * rank_elements_[r] / shards / machine_.memory_bandwidth;
  finish_.push_back(finish);
}

// All ranks of a rank's place in the pipeline, in all microbatches.
PassTime LayoutPlan::work_of(int rank) const {
  PassTime work;
  for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
    const auto s = static_cast<size_t>(shape_.stage_of(rank, chunk));
    work += forward_[s];
    work += input_[s];
    work += weight_[s];
  }
  return shape_.microbatches * work;
}

// The norm of the whole model is known when the last rank has its gradients.
double LayoutPlan::finish_after(const std::vector<double>& ends) const {
  double reduced = 0, update = 0;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    reduced = std::max(reduced, ends[rank] + finish_[rank].exposed);
    update = std::max(update, finish_[rank].optimizer);
  }
  return reduced + update;
}

// A rank waits for the first forward pass to come to it. Its own work follows, in which it may
// leave weight gradients to the end; a gradient goes back from it to the first rank.
double LayoutPlan::least_seconds() const {
  std::vector<double> ends;
  double before = 0, after = 0, last = 0;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const double work = work_of(rank).sum();
    ends.push_back(before + work);
    if (kind_ != NXD_PP_SCHEDULE_ZERO_BUBBLE) last = std::max(last, before + work + after);
    before += costs_.forward[r] + costs_.transfer;
    after += costs_.backward_input[r] + costs_.transfer;
    if (kind_ != NXD_PP_SCHEDULE_ZERO_BUBBLE) after += costs_.backward_weight[r];
  }
  ends[0] = std::max(ends[0], last);
  return finish_after(ends);
}

bool LayoutPlan::fits() const {
  return machine_.memory_bytes == 0 || total_bytes() <= static_cast<double>(machine_.memory_bytes);
}

ScheduleReport LayoutPlan::play() const {
  return report_schedule(Schedule::make(kind_, shape_), costs_);
}

nxd_plan_prediction_t LayoutPlan::predict(const ScheduleReport& report) const {
  nxd_plan_prediction_t out = {};
  out.struct_size = sizeof out;
  const double sequences = number(int64_t{layout_.data_parallel_size} * layout_.microbatch_size) *
                           layout_.num_microbatches;
  const double flops =
      layout_.dtype == NXD_DTYPE_BF16 ? machine_.gemm_rate_bf16 : machine_.gemm_rate_f32;
  out.pipeline_seconds = report.makespan;
  out.step_seconds = finish_after(report.end);
  out.tokens_per_second = sequences * layout_.sequence_length / out.step_seconds;
  out.gemm_share = model_.step_operations(sequences, layout_.sequence_length) /
                   (out.step_seconds * flops * ranks_of_stage() * shape_.ranks);
  out.bubble_share = report.bubble_share;
  out.transfer_seconds = costs_.transfer;
  out.fits = fits();
  fill_busiest(report, out);
  fill_memory(out);
  return out;
}

void LayoutPlan::fill_busiest(const ScheduleReport& report, nxd_plan_prediction_t& out) const {
  const auto busiest = static_cast<size_t>(
      std::max_element(report.busy.begin(), report.busy.end()) - report.busy.begin());
  const PassTime work = work_of(static_cast<int>(busiest));
  out.busiest_rank = static_cast<int32_t>(busiest) * ranks_of_stage();
  out.gemm_seconds = work.gemm;
  out.attention_seconds = work.attention;
  out.elementwise_seconds = work.elementwise;
  out.tensor_parallel_seconds = work.collectives;
  out.data_parallel_seconds = finish_[busiest].reduction;
  out.exposed_seconds = finish_[busiest].exposed;
  out.optimizer_seconds = finish_[busiest].optimizer;
}

void LayoutPlan::fill_memory(nxd_plan_prediction_t& out) const {
  const int fullest = fullest_rank();
  const Memory memory = memory_of(fullest);
  out.fullest_rank = fullest * ranks_of_stage();
  out.parameter_bytes = whole_bytes(memory.parameters);
  out.grad_bytes = whole_bytes(memory.gradients);
  out.optimizer_bytes = whole_bytes(memory.optimizer);
  out.activation_bytes = whole_bytes(memory.activations);
  out.buffer_bytes = whole_bytes(memory.buffers);
  out.total_bytes = out.parameter_bytes + out.grad_bytes + out.optimizer_bytes +
                    out.activation_bytes + out.buffer_bytes;
}

nxd_plan_prediction_t predict_layout(const ModelSizes& model, const nxd_plan_machine_t& machine,
                                     const nxd_plan_layout_t& given) {
  const nxd_plan_layout_t layout = read_plan_layout(given, model);
  const std::vector<int> layers =
      stage_layers(model, layout.partition, layout.pipeline_parallel_size * layout.virtual_size,
                   layout.sequence_length);
  const LayoutPlan plan(model, machine, layout, layers);
  return plan.predict(plan.play());
}

}  // namespace nxd
