// The end of a recorded step, as nodes of its graph:
//   nxd::reduce_gradients   over data-parallel ranks, and over gradient groups; several at a time
//   nxd::scatter_gradients  instead, with ZeRO-1: this rank's part of a bucket
//   nxd::norm_of_gradients  the part of this rank
//   nxd::norm_over_ranks    the parts of all
//   nxd::clip_factor        the norm, what gradients are multiplied by, whether that is finite
//   nxd::adamw, nxd::sgd    for each parameter, whose memory and whose states' it overwrites; last
//                           come the numbers of random words, where values are rounded by these
//   nxd::gather_parameters  with ZeRO-1: the parts of all ranks, for each bucket
// Where a plug-in runs graphs, ZeRO-1 has the nodes of recorded_parts.cpp for each parameter.
// Replay runs the kernels that eager training runs; a compiler lowers all but those that exchange.
#include "engine/training/recorded_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/dtype.h"
#include "core/comm/take_for_call.h"
#include "engine/device/device_copy.h"
#include "engine/device/device_tensor.h"
#include "engine/device/graph_rounding.h"
#include "engine/device/recorder.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"
#include "engine/training/recorded_parts.h"

namespace nxd {
namespace {

// Large enough that latency does not count, small beside a model.
constexpr size_t kReducedTogether = size_t{32} << 20;

// The reason of the sync that a step's report asks for.
constexpr const char* kReportSync = "nxd::optimizer_report";

at::TensorOptions meta_options(at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(at::kMeta);
}

const at::Tensor& meta_like(const at::Tensor& x) { return device_value(x).meta; }

// Reduces tensors of one dtype over a group, in one call and where they lie.
std::vector<at::Tensor> reduce_where_they_lie(ProcessGroup& group, nxd_reduce_t reduce,
                                              const std::vector<at::Tensor>& tensors) {
  const nxd_dtype_t dtype = to_nxd_dtype(tensors[0].scalar_type());
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  if (tensors.size() == 1) {
    void* data = tensors[0].data_ptr();
    group.run(Call::all_reduce(data, data, bytes / dtype_size(dtype), dtype, reduce));
    return tensors;
  }
  at::Tensor buffer;
  take_for_call(&group, "all_reduce",
                [&] { buffer = exchanged_empty(group, {static_cast<int64_t>(bytes)}, at::kByte); });
  auto* const data = static_cast<char*>(buffer.data_ptr());
  char* at = data;
  for (const at::Tensor& tensor : tensors) {
    std::memcpy(at, tensor.data_ptr(), tensor.nbytes());
    at += tensor.nbytes();
  }
  group.run(Call::all_reduce(data, data, bytes / dtype_size(dtype), dtype, reduce));
  at = data;
  for (const at::Tensor& tensor : tensors) {
    std::memcpy(tensor.data_ptr(), at, tensor.nbytes());
    at += tensor.nbytes();
  }
  return tensors;
}

// Records the reduction of some gradients, which become its results.
void record_reduction(const std::shared_ptr<ProcessGroup>& group, nxd_reduce_t reduce,
                      const std::vector<at::Tensor*>& gradients) {
  RecordedCall call{"nxd::reduce_gradients"};
  call.attributes = text("group ", group->name(), ", reduce ", reduce);
  call.is_effect = true;
  std::vector<at::Tensor> inputs;
  for (at::Tensor* gradient : gradients) {
    call.overwrites.push_back(static_cast<int>(inputs.size()));
    call.results.push_back(meta_like(*gradient));
    inputs.push_back(*gradient);
  }
  call.exchanges = {exchange_over(group, RecordedExchange::Kind::kAllReduce, reduce)};
  call.function = [group, reduce](const std::vector<at::Tensor>& in) {
    return reduce_where_they_lie(*group, reduce, in);
  };
  const std::vector<at::Tensor> reduced = record_call(std::move(call), inputs);
  for (size_t i = 0; i < gradients.size(); ++i) *gradients[i] = reduced[i];
}

// Gathers gradients until there are enough of one group and dtype for one call. Every rank of a
// group has the same ones in the same order.
class PendingReductions {
 public:
  explicit PendingReductions(nxd_reduce_t reduce) : reduce_(reduce) {}

  void add(const std::shared_ptr<ProcessGroup>& group, at::Tensor& gradient) {
    const Key key{group->ranks(), gradient.scalar_type()};
    const auto [found, is_new] = waiting_.try_emplace(key);
    if (is_new) order_.push_back(key);
    Waiting& waiting = found->second;
    if (waiting.bytes + gradient.nbytes() > kReducedTogether) flush(waiting);
    waiting.group = group;
    waiting.gradients.push_back(&gradient);
    waiting.bytes += gradient.nbytes();
  }

  void flush() {
    for (const Key& key : order_) flush(waiting_.at(key));
  }

 private:
  using Key = std::pair<std::vector<int>, at::ScalarType>;
  struct Waiting {
    std::shared_ptr<ProcessGroup> group{};
    std::vector<at::Tensor*> gradients{};
    size_t bytes = 0;
  };

  void flush(Waiting& waiting) const {
    if (!waiting.gradients.empty()) record_reduction(waiting.group, reduce_, waiting.gradients);
    waiting.gradients.clear();
    waiting.bytes = 0;
  }

  const nxd_reduce_t reduce_;
  std::vector<Key> order_;
  std::map<Key, Waiting> waiting_;
};

// Copies a segment between a tensor's elements from begin on and its place in a bucket.
void copy_segment(const BucketPlan::Segment& segment, char* bucket, const at::Tensor& tensor,
                  int64_t begin, bool to_bucket) {
  const size_t size = tensor.element_size();
  char* place = bucket + static_cast<size_t>(segment.bucket_offset) * size;
  char* value = static_cast<char*>(tensor.data_ptr()) + static_cast<size_t>(begin) * size;
  const size_t bytes = static_cast<size_t>(segment.count) * size;
  if (to_bucket) {
    std::memcpy(place, value, bytes);
  } else {
    std::memcpy(value, place, bytes);
  }
}

// A bucket of one step, as the functions of its nodes need it.
struct RecordedBucket {
  RecordedBucket(const BucketPlan& plan, size_t bucket, std::shared_ptr<ProcessGroup> ranks)
      : group(std::move(ranks)),
        part_size(plan.part_size(bucket)),
        size(plan.buckets()[bucket].size),
        own(plan.part(bucket, group->rank())),
        all(plan.full(bucket)) {}

  // Segments of this rank's part; undefined gradients are zeros.
  std::vector<at::Tensor> scatter(nxd_reduce_t reduce, at::ScalarType dtype,
                                  const std::vector<at::Tensor>& gradients,
                                  const std::vector<BucketPlan::Segment>& wanted) const {
    const size_t element = c10::elementSize(dtype);
    const at::Tensor buffer = make_buffer("reduce_scatter", dtype);
    auto* const data = static_cast<char*>(buffer.data_ptr());
    for (size_t i = 0; i < all.size(); ++i) {
      if (gradients[i].defined()) {
        copy_segment(all[i], data, gradients[i].contiguous(), 0, true);
      }
    }
    char* part = data + static_cast<size_t>(group->rank() * part_size) * element;
    group->run({Operation::kReduceScatter, data, part, static_cast<size_t>(part_size),
                to_nxd_dtype(dtype), reduce});
    std::vector<at::Tensor> out;
    for (const BucketPlan::Segment& segment : wanted) {
      out.push_back(at::empty({segment.count}, dtype));
      copy_segment(segment, data, out.back(), 0, false);
    }
    return out;
  }

  // Takes own segments, and then the values of all parameters, which it overwrites.
  std::vector<at::Tensor> gather(const std::vector<at::Tensor>& in) const {
    const at::ScalarType dtype = in.back().scalar_type();
    const size_t element = c10::elementSize(dtype);
    const at::Tensor buffer = make_buffer("all_gather", dtype);
    auto* const data = static_cast<char*>(buffer.data_ptr());
    for (size_t i = 0; i < own.size(); ++i) {
      copy_segment(own[i], data, in[i].contiguous(), 0, true);
    }
    const char* part = data + static_cast<size_t>(group->rank() * part_size) * element;
    group->run(Call::all_gather(part, data, static_cast<size_t>(part_size), to_nxd_dtype(dtype)));
    std::vector<at::Tensor> out(in.begin() + static_cast<ptrdiff_t>(own.size()), in.end());
    for (size_t i = 0; i < all.size(); ++i) {
      copy_segment(all[i], data, out[i], all[i].parameter_offset, false);
    }
    return out;
  }

  // For the group's next call, of that name.
  at::Tensor make_buffer(const char* operation, at::ScalarType dtype) const {
    at::Tensor buffer;
    take_for_call(group.get(), operation,
                  [&] { buffer = exchanged_empty(*group, {size}, dtype).zero_(); });
    return buffer;
  }

  std::shared_ptr<ProcessGroup> group;
  int64_t part_size, size;  // elements
  std::vector<BucketPlan::Segment> own, all;
};

// One call over all ranks, where a rank's part is nobody else's.
std::vector<std::shared_ptr<ProcessGroup>> groups_of_norm(const OptimizerGroups& groups,
                                                          bool over_data) {
  if (over_data && groups.world) return {groups.world};
  return {groups.tensor, groups.pipeline, over_data ? groups.data : nullptr};
}

DeviceValuePtr record_norm_over_ranks(const OptimizerGroups& groups, bool over_data,
                                      const DeviceValuePtr& own, double type) {
  RecordedCall call{"nxd::norm_over_ranks"};
  call.attributes = text("type ", type, over_data ? ", over data" : "");
  call.is_effect = true;
  call.results = {own->meta};
  const nxd_reduce_t reduce = std::isinf(type) ? NXD_REDUCE_MAX : NXD_REDUCE_SUM;
  const bool has_stages = groups.pipeline && groups.pipeline->size() > 1;
  for (const auto& group : groups_of_norm(groups, over_data)) {
    if (!group || group->size() == 1) continue;
    call.exchanges.push_back(exchange_over(group, RecordedExchange::Kind::kAllReduce, reduce));
    call.exchanges.back().all_record =
        !has_stages || (group != groups.pipeline && group != groups.world);
  }
  if (call.exchanges.empty()) return own;
  call.function = [groups, over_data, type](const std::vector<at::Tensor>& in) {
    const double joined = norm_over_ranks(groups, over_data, in[0].item<double>(), type);
    return std::vector<at::Tensor>{at::scalar_tensor(joined, at::kDouble)};
  };
  return record_values(std::move(call), {own})[0];
}

// The kernels' update of what inputs 4, 5 and so on hold, so many of them: the values that are
// updated, the states, and a copy of the values where there is one.
std::vector<at::Tensor> run_update(const RecordedUpdate& update, int64_t results,
                                   const std::vector<at::Tensor>& in) {
  const bool is_updated = !in[2].defined() || in[2].item<bool>();
  if (is_updated) {
    const at::Tensor gradient = in[0].contiguous();
    std::vector<void*> states;
    for (size_t i = 0; i < update.states.size(); ++i) states.push_back(in[5 + i].data_ptr());
    UpdateMemory memory;
    memory.grad = gradient.data_ptr();
    memory.grad_scale = in[1].item<double>();
    memory.param = in[4].data_ptr();
    memory.states = states.data();
    memory.copy = update.master ? in.back().data_ptr() : nullptr;
    update.run(memory);
  }
  return {in.begin() + 4, in.begin() + 4 + results};
}

}  // namespace

bool RecordedStep::can_record() const {
  for (size_t i = 0; i < source_.size(); ++i) {
    if (!is_recorded(source_.parameter(i).tensor())) return false;
  }
  return source_.size() > 0;
}

// A plug-in's device rounds by itself where it does so.
std::optional<uint64_t> RecordedStep::rounding_seed() const {
  return has_graph_compiler() ? std::nullopt : GraphRounding::seed_of_environment();
}

const void* RecordedStep::value(size_t parameter) {
  source_.check_value(parameter);
  return Recording::value_of(device_value(source_.parameter(parameter).tensor()), kReportSync)
      .data_ptr();
}

std::vector<RecordedStep::Gradient> RecordedStep::gradients(
    const std::vector<char>& present) const {
  std::vector<Gradient> out;
  for (size_t i = 0; i < present.size(); ++i) {
    if (!present[i] || source_.info(i).count() == 0) continue;
    const ParameterInfo& info = source_.info(i);
    at::Tensor& gradient = source_.gradient(i);
    const nxd_dtype_t dtype = to_nxd_dtype(gradient.scalar_type());
    check_state(dtype == info.grad_dtype, "parameter ", info.name, ": expected a gradient of ",
                dtype_name(info.grad_dtype), ", got ", dtype_name(dtype));
    out.push_back({i, &gradient});
  }
  return out;
}

void RecordedStep::sum_over_data(const std::vector<Gradient>& gradients,
                                 nxd_reduce_t reduce) const {
  const std::shared_ptr<ProcessGroup> group = source_.groups().data;
  if (!group || group->size() == 1) return;
  PendingReductions reductions(reduce);
  for (const Gradient& gradient : gradients) reductions.add(group, *gradient.tensor);
  reductions.flush();
}

void RecordedStep::sum_over_gradient_groups(const std::vector<Gradient>& gradients) const {
  PendingReductions reductions(NXD_REDUCE_SUM);
  for (const Gradient& gradient : gradients) {
    const auto& group = source_.info(gradient.parameter).gradient_group;
    if (group && group->size() > 1) reductions.add(group, *gradient.tensor);
  }
  reductions.flush();
}

DeviceValuePtr RecordedStep::joined_norm_of(const std::vector<Gradient>& gradients,
                                            double type) const {
  RecordedCall call{"nxd::norm_of_gradients"};
  call.attributes = text("type ", type);
  call.results = {at::empty({}, meta_options(at::kDouble))};
  std::vector<DeviceValuePtr> inputs;
  // Ranks that have the same parameters have the same graph, whichever counts them.
  const OptimizerGroups& groups = source_.groups();
  std::vector<double> counts;
  for (const Gradient& gradient : gradients) {
    inputs.push_back(value_of(*gradient.tensor));
    counts.push_back(counts_in_norm(source_.info(gradient.parameter), groups) ? 1 : 0);
  }
  if (!inputs.empty()) inputs.push_back(vector_on_device(counts));
  call.function = [type](const std::vector<at::Tensor>& in) {
    double total = 0;
    for (size_t i = 0; i + 1 < in.size(); ++i) {
      if (in.back().data_ptr<double>()[i] == 0) continue;
      const at::Tensor dense = in[i].contiguous();
      total = joined_norm(
          total,
          part_of_norm(to_nxd_dtype(dense.scalar_type()), dense.numel(), dense.data_ptr(), type),
          type);
    }
    return std::vector<at::Tensor>{at::scalar_tensor(total, at::kDouble)};
  };
  return record_values(std::move(call), inputs)[0];
}

bool RecordedStep::has_present(size_t bucket) const {
  const auto& items = plan_->buckets()[bucket].items;
  return std::any_of(items.begin(), items.end(),
                     [&](const BucketPlan::Item& item) { return present_[item.parameter] != 0; });
}

void RecordedStep::scatter_bucket(size_t bucket, nxd_reduce_t reduce, std::vector<Gradient>& own) {
  if (plan_->has_parts_alike()) {
    const RecordedParts parts(*plan_, bucket, source_.groups().data);
    at::Tensor& part = parts_[{parts.parameter(), parts.begin()}];
    part = device_tensor(parts.scatter(value_of(source_.gradient(parts.parameter())), reduce));
    own.push_back({parts.parameter(), &part});
    return;
  }
  const auto places = std::make_shared<const RecordedBucket>(*plan_, bucket, source_.groups().data);
  const at::ScalarType dtype = to_scalar_type(plan_->buckets()[bucket].dtype);
  RecordedCall call{"nxd::scatter_gradients"};
  call.attributes = text("group ", places->group->name(), ", reduce ", reduce, ", bucket ", bucket);
  call.is_effect = true;
  std::vector<at::Tensor> inputs;
  for (const BucketPlan::Segment& segment : places->all) {
    const bool is_given = present_[segment.parameter] != 0;
    inputs.push_back(is_given ? source_.gradient(segment.parameter) : at::Tensor());
  }
  std::vector<BucketPlan::Segment> wanted;
  for (const BucketPlan::Segment& segment : places->own) {
    if (!present_[segment.parameter]) continue;
    wanted.push_back(segment);
    call.results.push_back(at::empty({segment.count}, meta_options(dtype)));
  }
  call.function = [places, reduce, dtype, wanted](const std::vector<at::Tensor>& in) {
    return places->scatter(reduce, dtype, in, wanted);
  };
  const std::vector<at::Tensor> results = record_call(std::move(call), inputs);
  for (size_t i = 0; i < wanted.size(); ++i) {
    at::Tensor& part = parts_[{wanted[i].parameter, wanted[i].parameter_offset}];
    part = results[i];
    own.push_back({wanted[i].parameter, &part});
  }
}

void RecordedStep::finish(const FinishOptions& options, const std::vector<char>& present,
                          const BucketPlan* plan) {
  const at::NoGradGuard no_grad;
  numbers_.clear();
  parts_.clear();
  updated_.clear();
  plan_ = plan;
  present_ = present;
  const nxd_reduce_t reduce = source_.data_parallel_reduce().value_or(options.reduce);
  std::vector<Gradient> taken = gradients(present);
  if (plan_) {
    taken.clear();
    for (size_t bucket = 0; bucket < plan_->buckets().size(); ++bucket) {
      if (has_present(bucket)) scatter_bucket(bucket, reduce, taken);
    }
  } else {
    sum_over_data(taken, reduce);
  }
  sum_over_gradient_groups(taken);
  const DeviceValuePtr joined =
      record_norm_over_ranks(source_.groups(), plan_ != nullptr,
                             joined_norm_of(taken, options.norm_type), options.norm_type);
  RecordedCall call{"nxd::clip_factor"};
  call.attributes = text("type ", options.norm_type, options.max_norm > 0 ? ", clips" : "");
  call.results = {at::empty({}, meta_options(at::kDouble)),
                  at::empty({}, meta_options(at::kDouble)), at::empty({}, meta_options(at::kBool))};
  call.function = [options](const std::vector<at::Tensor>& in) {
    const GradientFactor out = factor_of(in[0].item<double>(), options);
    return std::vector<at::Tensor>{at::scalar_tensor(out.norm, at::kDouble),
                                   at::scalar_tensor(out.factor, at::kDouble),
                                   at::scalar_tensor(out.finite, at::kBool)};
  };
  const DeviceValues results = record_values(
      std::move(call),
      {joined, vector_on_device(std::vector<double>{options.scale, options.max_norm})});
  norm_ = results[0];
  factor_ = results[1];
  finite_ = results[2];
  checks_finite_ = options.check_finite;
}

DeviceValuePtr RecordedStep::state_at(void* memory, const RecordedUpdate& update,
                                      const DeviceValue& values) {
  const auto found = states_.find(memory);
  if (found != states_.end()) return found->second;
  return Recording::current()->known(over_shared_memory(memory, update.owner, values.meta.sizes(),
                                                        to_scalar_type(update.state_dtype)));
}

void RecordedStep::forget_states() {
  for (const auto& [memory, state] : states_) state->known_data();
  states_.clear();
}

DeviceValuePtr RecordedStep::numbers(const RecordedUpdate& update) {
  DeviceValuePtr& known = numbers_[{update.group, update.step}];
  if (!known) known = vector_on_device(update.form.numbers);
  return known;
}

void RecordedStep::update(RecordedUpdate given) {
  source_.check_value(given.parameter);
  const at::NoGradGuard no_grad;
  const auto update = std::make_shared<const RecordedUpdate>(std::move(given));
  const at::Tensor& parameter = source_.parameter(update->parameter).tensor();
  const DeviceValuePtr values = values_of(*update);
  const Place place{update->parameter, update->begin};
  std::vector<void*> places = update->states;
  if (update->master) places.insert(places.begin(), update->master);
  std::vector<DeviceValuePtr> inputs;
  inputs.reserve(6 + places.size());
  inputs.push_back(value_of(plan_ ? parts_.at(place) : source_.gradient(update->parameter)));
  inputs.insert(inputs.end(), {factor_, checks_finite_ ? finite_ : nullptr, numbers(*update)});
  if (!update->master) inputs.push_back(values);
  for (void* memory : places) inputs.push_back(state_at(memory, *update, *values));
  if (update->master) inputs.push_back(values);
  RecordedCall call{update->form.name};
  call.attributes = update->form.attributes + (update->master ? " master" : "");
  for (size_t i = 4; i < inputs.size(); ++i) {
    call.results.push_back(inputs[i]->meta);
    call.overwrites.push_back(static_cast<int>(i));
  }
  const auto count = static_cast<int64_t>(call.results.size());
  call.function = [update, count](const std::vector<at::Tensor>& in) {
    return run_update(*update, count, in);
  };
  // Kernels have the site; a compiler draws the words by numbers that are an input.
  if (!update->random.empty()) inputs.push_back(vector_on_device(update->random));
  const DeviceValues results = record_values(std::move(call), inputs);
  const size_t first_state = update->master ? 0 : 1;
  for (size_t i = 0; i < places.size(); ++i) states_[places[i]] = results[first_state + i];
  const DeviceValuePtr& updated = update->master ? results.back() : results.front();
  if (plan_) {
    updated_[place] = updated;
  } else {
    take_recorded_value(parameter, updated);
  }
}

void RecordedStep::gather_bucket(size_t bucket) {
  if (plan_->has_parts_alike()) {
    const RecordedParts parts(*plan_, bucket, source_.groups().data);
    const at::Tensor& parameter = source_.parameter(parts.parameter()).tensor();
    const DeviceValuePtr& own = updated_.at({parts.parameter(), parts.begin()});
    return take_recorded_value(parameter, parts.gather(own, value_of(parameter)));
  }
  const auto places = std::make_shared<const RecordedBucket>(*plan_, bucket, source_.groups().data);
  RecordedCall call{"nxd::gather_parameters"};
  call.attributes = text("group ", places->group->name(), ", bucket ", bucket);
  call.is_effect = true;
  std::vector<DeviceValuePtr> inputs;
  for (const BucketPlan::Segment& segment : places->own) {
    const auto found = updated_.find({segment.parameter, segment.parameter_offset});
    inputs.push_back(
        found != updated_.end()
            ? found->second
            : value_of(span_of(segment.parameter, segment.parameter_offset, segment.count)));
  }
  for (const BucketPlan::Segment& segment : places->all) {
    const at::Tensor& parameter = source_.parameter(segment.parameter).tensor();
    call.overwrites.push_back(static_cast<int>(inputs.size()));
    call.results.push_back(meta_like(parameter));
    inputs.push_back(value_of(parameter));
  }
  call.function = [places](const std::vector<at::Tensor>& in) { return places->gather(in); };
  const DeviceValues results = record_values(std::move(call), inputs);
  for (size_t i = 0; i < places->all.size(); ++i) {
    take_recorded_value(source_.parameter(places->all[i].parameter).tensor(), results[i]);
  }
}

void RecordedStep::gather() {
  const at::NoGradGuard no_grad;
  for (size_t bucket = 0; bucket < plan_->buckets().size(); ++bucket) {
    if (has_present(bucket)) gather_bucket(bucket);
  }
  updated_.clear();
  parts_.clear();
}

at::Tensor RecordedStep::span_of(size_t parameter, int64_t begin, int64_t count) const {
  return source_.parameter(parameter).tensor().detach().view({-1}).narrow(0, begin, count);
}

DeviceValuePtr RecordedStep::values_of(const RecordedUpdate& update) const {
  const DeviceValuePtr whole = value_of(source_.parameter(update.parameter).tensor());
  if (!plan_) return whole;
  if (!plan_->has_parts_alike()) {
    return value_of(span_of(update.parameter, update.begin, update.count));
  }
  const auto bucket = static_cast<size_t>(plan_->bucket_of(update.parameter));
  return RecordedParts(*plan_, bucket, source_.groups().data).own_part(whole);
}

bool RecordedStep::has_ended() const {
  finite_->recording->wait();
  return finite_->known_data().defined() || finite_->is_lost();
}

GradientFactor RecordedStep::end() {
  GradientFactor out;
  out.norm = Recording::value_of(*norm_, kReportSync).item<double>();
  out.factor = Recording::value_of(*factor_, kReportSync).item<double>();
  out.finite = Recording::value_of(*finite_, kReportSync).item<bool>();
  return out;
}

bool RecordedStep::has_lost_values() const {
  for (size_t i = 0; i < source_.size(); ++i) {
    if (device_value(source_.parameter(i).tensor()).is_lost()) return true;
  }
  return false;
}

}  // namespace nxd
